// The last known places of saved objects: a 3D view for each video that has some, the latest first.
import { objectColour, startScene } from "./scene.js";
import { byId, legend, make } from "./tools.js";

// `maps` are those of GET /memory/maps; `when` writes a moment.
export function showMaps(maps, when) {
  byId("map-card").hidden = !maps.length;
  if (!maps.length) return;
  const chosen = byId("map-video");
  chosen.hidden = maps.length === 1;
  chosen.replaceChildren(...maps.map(({ video }) => make("option", { value: video.id }, `${when(video.start)}, ${video.name}`)));
  chosen.onchange = () => showMap(maps[chosen.selectedIndex].scene, when);
  showMap(maps[0].scene, when);
}

function showMap(scene, when) {
  const old = byId("map"), canvas = old.cloneNode(), unit = scene.unit === "m" ? "m" : "units";
  old.replaceWith(canvas);
  startScene(canvas, scene);
  byId("map-legend").replaceChildren(...legend(scene.objects.map((each, rank) => [
    objectColour(rank),
    `${each.name}: ${when(each.last_seen_at)}, within ${each.deviation.toFixed(1)} ${unit}, confidence ${each.confidence.toFixed(2)}` +
      (each.seen_later_at ? `; seen again ${when(each.seen_later_at)}, place unknown` : ""),
  ])));
  byId("map-missing").replaceChildren(...scene.without_place.map(([name, reason]) => make("li", {}, `${name}: ${reason}`)));
}
