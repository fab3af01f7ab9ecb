// Small objects every part of the page uses.
export const byId = (id) => document.getElementById(id);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
export const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const draw = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Entries of a legend, from [colour, text].
export const legend = (entries) => entries.map(([colour, text]) => {
  const swatch = make("i");
  swatch.style.background = colour;
  return make("li", {}, swatch, text);
});

export function clock(seconds) {
  const tenths = Math.round(seconds * 10);
  const minutes = Math.floor(tenths / 600);
  return `${minutes}:${((tenths % 600) / 10).toFixed(1).padStart(4, "0")}`;
}
export const percent = (value) => `${Math.round(100 * value)}\u00a0%`;
export function timeLeft(seconds) {
  if (seconds >= 90) return `about ${Math.round(seconds / 60)} min left`;
  return `about ${Math.max(1, Math.ceil(seconds))} s left`;
}

// A request that gives JSON, or fails with the server's own words.
export async function call(method, path, body) {
  let response;
  try {
    response = await fetch(path, { method, body });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.status === 204) return null;
  const value = await response.json();
  if (!response.ok) throw new Error(value.error);
  return value;
}

// Like `call` for a large file, telling how much of it was sent.
export function send(path, file, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = (event) => onProgress(event.loaded / event.total);
    request.onload = () => {
      if (request.status === 201) resolve(request.response);
      else reject(new Error(request.response?.error || `The server said ${request.status}.`));
    };
    request.onerror = () => reject(new Error("The video could not be sent. Is the server still running?"));
    request.send(file);
  });
}
