// The report: shows the JSON value that stands in the page, see html.py.
import { HINTS, candidates, confidence, fromTo, halfSample, spanOf } from "./answer.js";
import { Curve, curveLines } from "./curve.js";
import { imageOver, marks, outline } from "./marks.js";
import { doubtItems, sceneLegend, sceneWords, startScene } from "./scene.js";
import { byId, clock, draw, legend, make, showPlaying } from "./tools.js";

const FILM_FIRST = 12, MAPS_SHOWN = 4;
const MAPS = [
  ["foreground", "Foreground O: similarity to the query"],
  ["likelihood", "Likelihood Z: query rather than its background"],
  ["response", "Filter response: correlation filter"],
  ["location", "Location: QAM, response under the ellipse"],
  ["mask", "Mask: RAM"],
];
const FACTORS = ["weight", "semantic", "depth", "reprojection", "baseline"];
const data = JSON.parse(byId("data").textContent);
const { result, thumbnails, scene } = data;
const { video, curve } = result;
const times = curve.time_s, count = times.length;
const tracks = candidates(result).map(({ track }) => track);
const answer = result.found ? result.track : null;
thumbnails.forEach((uri, sample, all) => { all[sample] = uri || all[sample - 1]; });

// At most so many of a list, evenly taken.
const spread = (list, most) => (list.length <= most ? list
  : Array.from({ length: most }, (_, i) => list[Math.round(i * (list.length - 1) / (most - 1))]));

// What is known of a sample, the answer last, which is drawn over the others.
const seenIn = (sample) => tracks.filter((each) => each[0].sample <= sample && sample <= each.at(-1).sample)
  .map((track) => ({ ...track[sample - track[0].sample], other: track !== answer })).reverse();

// A frame with what was seen in it, or a part of it: [left, top, width, height].
function frame(sample, part = [0, 0, video.width, video.height]) {
  const svg = draw("svg", { class: "alone", viewBox: part.join(" "), role: "img", "aria-label": `Frame at ${clock(times[sample])}` });
  svg.style.aspectRatio = `${video.width} / ${video.height}`;
  if (thumbnails.length) svg.append(imageOver([0, 0, video.width, video.height], thumbnails[sample]));
  for (const seen of seenIn(sample)) svg.append(...marks(seen, markOf(seen)));
  return svg;
}
const markOf = (seen) => (!answer ? "mark guess" : seen.other ? "mark other" : "mark");

// The part of a frame around a box, never less than a third of the frame.
function around([x1, y1, x2, y2]) {
  const scale = Math.min(1, Math.max((x2 - x1) * 2.2 / video.width, (y2 - y1) * 2.2 / video.height, 0.34));
  const width = scale * video.width, height = scale * video.height;
  const left = Math.max(0, Math.min(video.width - width, (x1 + x2 - width) / 2));
  const top = Math.max(0, Math.min(video.height - height, (y1 + y2 - height) / 2));
  return [left, top, width, height];
}

const listeners = [];
let current = -1;
function show(sample) {
  sample = Math.max(0, Math.min(count - 1, sample));
  if (sample === current || !count) return;
  current = sample;
  byId("viewer").replaceChildren(frame(sample));
  byId("moment").textContent =
    `${clock(times[sample])} · frame ${curve.frame[sample]} · score ${curve.smooth[sample].toFixed(2)}` +
    (!seenIn(sample).length ? " · no box" : answer ? "" : " · best guess, too unsure to be an answer");
  for (const listener of listeners) listener(sample);
}
function facts(list, entries) {
  for (const [name, value] of entries) list.append(make("dt", {}, name), make("dd", {}, value));
}

function header() {
  const name = video.path.split(/[\\/]/).pop();
  byId("headline").textContent = answer ? `Last seen from ${fromTo(answer, "to")}` : "Not seen in this video";
  byId("subline").textContent = [answer ? confidence(result) : result.reason.replace(/\.$/, ""), name,
    `${video.width} × ${video.height}`, `${count} samples at ${Number(result.sample_fps.toFixed(2))} per second`].join(" · ");
  document.title = `${byId("headline").textContent} · ${name}`;
  const notes = [...data.notes, ...(answer ? [] : HINTS)];
  byId("notes").hidden = !notes.length;
  byId("notes").append(...notes.map((note) => make("li", {}, note)));
}

