// Images of the object to look for: shown small, a box can be drawn on each.
import { Drawing, sides } from "./drawing.js";
import { draw, make } from "./tools.js";

const HOW = "Drag to draw a box around the object. With keys: arrows make a box and move it, Shift and arrows change its size, Escape takes it away.";

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
      form.append("boxes", box ? sides(box) : "");
    }
  }

  row(entry, bitmap) {
    const canvas = make("canvas", { width: bitmap.width, height: bitmap.height });
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    const svg = draw("svg", { viewBox: `0 0 ${entry.width} ${entry.height}`, preserveAspectRatio: "none" });
    const stage = make("div", { class: "image view", tabindex: 0, role: "group", "aria-label": `${entry.file.name}. ${HOW}` }, canvas, svg);
    const drawing = new Drawing(stage, {
      size: () => [entry.width, entry.height],
      onChange: (box) => {
        entry.box = box;
        svg.replaceChildren(...drawing.marks());
      },
    });
    const cross = make("button", { type: "button", class: "remove", "aria-label": `Remove ${entry.file.name}` }, "✕");
    const line = make("li", {}, stage, cross);
    cross.addEventListener("click", () => {
      this.entries = this.entries.filter((other) => other !== entry);
      line.remove();
      this.changed();
    });
    return line;
  }
}
