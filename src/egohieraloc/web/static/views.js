// Images of the object to look for: shown small, a box can be drawn on each.
import { draw, make } from "./tools.js";

const LEAST_PX = 4; // of the image: less is a click

export class Views {
  constructor(list, changed) {
    this.list = list;
    this.changed = changed;
    this.entries = [];
  }

  async add(file) {
    const bitmap = await createImageBitmap(file).catch(() => { throw new Error(`${file.name} is not an image the browser can read.`); });
    const entry = { file, box: null, width: bitmap.width, height: bitmap.height };
    this.entries.push(entry);
    this.list.append(this.row(entry, bitmap));
    this.changed();
  }

  clear() {
    this.entries = [];
    this.list.replaceChildren();
    this.changed();
  }

  // Fills a form that is sent to the server.
  fill(form) {
    for (const { file, box } of this.entries) {
      form.append("images", file);
      form.append("boxes", box ? box.map((side) => side.toFixed(1)).join(",") : "");
    }
  }

  row(entry, bitmap) {
    const canvas = make("canvas", { width: bitmap.width, height: bitmap.height });
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    const svg = draw("svg", { viewBox: `0 0 ${entry.width} ${entry.height}`, preserveAspectRatio: "none" });
    const stage = make("div", { class: "image view", role: "img", "aria-label": `${entry.file.name}: drag to draw a box` }, canvas, svg);
    this.listen(stage, svg, entry);
    const cross = make("button", { type: "button", class: "remove", "aria-label": `Remove ${entry.file.name}` }, "✕");
    const line = make("li", {}, stage, cross);
    cross.addEventListener("click", () => {
      this.entries = this.entries.filter((other) => other !== entry);
      line.remove();
      this.changed();
    });
    return line;
  }

  listen(stage, svg, entry) {
    let from = null;
    const at = (event) => {
      const area = stage.getBoundingClientRect();
      const inside = (value, size) => Math.min(Math.max(value, 0), size);
      return [inside((event.clientX - area.left) / area.width * entry.width, entry.width), inside((event.clientY - area.top) / area.height * entry.height, entry.height)];
    };
    stage.addEventListener("pointerdown", (event) => {
      from = at(event);
      stage.setPointerCapture(event.pointerId);
    });
    stage.addEventListener("pointermove", (event) => {
      if (!from) return;
      const to = at(event), [x, y] = [0, 1].map((k) => Math.min(from[k], to[k]));
      const [width, height] = [0, 1].map((k) => Math.abs(from[k] - to[k]));
      entry.box = Math.min(width, height) >= LEAST_PX ? [x, y, width, height] : null;
      svg.replaceChildren(...(entry.box ? ["halo", "mark"].map((kind) => draw("rect", { class: kind, x, y, width, height })) : []));
    });
    stage.addEventListener("pointerup", () => { from = null; });
  }
}
