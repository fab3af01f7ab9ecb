// Small tools of report and page.
export const byId = (id) => document.getElementById(id);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
export const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const draw = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Entries of a legend, from [colour, text] or, for lines, [colour, text, "line"].
export const legend = (entries) => entries.map(([colour, text, kind = ""]) => {
  const swatch = make("i", { class: kind });
  swatch.style.background = colour;
  return make("li", {}, swatch, text);
});

export function clock(seconds) {
  const tenths = Math.round(seconds * 10);
  const minutes = Math.floor(tenths / 600), hours = Math.floor(minutes / 60);
  const start = hours ? `${hours}:${String(minutes % 60).padStart(2, "0")}` : minutes;
  return `${start}:${((tenths % 600) / 10).toFixed(1).padStart(4, "0")}`;
}

// What the button says while something plays and while it does not.
export function showPlaying(button, playing) {
  button.textContent = playing ? "❚❚" : "▶";
  button.setAttribute("aria-label", playing ? "Pause" : "Play");
  button.setAttribute("aria-pressed", playing);
}
