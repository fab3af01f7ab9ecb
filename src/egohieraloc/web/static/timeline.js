// Videos and sightings over days: a row for each day, midnight to midnight, in the time they were recorded in.
import { draw, make } from "./tools.js";

const DAY_S = 86400, WIDTH = 1000, HEIGHT = 34, MOST_ROWS = 60;

// "2026-03-12T10:15:30.25+01:00": the day and the second of it as a clock there showed them.
export function recorded(text) {
  const [day, time] = text.split("T");
  const [hours, minutes, seconds] = time.replace(/(Z|[+-]\d\d:?\d\d)$/, "").split(":").map(Number);
  return { day, second: 3600 * hours + 60 * minutes + (seconds || 0) };
}
export function dayName(day, length = "long") {
  const word = (part) => new Date(`${day}T12:00:00Z`).toLocaleDateString("en-GB", { [part]: length, timeZone: "UTC" });
  return `${word("weekday")}, ${Number(day.slice(8))} ${word("month")} ${day.slice(0, 4)}`;
}
export function timeOfDay(text, withSeconds = true) {
  const { second } = recorded(text);
  const parts = [Math.floor(second / 3600), Math.floor(second / 60) % 60, Math.floor(second % 60)];
  return parts.slice(0, withSeconds ? 3 : 2).map((part) => String(part).padStart(2, "0")).join(":");
}

const nextDay = (day) => new Date(Date.parse(`${day}T12:00:00Z`) + 1000 * DAY_S).toISOString().slice(0, 10);

// Parts of a span by day: what goes on past midnight goes on in the next row.
function byDay(start, seconds) {
  const parts = [];
  let { day, second } = recorded(start), left = Math.max(seconds, 0.001);
  while (left > 0) {
    const length = Math.min(left, DAY_S - second);
    parts.push({ day, from: second, length });
    left -= length;
    second = 0;
    day = nextDay(day);
  }
  return parts;
}

function bar(kind, { from, length }, title) {
  const x = from / DAY_S * WIDTH, width = Math.max(length / DAY_S * WIDTH, kind === "recording" ? 3 : 4);
  const [y, height] = kind === "recording" ? [12, 12] : [6, 24];
  return draw("rect", { class: kind, x: Math.min(x, WIDTH - width), y, width, height, rx: 2 }, draw("title", {}, title));
}

// Fills `element` with the newest days and those of the sightings; `act(rank)` is called for the mark that is clicked.
export function showDays(element, videos, sightings, act) {
  const rows = new Map();
  const row = (day) => {
    if (!rows.has(day)) rows.set(day, []);
    return rows.get(day);
  };
  for (const video of videos) {
    for (const part of byDay(video.start, video.duration_s)) row(part.day).push(bar("recording", part, video.name));
  }
  sightings.forEach((sighting, rank) => {
    const seconds = sighting.end_s - sighting.start_s;
    for (const part of byDay(sighting.seen_from, seconds)) {
      const mark = bar(rank === 0 ? "seen" : "seen other", part, `${sighting.video.name}, ${timeOfDay(sighting.seen_from)}`);
      mark.addEventListener("click", () => act(rank));
      row(part.day).push(mark);
    }
  });
  const isSeen = (mark) => mark.classList.contains("seen");
  const days = [...rows.keys()].sort().reverse().filter((day, i) => i < MOST_ROWS || rows.get(day).some(isSeen));
  element.replaceChildren(...days.map((day) => {
    const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": dayName(day) });
    for (let hour = 0; hour <= 24; hour += 6) {
      svg.append(draw("line", { class: "axis", x1: hour / 24 * WIDTH, x2: hour / 24 * WIDTH, y1: 2, y2: HEIGHT - 2 }));
    }
    const order = (kind) => (kind === "recording" ? 0 : kind === "seen other" ? 1 : 2);
    svg.append(...rows.get(day).sort((a, b) => order(a.getAttribute("class")) - order(b.getAttribute("class"))));
    return make("div", { class: "day", "data-day": day }, make("span", { class: "day-name" }, dayName(day, "short")), svg);
  }));
  if (days.length) {
    const hours = ["0:00", "6:00", "12:00", "18:00", "24:00"].map((text) => make("span", {}, text));
    element.append(make("div", { class: "hours", "aria-hidden": "true" }, ...hours));
  }
}
