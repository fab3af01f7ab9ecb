// A box drawn over an image: drawn anew, moved by its inside, resized by its corners and sides, or with keys.
import { outline } from "./marks.js";
import { draw } from "./tools.js";

const MIN_DRAWN_PX = 5; // less is a click
const GRIP_PX = 14; // how near to a side or a corner a pointer takes hold of it
const KNOB_PX = 9;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// "x,y,width,height" of a box, as forms have it.
export const sides = ([x1, y1, x2, y2]) => [x1, y1, x2 - x1, y2 - y1].map((side) => side.toFixed(1)).join(",");

export class Drawing {
  // size() gives the image's width and height or null; onChange(box, finished) is called while the box changes,
  // with null when it is taken away; onStart() before a hand or a key touches it.
  constructor(stage, { size, onChange, onStart = () => {} }) {
    Object.assign(this, { stage, size, onChange, onStart, box: null, held: null });
    stage.addEventListener("pointerdown", (event) => this.down(event));
    stage.addEventListener("pointermove", (event) => this.move(event));
    stage.addEventListener("pointerup", (event) => this.up(event));
    stage.addEventListener("pointercancel", () => this.cancel());
    // A finger that rests before it moves must not call the menu of the image, which would end the drawing.
    stage.addEventListener("contextmenu", (event) => { if (this.held) event.preventDefault(); });
    stage.addEventListener("keydown", (event) => this.key(event));
  }

  set(box, finished = true) {
    this.box = box;
    this.onChange(box, finished);
  }

  // The box and the knobs at its corners, as SVG elements in pixels of the image.
  marks() {
    if (!this.box) return [];
    const [x1, y1, x2, y2] = this.box, [sx, sy] = this.scale(), [w, h] = [KNOB_PX / sx, KNOB_PX / sy];
    const knobs = [[x1, y1], [x2, y1], [x1, y2], [x2, y2]].map(([x, y]) =>
      draw("rect", { class: "knob-box", x: x - w / 2, y: y - h / 2, width: w, height: h }));
    return [...outline(this.box, "mark draft"), ...knobs];
  }

  scale() {
    const area = this.stage.getBoundingClientRect(), [width, height] = this.size();
    return [area.width / width || 1, area.height / height || 1];
  }
  point(event) {
    const area = this.stage.getBoundingClientRect(), [width, height] = this.size(), [sx, sy] = this.scale();
    return [Math.max(0, Math.min(width, (event.clientX - area.left) / sx)), Math.max(0, Math.min(height, (event.clientY - area.top) / sy))];
  }

  // What a pointer would take hold of: which sides move, [left, top, right, bottom], or null for a new box.
  grip([x, y]) {
    if (!this.box) return null;
    const [x1, y1, x2, y2] = this.box, [sx, sy] = this.scale(), near = (a, b, scale) => Math.abs(a - b) * scale <= GRIP_PX;
    if (x < x1 - GRIP_PX / sx || x > x2 + GRIP_PX / sx || y < y1 - GRIP_PX / sy || y > y2 + GRIP_PX / sy) return null;
    // Of a small box the inside must stay free to be moved by.
    const sides = [near(x, x1, sx), near(y, y1, sy), near(x, x2, sx), near(y, y2, sy)];
    const small = (x2 - x1) * sx < 3 * GRIP_PX || (y2 - y1) * sy < 3 * GRIP_PX;
    const inside = x > x1 && x < x2 && y > y1 && y < y2;
    return !sides.includes(true) || (small && inside) ? [true, true, true, true] : sides;
  }

  down(event) {
    if (event.button !== 0 || !event.isPrimary || !this.size()) return;
    this.onStart();
    this.stage.setPointerCapture(event.pointerId);
    const at = this.point(event);
    this.held = { at, sides: this.grip(at), before: this.box, clientX: event.clientX, clientY: event.clientY };
  }
  move(event) {
    if (!this.size()) return;
    const at = this.point(event);
    if (!this.held) {
      this.stage.style.cursor = cursor(this.grip(at));
      return;
    }
    this.set(this.changed(at), false);
  }
  up(event) {
    const held = this.held;
    if (!held) return;
    const far = [Math.abs(event.clientX - held.clientX), Math.abs(event.clientY - held.clientY)];
    const box = this.changed(this.point(event));
    this.held = null;
    if (!held.sides) this.set(Math.min(...far) >= MIN_DRAWN_PX ? box : null);
    else this.set(Math.max(...far) >= 2 ? box : held.before);
  }
  cancel() {
    const held = this.held;
    this.held = null;
    if (held) this.set(held.sides ? held.before : null);
  }

  changed(at) {
    const { at: from, sides, before } = this.held, [width, height] = this.size();
    if (!sides) return between(from, at);
    const by = [at[0] - from[0], at[1] - from[1]];
    if (sides.every(Boolean)) return shifted(before, by, width, height);
    const [x1, y1, x2, y2] = before.map((value, i) => value + (sides[i] ? by[i % 2] : 0));
    const box = inside(between([x1, y1], [x2, y2]), width, height);
    const [sx, sy] = this.scale();
    return (box[2] - box[0]) * sx < MIN_DRAWN_PX || (box[3] - box[1]) * sy < MIN_DRAWN_PX ? this.box : box;
  }

  key(event) {
    if (event.key === "Escape") return this.set(null);
    if (!(event.key in ARROWS) || !this.size()) return;
    event.preventDefault();
    this.onStart();
    const [width, height] = this.size(), step = width / 50;
    const [dx, dy] = ARROWS[event.key].map((way) => way * step);
    if (!this.box) return this.set([0.4 * width, 0.4 * height, 0.6 * width, 0.6 * height]);
    const [x1, y1, x2, y2] = this.box;
    if (!event.shiftKey) return this.set(shifted(this.box, [dx, dy], width, height));
    this.set([x1, y1, Math.min(width, Math.max(x1 + step, x2 + dx)), Math.min(height, Math.max(y1 + step, y2 + dy))]);
  }
}

const between = ([ax, ay], [bx, by]) => [Math.min(ax, bx), Math.min(ay, by), Math.max(ax, bx), Math.max(ay, by)];
const inside = ([x1, y1, x2, y2], width, height) => [Math.max(0, x1), Math.max(0, y1), Math.min(width, x2), Math.min(height, y2)];
function shifted([x1, y1, x2, y2], [dx, dy], width, height) {
  const moveX = Math.max(-x1, Math.min(width - x2, dx)), moveY = Math.max(-y1, Math.min(height - y2, dy));
  return [x1 + moveX, y1 + moveY, x2 + moveX, y2 + moveY];
}
function cursor(sides) {
  if (!sides) return "crosshair";
  const [left, top, right, bottom] = sides;
  if (sides.every(Boolean)) return "move";
  if ((left && top) || (right && bottom)) return "nwse-resize";
  if ((right && top) || (left && bottom)) return "nesw-resize";
  return left || right ? "ew-resize" : "ns-resize";
}
