// What the next query is about: a box in the video or in a photo, what of it will be searched, when, and how.
import { Drawing, sides } from "./drawing.js";
import { KeptViews } from "./kept_views.js";
import { call } from "./requests.js";
import { byId, clock } from "./tools.js";

const PREVIEW_AFTER_MS = 350, SHOWN_PX = 192;
const READ = { willReadFrequently: true };

// Seconds from 8.6 or 0:08.6, null from nothing; an error from anything else.
export function parseTime(text) {
  if (!text.trim()) return null;
  const parts = text.trim().replace(/\s*s$/, "").split(":");
  const plain = parts.every((part, i) => /^\d+$/.test(part) || (i === parts.length - 1 && /^\d+(\.\d*)?$/.test(part)));
  const numbers = parts.map(Number);
  if (!plain || parts.length > 3 || numbers.slice(1).some((part) => part >= 60)) {
    throw new Error(`A time is written in seconds (8.6) or as minutes:seconds (0:08.6), not “${text}”.`);
  }
  return numbers.reduce((sum, part) => 60 * sum + part, 0);
}

export class Ask {
  // viewer: the video; onWant() is called when what is wanted has changed.
  constructor(viewer, onWant) {
    Object.assign(this, { viewer, onWant, wanted: null, videoId: null, photo: null });
    this.drawing = new Drawing(byId("photo"), {
      size: () => this.photo && [this.photo.bitmap.width, this.photo.bitmap.height],
      onChange: (box, finished) => {
        this.markPhoto();
        if (finished) this.want({ image: this.photo.file, box, bitmap: this.photo.bitmap });
      },
    });
    this.kept = new KeptViews(byId("kept"), () => this.ready());
    byId("another").addEventListener("click", () => this.keep());
    byId("photo-away").addEventListener("click", () => this.want(null));
    byId("in-3d").addEventListener("change", () => this.showHeight());
    byId("until-now").addEventListener("click", () => { byId("until").value = clock(viewer.time); });
  }

  open(videoId) {
    this.videoId = videoId;
    byId("until").value = "";
    this.kept.clear();
    this.want(null);
  }

  // Puts what is wanted aside as one view of the object, so that another can be chosen.
  async keep() {
    const { wanted } = this, crop = await this.cut(wanted);
    if (this.wanted !== wanted) return;
    this.kept.add(wanted, crop);
    this.viewer.dropDraft();
    this.want(null);
  }
  get views() { return [...this.kept.views, ...(this.wanted ? [this.wanted] : [])]; }
  ready() {
    byId("ask").disabled = !this.views.length;
    byId("another").hidden = !this.wanted;
    this.sayHint();
    this.onWant();
  }

  // A file of an image: it is shown large, so that the object can be marked in it.
  async take(file) {
    const bitmap = await createImageBitmap(file).catch(() => { throw new Error(`${file.name} is not an image the browser can read.`); });
    this.viewer.dropDraft();
    this.photo = { file, bitmap };
    this.drawing.box = null;
    const canvas = byId("photo-image"), shrink = Math.min(1, 1280 / Math.max(bitmap.width, bitmap.height));
    canvas.width = Math.max(1, Math.round(bitmap.width * shrink));
    canvas.height = Math.max(1, Math.round(bitmap.height * shrink));
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    byId("photo").style.aspectRatio = `${bitmap.width} / ${bitmap.height}`;
    byId("photo-marks").setAttribute("viewBox", `0 0 ${bitmap.width} ${bitmap.height}`);
    this.want({ image: file, box: null, bitmap });
    this.markPhoto();
    byId("photo").focus({ preventScroll: true });
  }
  markPhoto() { byId("photo-marks").replaceChildren(...this.drawing.marks()); }

