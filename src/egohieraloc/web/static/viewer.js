// The video: moving through it, drawing a box on it, showing boxes over it.
//
// While it stands still the server's own image of that moment lies over the player, so that a box is drawn on
// exactly the frame that is asked about, and a video the browser cannot play is shown all the same.
import { marks, outline } from "./marks.js";
import { byId, clock, showPlaying } from "./tools.js";

const STILL_AFTER_MS = 120;
const SLOW_STEP_S = 0.2; // between images where the browser cannot play
const MIN_DRAWN_PX = 5; // less is a click

export class Viewer {
  // viewAt(time, playing) tells what to mark: {box, mask, other} or null.
  // onTime(time) is called whenever the moment changes, onDraft(box) when a box was drawn or taken away.
  constructor({ viewAt, onTime, onDraft }) {
    Object.assign(this, { viewAt, onTime, onDraft });
    this.stage = byId("stage");
    this.video = byId("video");
    this.still = byId("still");
    this.entry = null;
    this.time = 0;
    this.playing = false;
    this.draft = null; // {time, box: [x1, y1, x2, y2]}
    this.listen();
  }

  // Opens a video, or with null none: nothing is asked of the server any more.
  open(entry) {
    this.pause();
    this.entry = entry;
    this.draft = null;
    this.playable = true;
    this.still.hidden = true;
    clearTimeout(this.stillTimer);
    this.loading?.removeAttribute("src");
    if (!entry) {
      this.video.removeAttribute("src");
      return this.video.load();
    }
    this.stage.style.aspectRatio = `${entry.width} / ${entry.height}`;
    this.stage.style.maxWidth = `calc(66vh * ${entry.width / entry.height})`;
    byId("marks").setAttribute("viewBox", `0 0 ${entry.width} ${entry.height}`);
    byId("scrub").max = this.last();
    byId("scrub").step = 1 / entry.fps;
    this.video.src = `/videos/${entry.id}/file`;
    this.seek(0);
  }

  frameAt(time) { return `/videos/${this.entry.id}/frame?time_s=${time.toFixed(4)}`; }

  last() { return Math.max(0, this.entry.duration_s - 1 / this.entry.fps); }

  seek(time) {
    this.time = Math.max(0, Math.min(this.last(), time));
    if (this.playable && !this.playing) this.video.currentTime = this.time;
    if (!this.playing) this.wantStill();
    this.refresh();
  }

  wantStill() {
    clearTimeout(this.stillTimer);
    if (this.playable) this.still.hidden = true;
    const wanted = this.wanted = this.frameAt(this.time);
    this.stillTimer = setTimeout(() => {
      const image = this.loading = new Image();
      image.onload = () => {
        if (wanted !== this.wanted || (this.playing && this.playable)) return;
        Object.assign(image, { id: "still", draggable: false, alt: `Frame at ${clock(this.time)}` });
        this.still.replaceWith(image);
        this.still = image;
        if (this.playing) this.stepSlowly();
      };
      image.onerror = () => { if (wanted === this.wanted) this.pause(); };
      image.src = wanted;
    }, this.playing ? 0 : STILL_AFTER_MS);
  }

  play() {
    if (this.time >= this.last() - 1e-3) this.seek(0);
    this.playing = true;
    showPlaying(byId("play"), this.playing);
    if (!this.playable) return this.stepSlowly();
    this.video.currentTime = this.time;
    this.still.hidden = true;
    this.video.play().then(() => this.follow(), () => this.cannotPlay());
  }
  follow() {
    if (!this.playing || !this.playable) return;
    this.time = Math.min(this.last(), this.video.currentTime);
    this.refresh();
    if (this.video.ended || this.time >= this.last()) this.pause();
    else requestAnimationFrame(() => this.follow());
  }
  stepSlowly() {
    this.slowTimer = setTimeout(() => {
      if (!this.playing) return;
      if (this.time >= this.last() - 1e-3) return this.pause();
      this.time = Math.min(this.last(), this.time + SLOW_STEP_S);
      this.refresh();
      this.wantStill();
    }, 1000 * SLOW_STEP_S);
  }
  pause() {
    const was = this.playing;
    this.playing = false;
    clearTimeout(this.slowTimer);
    this.video.pause();
    showPlaying(byId("play"), this.playing);
    if (was) this.seek(this.time);
  }
  cannotPlay() {
    if (!this.playable || !this.entry) return;
    this.playable = false;
    if (this.playing) this.stepSlowly();
    else this.wantStill();
  }

