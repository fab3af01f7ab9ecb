// Lists of videos and queries.
import { make } from "./tools.js";

function row({ id, image, open, remove }) {
  const text = make("span", {}, make("span", { class: "title" }), make("span", { class: "quiet" }));
  const button = make("button", { type: "button", class: "row" }, make("img", { src: image, alt: "" }), text);
  button.addEventListener("click", open);
  const line = make("li", { "data-id": id }, button);
  if (remove) {
    const cross = make("button", { type: "button", class: "remove", "aria-label": remove.label }, "✕");
    cross.addEventListener("click", remove.act);
    line.append(cross);
  }
  return line;
}
export function removeRow(line) {
  line.querySelector("img").removeAttribute("src"); // its image may still be on its way
  line.remove();
}
// Brings a list up to date. A row that stays keeps its elements, so that a click that has begun or the focus is
// not lost.
export function fill(list, entries) {
  const old = new Map([...list.children].map((line) => [line.dataset.id, line]));
  for (const [id, line] of old) if (!entries.some((entry) => entry.id === id)) removeRow(line);
  entries.forEach((entry, i) => {
    const line = old.get(entry.id) || row(entry);
    if (list.children[i] !== line) list.insertBefore(line, list.children[i] || null);
    line.querySelector(".title").textContent = entry.title;
    line.querySelector(".quiet").textContent = entry.note;
    line.querySelector(".row").setAttribute("aria-current", entry.current);
  });
}