function queryCard() {
  const { box, foreground, seen_at_s: seenAt } = result.query;
  const [x1, y1, x2, y2] = data.query.part;
  const svg = draw("svg", { viewBox: `${x1} ${y1} ${x2 - x1} ${y2 - y1}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const entries = [];
  if (foreground) {
    const levels = ["clear outline", "soft outline", "no outline, box only"];
    const mask = make("img", { class: "query-mask", src: `data:image/png;base64,${foreground.mask}`, alt: "What of it is searched, in white" });
    entries.push(["Searched", mask], ["Mask", `level ${foreground.level}: ${levels[foreground.level]}`], ["Mask quality", foreground.quality.toFixed(2)]);
  }
  if (seenAt !== null) entries.push(["Seen at", clock(seenAt)]);
  if (x1 < box[0] || y1 < box[1] || x2 > box[2] || y2 > box[3]) svg.append(...outline(box, "mark"));
  byId("query").append(make("img", { src: data.query.image, alt: "The object that was searched for", draggable: "false" }), svg);
  facts(byId("query-facts"), entries);
}

function curveCard() {
  const spans = !answer ? [] : tracks.map((track) => // guesses are no appearances
    spanOf(result, track[0].time_s, track.at(-1).time_s, track === answer ? "chosen" : "passed"));
  const nearest = (time) => times.reduce((best, each, i) => (Math.abs(each - time) < Math.abs(times[best] - time) ? i : best), 0);
  const shown = new Curve(byId("curve"), {
    onPick: (time) => show(nearest(time)),
    onStep: (samples) => show(current + samples),
  });
  const half = halfSample(result);
  if (count) shown.set({ scores: curve, start_s: times[0] - half, end_s: times.at(-1) + half, spans });
  listeners.push((sample) => shown.move(times[sample]));
  const entries = curveLines(Boolean(answer));
  if (answer) entries.push(["var(--accent-soft)", "the answer"]);
  if (spans.some(({ name }) => name === "passed")) entries.push(["var(--other-soft)", "other candidates"]);
  byId("legend").append(...legend(entries));
  chips();
}
// A button for each candidate, in the order of time.
function chips() {
  const inTime = candidates(result).sort((a, b) => a.track[0].time_s - b.track[0].time_s);
  byId("intervals").append(...inTime.map((each) => {
    const isAnswer = each.track === answer;
    const button = make("button", { type: "button", class: isAnswer ? "chosen" : answer ? "passed" : "guess" },
      `${fromTo(each.track)}, ${isAnswer ? "the answer" : confidence(each)}`);
    button.addEventListener("click", () => show(each.track.at(-1).sample));
    return button;
  }));
}

function controls() {
  byId("previous").addEventListener("click", () => show(current - 1));
  byId("next").addEventListener("click", () => show(current + 1));
  byId("to-answer").hidden = !answer;
  byId("to-answer").addEventListener("click", () => show(answer.at(-1).sample));
  let timer = null;
  function stop() {
    clearInterval(timer);
    timer = null;
    showPlaying(byId("play"), false);
  }
  byId("play").addEventListener("click", () => {
    if (timer) return stop();
    if (current === count - 1) show(0);
    timer = setInterval(() => { current < count - 1 ? show(current + 1) : stop(); }, 1000 / result.sample_fps);
    showPlaying(byId("play"), true);
  });
}

function film() {
  if (!answer || !thumbnails.length) return;
  byId("film-card").hidden = false;
  function fillWith(chosen) {
    byId("film").replaceChildren(...chosen.map(({ sample, time_s: time, score, box }) => {
      const words = make("span", {}, make("span", {}, clock(time)), make("span", {}, score.toFixed(2)));
      const image = make("div", { class: "image" }, frame(sample, around(box)));
      const button = make("button", { type: "button", "data-sample": sample, "aria-current": sample === current }, image, words);
      button.addEventListener("click", () => show(sample));
      return button;
    }));
  }
  fillWith(spread(answer, FILM_FIRST));
  const more = byId("film-all");
  more.hidden = answer.length <= FILM_FIRST;
  more.textContent = `Show all ${answer.length} frames`;
  more.addEventListener("click", () => { fillWith(answer); more.hidden = true; });
  listeners.push((sample) => {
    for (const button of byId("film").children) button.setAttribute("aria-current", Number(button.dataset.sample) === sample);
  });
}

function space() {
  if (!scene) return;
  byId("scene-card").hidden = false;
  byId("scene-words").textContent = sceneWords(scene);
  byId("scene-doubts").append(...doubtItems(scene));
  const canvas = byId("scene");
  if (!scene.path.length) {
    canvas.parentElement.parentElement.hidden = true;
    return;
  }
  const view = startScene(canvas, scene);
  listeners.push((sample) => view.select(curve.frame[sample]));
  byId("scene-legend").append(...legend(sceneLegend(scene)));
  if (scene.views.length) factors();
}
function factors() {
  const short = { reprojection: "reproj." };
  const largest = Math.max(...scene.views.map((view) => view.weight), 1e-9);
  const sampleOfFrame = new Map(curve.frame.map((number, i) => [number, i]));
  const head = make("tr", {}, make("th", {}, "time"), ...FACTORS.map((name) => make("th", { title: name }, short[name] || name)));
  const rows = scene.views.map((view) => {
    const sample = sampleOfFrame.get(view.frame);
    const jump = make("button", { type: "button" }, sample === undefined ? `#${view.frame}` : clock(times[sample]));
    if (sample !== undefined) jump.addEventListener("click", () => show(sample));
    const cells = FACTORS.map((name) => {
      const level = make("i");
      level.style.width = `${100 * Math.max(0, Math.min(1, name === "weight" ? view.weight / largest : view[name]))}%`;
      return make("td", { title: `${name} ${view[name].toFixed(3)}` }, make("div", { class: `bar ${name}`, role: "img", "aria-label": `${name} ${view[name].toFixed(2)}` }, level));
    });
    return make("tr", { "data-frame": view.frame }, make("td", {}, jump), ...cells);
  });
  byId("views").append(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  listeners.push((sample) => {
    for (const row of rows) row.setAttribute("aria-current", Number(row.dataset.frame) === curve.frame[sample]);
  });
}

function maps() {
  byId("maps-card").hidden = !result.maps.length;
  const figure = (image, caption) => make("figure", {}, make("div", { class: "image" }, image), make("figcaption", {}, caption));
  for (const entry of spread(result.maps, MAPS_SHOWN)) {
    const [cx, cy, rx, ry] = entry.ellipse, [dx, dy] = entry.drift, searched = frame(entry.sample);
    searched.append(draw("ellipse", { class: "mark ellipse", cx, cy, rx, ry }),
      draw("line", { class: "mark ellipse", x1: cx - dx, y1: cy - dy, x2: cx, y2: cy }));
    const figures = MAPS.map(([name, caption]) => {
      const image = make("img", { class: "map", src: `data:image/png;base64,${entry[name]}`, alt: caption });
      image.style.aspectRatio = `${video.width} / ${video.height}`;
      return figure(image, caption);
    });
    const caption = `Frame at ${clock(times[entry.sample])}, the ellipse searched and its drift`;
    byId("maps").append(make("div", { class: "map-row" }, figure(searched, caption), ...figures));
  }
}

function how() {
  const longest = Math.max(...data.timings_s.map(([, seconds]) => seconds), 1e-9);
  for (const [name, seconds] of data.timings_s) {
    const level = make("i");
    level.style.width = `${100 * seconds / longest}%`;
    const text = seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`;
    byId("timings").append(make("span", {}, name), make("div", { class: "bar weight" }, level), make("b", {}, text));
  }
  facts(byId("versions"), Object.entries(result.versions));
}

function overlay() {
  if (!data.overlay) return;
  byId("overlay-card").hidden = false;
  byId("overlay").poster = thumbnails[answer.at(-1).sample];
  byId("overlay").src = data.overlay;
}

header();
queryCard();
curveCard();
controls();
film();
space();
overlay();
maps();
how();
if (answer) show(answer.at(-1).sample); // where it was last
else show(tracks.length ? tracks[0].at(-1).sample : curve.smooth.indexOf(Math.max(...curve.smooth)));
