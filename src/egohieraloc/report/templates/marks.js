// Boxes and outlines of masks over an image, as SVG elements in pixels of the image. Nothing is tinted: people
// know their things by their colour.
import { draw } from "./tools.js";

const paths = new WeakMap();

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

// Run lengths, column by column, zeros first, as a function of row and column.
function decoded({ size: [rows, columns], counts }) {
  const cells = new Uint8Array(rows * columns);
  let cell = 0;
  counts.forEach((count, run) => {
    if (run % 2) cells.fill(1, cell, cell + count);
    cell += count;
  });
  return (row, column) => row >= 0 && column >= 0 && row < rows && column < columns && cells[column * rows + row] === 1;
}

// The border of a mask as an SVG path: the sides between inside and outside joined to loops, the object at their
// right, and drawn through the middles of the sides, so that steps become slopes.
function borderPath({ box: [left, top, right, bottom], size: [rows, columns], counts }) {
  const inside = decoded({ size: [rows, columns], counts }), next = new Map();
  const add = (x1, y1, x2, y2) => {
    const key = `${x1} ${y1}`;
    next.set(key, [...(next.get(key) || []), [x2, y2]]);
  };
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      if (!inside(row, column)) continue;
      if (!inside(row - 1, column)) add(column, row, column + 1, row);
      if (!inside(row, column + 1)) add(column + 1, row, column + 1, row + 1);
      if (!inside(row + 1, column)) add(column + 1, row + 1, column, row + 1);
      if (!inside(row, column - 1)) add(column, row + 1, column, row);
    }
  }
  const place = ([x1, y1], [x2, y2]) => {
    const x = left + (x1 + x2) / 2 * (right - left) / columns, y = top + (y1 + y2) / 2 * (bottom - top) / rows;
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  };
  const loops = [];
  while (next.size) {
    let at = next.keys().next().value.split(" ").map(Number);
    const middles = [];
    for (let ways = next.get(at.join(" ")); ways; ways = next.get(at.join(" "))) {
      const to = ways.pop();
      if (!ways.length) next.delete(at.join(" "));
      middles.push(place(at, to));
      at = to;
    }
    loops.push(`M${middles.join("L")}Z`);
  }
  return loops.join("");
}

// The box and the outline of the mask, where there is one, of the object in a frame.
export function marks({ box, mask }, name) {
  if (!mask) return outline(box, name);
  if (!paths.has(mask)) paths.set(mask, borderPath(mask));
  const d = paths.get(mask);
  return [draw("path", { class: "halo border", d }), draw("path", { class: `${name} border`, d }), ...outline(box, name)];
}
