// Boxes and masks over an image, as SVG elements in pixels of the image.
import { draw, make } from "./tools.js";

const GREEN = [34, 197, 94, 255];
const images = new WeakMap();

function rectangle([x1, y1, x2, y2]) {
  return { x: x1, y: y1, width: x2 - x1, height: y2 - y1 };
}

export function outline(box, name) {
  return [draw("rect", { class: "halo", rx: 2, ...rectangle(box) }), draw("rect", { class: name, rx: 2, ...rectangle(box) })];
}

// An image that covers a box.
export function imageOver(box, href, attributes = {}) {
  return draw("image", { href, ...rectangle(box), preserveAspectRatio: "none", ...attributes });
}

// Run lengths, column by column, zeros first, as an image that is clear where the object is not.
function maskImage({ size: [rows, columns], counts }) {
  const canvas = make("canvas", { width: columns, height: rows }), pen = canvas.getContext("2d");
  const pixels = pen.createImageData(columns, rows);
  let cell = 0;
  counts.forEach((count, run) => {
    for (const end = cell + count; cell < end; cell++) {
      if (run % 2) pixels.data.set(GREEN, 4 * ((cell % rows) * columns + Math.floor(cell / rows)));
    }
  });
  pen.putImageData(pixels, 0, 0);
  return canvas.toDataURL();
}

// The box and the mask, where there is one, of the object in a frame.
export function marks({ box, mask }, name) {
  if (!mask) return outline(box, name);
  if (!images.has(mask)) images.set(mask, maskImage(mask));
  return [imageOver(mask.box, images.get(mask), { class: "tint" }), ...outline(box, name)];
}
