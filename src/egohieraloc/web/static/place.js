// Where in space: the words and the 3D view, both as in the report.
import { doubtItems, sceneLegend, sceneWords, startScene } from "./scene.js";
import { byId, legend } from "./tools.js";

const NEAR_S = 0.5; // how far the moment shown may be from the camera that stands for it

export class Place {
  // Shows what is known in space of the candidate that is shown, or nothing.
  set(answer, scene) {
    byId("place-card").hidden = !scene;
    if (!scene) return;
    byId("place-words").textContent = sceneWords(scene);
    byId("place-doubts").replaceChildren(...doubtItems(scene));
    byId("space").hidden = !scene.path.length;
    if (scene === this.scene || byId("space").hidden) return;
    this.scene = scene;
    this.moments = answer.cameras.frames.filter(({ cam_from_world: pose }) => pose);
    const old = byId("space").querySelector("canvas"), canvas = old.cloneNode();
    old.replaceWith(canvas);
    this.view = startScene(canvas, scene);
    byId("place-legend").replaceChildren(...legend(sceneLegend(scene)));
  }

  // Shows the camera of a moment, where it is known.
  move(time) {
    if (!this.view) return;
    const away = ({ time_s: other }) => Math.abs(other - time);
    const near = this.moments.reduce((best, each) => (away(each) < away(best) ? each : best));
    this.view.select(away(near) <= NEAR_S ? near.frame : null);
  }
}
