// The score over time: the appearances shaded, a cursor at the moment shown, a click goes there.
import { clock, draw } from "./tools.js";

const LEFT = 30, RIGHT = 8, TOP = 10, BOTTOM = 24;
const TICKS_S = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600];
const STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };

// The legend's entries for the lines, see `legend`. Where no appearance was found none can end.
const DASHES = "repeating-linear-gradient(90deg, var(--quiet) 0 5px, transparent 5px 8px)";
export const curveLines = (found) => [
  ["var(--accent)", "score, smoothed", "line"],
  ["color-mix(in srgb, var(--quiet) 45%, transparent)", "of each sample; 0 where only glanced at", "line"],
  ...(found ? [[DASHES, "an appearance ends below this", "line"]] : []),
];

export class Curve {
  // onPick(time) is called when a moment is chosen with the pointer, onStep(samples) when keys move from here.
  constructor(box, { onPick, onStep }) {
    this.box = box;
    this.time = 0;
    this.scores = null;
    const pick = (event) => {
      const share = (event.clientX - box.getBoundingClientRect().left - LEFT) / (box.clientWidth - LEFT - RIGHT);
      onPick(this.start_s + Math.max(0, Math.min(1, share)) * (this.end_s - this.start_s));
    };
    box.addEventListener("pointerdown", (event) => { box.setPointerCapture(event.pointerId); pick(event); });
    box.addEventListener("pointermove", (event) => { if (event.buttons) pick(event); });
    box.addEventListener("keydown", (event) => {
      if (!this.scores || !(event.key in STEPS)) return;
      event.preventDefault();
      onStep(STEPS[event.key]);
    });
    new ResizeObserver(() => this.show()).observe(box);
  }

  // scores: as in result.json; spans: [{start_s, end_s, name}], name "chosen" or "passed".
  set({ scores, start_s, end_s, spans }) {
    Object.assign(this, { scores, start_s, end_s, spans });
    this.box.setAttribute("aria-valuemin", start_s.toFixed(1));
    this.box.setAttribute("aria-valuemax", end_s.toFixed(1));
    this.show();
  }

  x(time) {
    const share = (time - this.start_s) / (this.end_s - this.start_s);
    return LEFT + (this.box.clientWidth - LEFT - RIGHT) * Math.max(0, Math.min(1, share));
  }
  y(value) { return TOP + (this.box.clientHeight - TOP - BOTTOM) * (1 - Math.max(0, Math.min(1, value))); }

  show() {
    const width = this.box.clientWidth, height = this.box.clientHeight;
    if (!this.scores || !width) return;
    const { time_s: times, raw, smooth, threshold } = this.scores;
    const line = (values) => values.map((value, i) => `${i ? "L" : "M"}${this.x(times[i]).toFixed(1)} ${this.y(value).toFixed(1)}`).join("");
    const svg = draw("svg", { "aria-hidden": "true" });
    const chosenLast = [...this.spans].sort((a, b) => (a.name === "chosen") - (b.name === "chosen"));
    for (const { start_s, end_s, name } of chosenLast) {
      svg.append(draw("rect", { class: name, x: this.x(start_s), y: TOP, width: this.x(end_s) - this.x(start_s), height: height - TOP - BOTTOM, rx: 3 }));
    }
    for (const value of [0, 0.5, 1]) {
      svg.append(draw("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: this.y(value), y2: this.y(value) }),
        draw("text", { x: LEFT - 7, y: this.y(value) + 4, "text-anchor": "end" }, String(value)));
    }
    svg.append(...this.ticks(width, height));
    if (times.length) {
      const floor = this.y(0);
      svg.append(draw("path", { class: "under", d: `${line(smooth)}L${this.x(times.at(-1))} ${floor}L${this.x(times[0])} ${floor}Z` }),
        draw("path", { class: "raw", d: line(raw) }), draw("path", { class: "smooth", d: line(smooth) }));
    }
    if (this.spans.length) svg.append(draw("line", { class: "threshold", x1: LEFT, x2: width - RIGHT, y1: this.y(threshold), y2: this.y(threshold) }));
    this.cursor = draw("line", { class: "cursor", y1: TOP, y2: height - BOTTOM });
    this.knob = draw("circle", { class: "knob", r: 4.5 });
    svg.append(this.cursor, this.knob);
    this.box.replaceChildren(svg);
    this.move(this.time);
  }

  ticks(width, height) {
    const every = TICKS_S.find((tick) => (this.end_s - this.start_s) / tick <= width / 75) || TICKS_S.at(-1);
    const found = [];
    for (let time = Math.ceil(this.start_s / every) * every; time <= this.end_s && this.x(time) <= width - 16; time += every) {
      found.push(draw("text", { x: this.x(time), y: height - 5, "text-anchor": "middle" }, clock(time).replace(/\.0$/, "")));
    }
    return found;
  }

  move(time) {
    this.time = time;
    if (!this.scores || !this.cursor) return;
    const score = this.scoreAt(time), x = this.x(time);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.knob.setAttribute("cx", x);
    this.knob.setAttribute("cy", this.y(score));
    this.box.setAttribute("aria-valuenow", time.toFixed(1));
    this.box.setAttribute("aria-valuetext", `${clock(time)}, score ${score.toFixed(2)}`);
  }

  scoreAt(time) {
    const { time_s: times, smooth } = this.scores;
    const after = times.findIndex((one) => one > time);
    if (!times.length) return 0;
    if (after < 0) return smooth.at(-1);
    if (after === 0) return smooth[0];
    const part = (time - times[after - 1]) / (times[after] - times[after - 1]);
    return smooth[after - 1] + part * (smooth[after] - smooth[after - 1]);
  }
}
