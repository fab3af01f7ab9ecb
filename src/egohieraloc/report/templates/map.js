// The map of objects: shows the JSON value that stands in the page, see map_page.py.
import { objectColour, startScene } from "./scene.js";
import { byId, clock, legend, make } from "./tools.js";

const scene = JSON.parse(byId("data").textContent);
const { objects } = scene;
const unit = scene.unit === "m" ? "m" : "units";
const length = (value) => `${value < 0.095 && unit === "m" ? `${(100 * value).toFixed(0)} cm` : `${value.toFixed(1)} ${unit}`}`;
const day = (at) => new Date(at).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
const moment = ({ last_seen_at: at, last_seen_s: seconds, seen_later_at: later }) =>
  make("td", {}, at ? day(at) : clock(seconds), ...(later ? [make("p", { class: "quiet" }, `seen again ${day(later)}, place unknown`)] : []));

byId("headline").textContent = objects.length === 1 ? "One object on the map" : `${objects.length} objects on the map`;
byId("subline").textContent = scene.unit === "m"
  ? "Last known places, in metres; the rings show how far each may be off."
  : "Last known places. The scale of this map is not known; the rings show how far each may be off.";
startScene(byId("scene"), scene);
byId("legend").append(...legend([["var(--quiet)", "your path"], ["var(--accent)", "objects, with their uncertainty"]]));
byId("objects").append(...objects.map((each, rank) => {
  const swatch = make("i");
  swatch.style.background = objectColour(rank);
  return make("tr", {}, make("td", {}, swatch, each.name), moment(each),
    make("td", {}, length(each.deviation)), make("td", {}, each.confidence.toFixed(2)));
}));
byId("missing-card").hidden = !scene.without_place.length;
byId("missing").append(...scene.without_place.map(([name, reason]) => make("li", {}, `${name}: ${reason}`)));