  refresh() {
    byId("scrub").value = this.time;
    byId("scrub").setAttribute("aria-valuetext", clock(this.time));
    byId("moment").textContent = `${clock(this.time)} of ${clock(this.entry.duration_s)}`;
    this.mark();
    this.onTime(this.time);
  }

  isAt(time) { return this.entry && Math.abs(time - this.time) < 0.5 / this.entry.fps; }

  mark() {
    const seen = this.viewAt(this.time, this.playing), shown = [];
    if (seen) shown.push(...marks(seen, seen.other ? "mark other" : "mark"));
    if (this.draft && this.isAt(this.draft.time)) shown.push(...outline(this.draft.box, "mark draft"));
    byId("marks").replaceChildren(...shown);
  }

  setDraft(box, finished = true) {
    this.draft = box && { time: this.time, box };
    this.mark();
    if (finished) this.onDraft(this.draft);
  }

  // What a draft shows, as a bitmap; from the server's image, since the player may be elsewhere by now.
  async cut({ time, box: [x1, y1, x2, y2] }) {
    const source = new Image(), { width } = this.entry;
    source.src = this.frameAt(time);
    await source.decode();
    const scale = source.naturalWidth / width, side = (length) => Math.max(1, Math.round(scale * length));
    return createImageBitmap(source, Math.round(scale * x1), Math.round(scale * y1), side(x2 - x1), side(y2 - y1));
  }

  listen() {
    this.video.addEventListener("error", () => this.cannotPlay());
    byId("scrub").addEventListener("input", (event) => { this.pause(); this.seek(Number(event.target.value)); });
    byId("previous").addEventListener("click", () => { this.pause(); this.seek(this.time - 1 / this.entry.fps); });
    byId("next").addEventListener("click", () => { this.pause(); this.seek(this.time + 1 / this.entry.fps); });
    byId("play").addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    this.stage.addEventListener("keydown", (event) => this.key(event));
    let start = null;
    const point = (event) => {
      const area = this.stage.getBoundingClientRect(), { width, height } = this.entry;
      const x = (event.clientX - area.left) / area.width * width, y = (event.clientY - area.top) / area.height * height;
      return [Math.max(0, Math.min(width, x)), Math.max(0, Math.min(height, y))];
    };
    this.stage.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !event.isPrimary) return;
      this.pause();
      this.stage.setPointerCapture(event.pointerId);
      start = { at: point(event), clientX: event.clientX, clientY: event.clientY };
    });
    this.stage.addEventListener("pointermove", (event) => { if (start) this.setDraft(between(start.at, point(event)), false); });
    this.stage.addEventListener("pointerup", (event) => {
      if (!start) return;
      const drawn = Math.min(Math.abs(event.clientX - start.clientX), Math.abs(event.clientY - start.clientY)) >= MIN_DRAWN_PX;
      this.setDraft(drawn ? between(start.at, point(event)) : null);
      start = null;
    });
    // A finger that rests before it moves must not call the menu of the image, which would end the drawing.
    this.stage.addEventListener("contextmenu", (event) => { if (start) event.preventDefault(); });
    this.stage.addEventListener("pointercancel", () => { start = null; this.setDraft(null); });
  }

  key(event) {
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "Escape") return this.setDraft(null);
    if (event.key === " ") { event.preventDefault(); return this.playing ? this.pause() : this.play(); }
    if (!(event.key in arrows)) return;
    event.preventDefault();
    this.pause();
    const { width, height } = this.entry, step = width / 50;
    const [dx, dy] = arrows[event.key].map((way) => way * step);
    if (!this.draft || !this.isAt(this.draft.time)) return this.setDraft([0.4 * width, 0.4 * height, 0.6 * width, 0.6 * height]);
    let [x1, y1, x2, y2] = this.draft.box;
    if (event.shiftKey) {
      x2 = Math.min(width, Math.max(x1 + step, x2 + dx));
      y2 = Math.min(height, Math.max(y1 + step, y2 + dy));
    } else {
      const moveX = Math.max(-x1, Math.min(width - x2, dx)), moveY = Math.max(-y1, Math.min(height - y2, dy));
      [x1, x2, y1, y2] = [x1 + moveX, x2 + moveX, y1 + moveY, y2 + moveY];
    }
    this.setDraft([x1, y1, x2, y2]);
  }
}

function between([ax, ay], [bx, by]) {
  return [Math.min(ax, bx), Math.min(ay, by), Math.max(ax, bx), Math.max(ay, by)];
}
