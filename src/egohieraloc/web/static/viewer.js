// The video: moving through it, drawing a box on it, showing boxes over it.
//
// While it stands still the server's own image of that moment lies over the player, so that a box is drawn on
// exactly the frame that is asked about, and a video the browser cannot play is shown all the same.
import { Drawing } from "./drawing.js";
import { marks } from "./marks.js";
import { byId, clock, showPlaying } from "./tools.js";

const STILL_AFTER_MS = 120;
const SLOW_STEP_S = 0.2; // between images where the browser cannot play

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
    this.draft = this.drawing.box = null;
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
    const frame = Math.min(this.entry.num_frames - 1, Math.round(this.time * this.entry.fps));
    byId("moment").textContent = `${clock(this.time)} of ${clock(this.entry.duration_s)} · frame ${frame} of ${this.entry.num_frames}`;
    this.mark();
    this.onTime(this.time);
  }

  isAt(time) { return this.entry && Math.abs(time - this.time) < 0.5 / this.entry.fps; }

  mark() {
    const seen = this.viewAt(this.time, this.playing), shown = [];
    if (seen) shown.push(...marks(seen, seen.guess ? "mark guess" : seen.other ? "mark other" : "mark"));
    if (this.draft && this.isAt(this.draft.time)) shown.push(...this.drawing.marks());
    byId("marks").replaceChildren(...shown);
  }

  setDraft(box) { this.drawing.set(box); }

  // Takes the drawn box away without a word: something else is asked about.
  dropDraft() {
    this.draft = this.drawing.box = null;
    this.mark();
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
    this.stage.addEventListener("keydown", (event) => {
      if (event.key !== " ") return;
      event.preventDefault();
      this.playing ? this.pause() : this.play();
    });
    this.drawing = new Drawing(this.stage, {
      size: () => this.entry && [this.entry.width, this.entry.height],
      onStart: () => {
        this.pause();
        if (this.draft && !this.isAt(this.draft.time)) this.drawing.box = null; // it belongs to another moment
      },
      onChange: (box, finished) => {
        this.draft = box && { time: this.time, box };
        this.mark();
        if (finished) this.onDraft(this.draft);
      },
    });
  }
}
