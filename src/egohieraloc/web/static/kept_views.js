// Views of the object that were chosen already; the next one joins them.
import { make } from "./tools.js";

export class KeptViews {
  constructor(list, changed) { Object.assign(this, { list, changed, views: [] }); }

  // view: {image or time, box}; crop: what it shows.
  add(view, crop) {
    this.views.push(view);
    const canvas = make("canvas", { class: "small", width: crop.width, height: crop.height, role: "img", "aria-label": `View ${this.views.length} of the object` });
    canvas.getContext("2d").drawImage(crop, 0, 0);
    const cross = make("button", { type: "button", class: "remove", "aria-label": "Remove this view" }, "✕");
    const line = make("li", {}, canvas, cross);
    cross.addEventListener("click", () => {
      this.views = this.views.filter((other) => other !== view);
      line.remove();
      this.changed();
    });
    this.list.append(line);
  }

  clear() {
    this.views = [];
    this.list.replaceChildren();
  }
}