  want(wanted) {
    this.wanted = wanted;
    if (!wanted?.image) this.photo = null;
    byId("photo-card").hidden = !this.photo;
    byId("crop").hidden = !wanted;
    byId("mask-words").textContent = "";
    if (wanted) this.show(wanted).catch(() => {});
    this.ready();
  }
  sayHint() {
    const { wanted } = this;
    const place = wanted?.image ? `${wanted.image.name}.` : wanted && `From ${clock(wanted.time)} of the video.`;
    const advice = wanted?.image && !wanted.box ? " Draw a box around the object in it: its surroundings help." : "";
    const more = this.kept.views.length && !wanted ? "Show it from another side, or ask." : "";
    byId("hint").textContent = wanted ? place + advice : more;
    byId("no-wish").hidden = Boolean(this.views.length);
  }
  showHeight() { byId("height-row").hidden = !byId("in-3d").checked; }

  // The crop at once, then what of it will be searched: the rest is darkened.
  async show(wanted) {
    const crop = await this.cut(wanted);
    if (this.wanted !== wanted) return;
    paint(crop);
    clearTimeout(this.previewTimer);
    this.previewTimer = setTimeout(async () => {
      if (this.wanted !== wanted) return;
      const found = await call("POST", `/videos/${this.videoId}/foreground`, this.subject([wanted])).catch(() => null);
      if (this.wanted !== wanted || !found) return;
      await darken(crop, wanted, found);
      byId("mask-words").textContent = found.level === 2 ? "No clear outline: the whole box is searched." : "The bright part is searched.";
    }, PREVIEW_AFTER_MS);
  }
  cut(wanted) {
    if (!wanted.image) return this.viewer.cut(wanted);
    const [x1, y1, x2, y2] = wanted.box || [0, 0, wanted.bitmap.width, wanted.bitmap.height];
    return createImageBitmap(wanted.bitmap, Math.round(x1), Math.round(y1), Math.max(1, Math.round(x2 - x1)), Math.max(1, Math.round(y2 - y1)));
  }

  // The form of a query: what it is about, with a box for each image and then for each moment of the video ...
  subject(views) {
    const form = new FormData();
    const images = views.filter(({ image }) => image), moments = views.filter(({ image }) => !image);
    for (const { image } of images) form.append("image", image);
    for (const { time } of moments) form.append("time_s", time.toFixed(4));
    for (const { box } of [...images, ...moments]) form.append("box", box ? sides(box) : "");
    return form;
  }
  // ... and what else is wanted.
  form() {
    const form = this.subject(this.views), until = parseTime(byId("until").value), height = byId("height").value.trim();
    if (until !== null) form.append("until_s", until.toFixed(4));
    if (byId("in-3d").checked) {
      form.append("in_3d", "true");
      if (height && !(Number(height) > 0)) throw new Error(`The height of the camera is a number of metres, such as 1.6, not “${height}”.`);
      if (height) form.append("camera_height_m", height);
    }
    return form;
  }
}

function paint(image) {
  const canvas = byId("crop"), shrink = Math.min(1, SHOWN_PX / Math.max(image.width, image.height));
  canvas.width = Math.max(1, image.width * shrink);
  canvas.height = Math.max(1, image.height * shrink);
  canvas.getContext("2d", READ).drawImage(image, 0, 0, canvas.width, canvas.height);
}

// Darkens what is not in the mask, which covers `found.box` of the whole image.
async function darken(crop, wanted, found) {
  const mask = new Image();
  mask.src = `data:image/png;base64,${found.mask}`;
  await mask.decode();
  paint(crop);
  const canvas = byId("crop"), { width, height } = canvas, pen = canvas.getContext("2d", READ);
  const whole = wanted.box || [0, 0, wanted.bitmap.width, wanted.bitmap.height];
  const sx = width / (whole[2] - whole[0]), sy = height / (whole[3] - whole[1]), [x1, y1, x2, y2] = found.box;
  const over = new OffscreenCanvas(width, height), shade = over.getContext("2d", READ);
  shade.drawImage(mask, (x1 - whole[0]) * sx, (y1 - whole[1]) * sy, (x2 - x1) * sx, (y2 - y1) * sy);
  const pixels = shade.getImageData(0, 0, width, height), shown = pen.getImageData(0, 0, width, height);
  for (let i = 0; i < pixels.data.length; i += 4) {
    const light = 0.28 + 0.72 * pixels.data[i] / 255;
    for (let c = 0; c < 3; c++) shown.data[i + c] *= light;
  }
  pen.putImageData(shown, 0, 0);
}
