// Where in space: the words and the 3D view, both as in the report (its scene.js gives startScene and the rest).
import { byId, legend } from "./tools.js";

const NEAR_S = 0.5; // how far the moment shown may be from the camera that stands for it

export class Place {
  // Shows what an answer knows in space; `chosen` tells whether the answer itself is shown or another candidate.
  set(answer, chosen) {
    const scene = answer?.scene;
    byId("place-card").hidden = !scene;
    if (!scene) return;
    byId("place-words").textContent = chosen ? sceneWords(scene) : "Only the answer has a place in space, other candidates have none.";
    byId("space").hidden = !chosen || !scene.path.length;
    if (answer === this.answer || byId("space").hidden) return;
    this.answer = answer;
    const timeOf = new Map(answer.curve.frame.map((frame, i) => [frame, answer.curve.time_s[i]]));
    this.moments = scene.pathFrames.map((frame) => ({ frame, time: timeOf.get(frame) }));
    const old = byId("space").querySelector("canvas"), canvas = old.cloneNode();
    old.replaceWith(canvas);
    this.view = startScene(canvas, scene);
    byId("place-legend").replaceChildren(...legend(sceneLegend(scene)));
  }

  // Shows the camera of a moment, where it is known.
  move(time) {
    if (!this.view) return;
    const away = ({ time: other }) => Math.abs(other - time);
    const near = this.moments.reduce((best, each) => (away(each) < away(best) ? each : best));
    this.view.select(away(near) <= NEAR_S ? near.frame : null);
  }
}
