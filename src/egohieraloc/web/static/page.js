// The page: chooses videos, asks, follows the work, shows the answer. What is chosen stands in the address, so
// that a reload shows the same again.
import { HINTS, candidates, seenAt, spanOf } from "./answer.js";
import { Ask } from "./ask.js";
import { Curve, curveLines } from "./curve.js";
import { Place } from "./place.js";
import { call, send } from "./requests.js";
import { fill, removeRow } from "./rows.js";
import { byId, clock, legend, make } from "./tools.js";
import { Viewer } from "./viewer.js";
import { answerTitle, answerWords, isOpen, percent, words } from "./words.js";

const LIST_EVERY_MS = 1500;
const state = {
  video: null, query: null, // query: with its answer, and what is known in space, once there are
  rank: -1, // which candidate is shown; -1: none
  opening: null, // the query that was chosen last; its answer may still be on its way
};
let events = null, listTimer = null;

const shown = () => candidates(state.query?.answer)[state.rank] || null;
const viewer = new Viewer({ viewAt, onTime: (time) => { curve.move(time); place.move(time); }, onDraft: (draft) => asking.want(draft) });
const asking = new Ask(viewer, remember);
const place = new Place();
const curve = new Curve(byId("curve"), {
  onPick: goTo,
  onStep: (samples) => goTo(viewer.time + samples / state.query.answer.sample_fps),
});

function goTo(time) {
  viewer.pause();
  viewer.seek(time);
}

// What to mark at a moment; masks only while the video stands still.
function viewAt(time, playing) {
  const seen = seenAt(state.query?.answer, state.rank, time);
  return seen && { ...seen, mask: playing ? null : seen.mask };
}

function trouble(error) {
  byId("trouble").hidden = !error;
  byId("trouble").textContent = error ? error.message : "";
}
// Runs something that may fail and says why it did.
const tried = (action) => async (...given) => {
  trouble(null);
  try {
    await action(...given);
  } catch (error) {
    trouble(error);
  }
};

function headline() {
  const { video, query } = state;
  let title = "Where was it last seen?";
  if (query && !query.answer) title = { waiting: "Waiting …", cancelled: "Cancelled", failed: "This did not work" }[query.status] || "Looking …";
  if (query?.answer) title = answerTitle(query, state.rank);
  byId("headline").textContent = title;
  const facts = video && [video.name, `${video.width} × ${video.height}`, clock(video.duration_s)];
  byId("subline").textContent = !video ? "Choose a video, draw a box around an object, and ask."
    : facts.join(" · ") + (video.warning ? ` · ${video.warning}` : "");
}

function showQuery() {
  const { query } = state;
  const answer = query?.answer;
  headline();
  byId("answer-card").hidden = !query;
  byId("curve-card").hidden = !answer;
  place.set(answer, query?.scenes?.get(state.rank));
  if (!query) return viewer.mark();
  const image = `/queries/${query.id}/thumbnail`;
  if (byId("answer-image").getAttribute("src") !== image) byId("answer-image").src = image;
  byId("answer-title").textContent = query.name || (answer ? "The answer" : "Your query");
  const progress = query.progress;
  byId("bar").hidden = byId("cancel").hidden = !isOpen(query);
  if (progress?.done) byId("bar").value = progress.done / Math.max(1, progress.total);
  else byId("bar").removeAttribute("value");
  byId("answer-words").textContent = answer ? answerWords(query, state.rank) : words(query);
  byId("hints").hidden = !answer || answer.found;
  byId("files").hidden = !answer;
  for (const link of byId("files").querySelectorAll("a")) link.href = `/queries/${query.id}/files/${link.dataset.file}`;
  byId("overlay-link").hidden = !answer?.found;
  byId("to-answer").hidden = !shown();
  const last = candidates(answer).length - 1;
  byId("not-this").hidden = last < 0 || (last === 0 && state.rank === 0);
  byId("not-this").textContent = state.rank < 0 ? "Show the best guess" : state.rank < last ? "Not this one" : "Back to the first";
  if (answer) showCurve(answer);
  place.move(viewer.time);
  viewer.mark();
}

function showCurve(answer) {
  const spans = !answer.found ? [] : candidates(answer).map(({ track }, rank) => // guesses are no appearances
    spanOf(answer, track[0].time_s, track.at(-1).time_s, rank === state.rank ? "chosen" : "passed"));
  curve.set({ scores: answer.curve, start_s: 0, end_s: state.video.duration_s, spans });
  curve.move(viewer.time);
  const entries = [...curveLines(answer.found), ["var(--mark)", "the moment shown", "line"]];
  if (answer.found) entries.push(["var(--accent-soft)", state.rank ? `candidate ${state.rank + 1}, shown` : "the answer"]);
  if (spans.some(({ name }) => name === "passed")) entries.push(["var(--other-soft)", "other candidates"]);
  byId("legend").replaceChildren(...legend(entries));
}

function goToAnswer() {
  const track = shown()?.track;
  if (track) goTo(track.at(-1).time_s); // where it was last
}

async function listVideos() {
  const videos = await call("GET", "/videos");
  fill(byId("videos"), videos.map((video) => ({
    id: video.id, image: `/videos/${video.id}/frame?time_s=0`, title: video.name,
    note: `${clock(video.duration_s)} · ${video.width} × ${video.height}`, current: video.id === state.video?.id,
    open: tried(() => openVideo(video)), remove: { label: `Remove ${video.name}`, act: tried(() => removeVideo(video)) },
  })));
  byId("demo-row").hidden = videos.length > 0;
  return videos;
}

// What is taken and where it stays, said before anything is chosen.
async function sayLimits() {
  const { max_video_bytes: most } = await call("GET", "/about");
  const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  byId("limits").textContent = `Up to ${+(most / 1e9).toPrecision(2)} GB. ${here ? "It stays on this computer." : `It is kept on ${location.hostname}.`}`;
}

const asked = (query) => new Date(1000 * query.created_at).toLocaleTimeString([], { timeStyle: "short" });
async function listQueries() {
  clearTimeout(listTimer);
  const video = state.video;
  if (!video) return;
  const queries = await call("GET", `/videos/${video.id}/queries`);
  if (video !== state.video) return;
  byId("queries-card").hidden = !queries.length;
  fill(byId("queries"), queries.map((query) => ({
    id: query.id, image: `/queries/${query.id}/thumbnail`, title: query.name ? `${query.name}: ${words(query)}` : words(query),
    remove: { label: `Delete the question of ${asked(query)}`, act: tried(() => removeQuery(query)) },
    note: `asked at ${asked(query)}${query.in_3d ? ", in space" : ""}`,
    current: query.id === state.query?.id, open: tried(() => openQuery(query.id)),
  })));
  if (queries.some(isOpen)) {
    listTimer = setTimeout(() => listQueries().catch(() => {}), LIST_EVERY_MS);
  }
}

function remember() {
  const { video, query } = state, { wanted } = asking;
  const drawn = wanted?.box && !wanted.image && [wanted.time, ...wanted.box].map((value) => value.toFixed(3)).join(" ");
  const parts = { v: video?.id, q: query?.id, n: query?.answer ? state.rank : null, b: drawn };
  const kept = Object.entries(parts).filter(([, value]) => value !== undefined && value !== null);
  history.replaceState(null, "", kept.length ? `#${new URLSearchParams(kept)}` : location.pathname);
}

// Shows a video, or with null none.
async function openVideo(video) {
  events?.close();
  Object.assign(state, { video, query: null, rank: -1, opening: null });
  byId("watch").hidden = byId("ask-card").hidden = !video;
  viewer.open(video);
  asking.open(video?.id);
  showQuery();
  byId("queries-card").hidden = true;
  fill(byId("queries"), []);
  await Promise.all([listVideos(), listQueries()]);
}

async function openQuery(id, rank = null) {
  events?.close();
  state.opening = id;
  const query = await call("GET", `/queries/${id}`);
  rank ??= query.found ? 0 : -1;
  await loadScene(query, rank);
  if (state.opening !== id) return;
  Object.assign(state, { query, rank });
  showQuery();
  remember();
  if (query.answer) goToAnswer();
  else if (isOpen(query)) follow(id);
  await listQueries();
}

// What is known in space of the answer or of another candidate.
async function loadScene(query, rank) {
  query.scenes ??= new Map();
  const other = query.answer?.found ? rank - 1 : rank; // among the alternatives
  if (!query.answer?.place || query.scenes.has(rank) || (other >= 0 && !query.answer.alternatives[other]?.place)) return;
  query.scenes.set(rank, await call("GET", `/queries/${query.id}/scene${other >= 0 ? `?candidate=${other}` : ""}`));
}

function follow(id) {
  const source = events = new EventSource(`/queries/${id}/events`);
  source.addEventListener("progress", (event) => {
    if (state.query?.id !== id) return source.close();
    state.query = JSON.parse(event.data);
    showQuery();
  });
  source.addEventListener("end", tried(async () => {
    source.close();
    if (state.query?.id === id) await openQuery(id);
  }));
}

async function ask() {
  const button = byId("ask");
  if (!asking.views.length || button.getAttribute("aria-busy") === "true") return;
  const form = asking.form(), { video } = state;
  button.setAttribute("aria-busy", "true"); // not disabled: it keeps the focus
  try {
    const query = await call("POST", `/videos/${video.id}/queries`, form);
    await openQuery(query.id);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

async function addDemo() {
  byId("demo").setAttribute("aria-busy", "true");
  try {
    await openVideo(await call("POST", "/demo"));
  } finally {
    byId("demo").removeAttribute("aria-busy");
  }
}

async function nameQuery() {
  const query = state.query, name = prompt("A name for this question:", query.name || "");
  if (name === null) return;
  const form = new FormData();
  form.append("name", name);
  const { name: given } = await call("PATCH", `/queries/${query.id}`, form);
  if (state.query?.id === query.id) state.query.name = given;
  showQuery();
  await listQueries();
}

async function removeQuery(query) {
  if (!confirm("Delete this question and its answer?")) return;
  if (state.opening === query.id || state.query?.id === query.id) {
    events?.close();
    Object.assign(state, { query: null, rank: -1, opening: null });
    showQuery();
    remember();
  }
  await call("DELETE", `/queries/${query.id}?forget=true`).finally(listQueries);
}

async function upload(file) {
  const { max_video_bytes: most } = await call("GET", "/about");
  if (file.size > most) throw new Error(`${file.name} is too large: at most ${Math.round(most / 1e6)} MB are taken.`);
  byId("upload").hidden = false;
  const say = (share) => {
    byId("upload-words").textContent = share < 1 ? `Sending ${file.name}: ${percent(share)}` : `Opening ${file.name}`;
    if (share < 1) byId("upload-bar").value = share;
    else byId("upload-bar").removeAttribute("value");
  };
  say(0);
  try {
    await openVideo(await send(`/videos?name=${encodeURIComponent(file.name)}`, file, say));
  } finally {
    byId("upload").hidden = true;
  }
}

async function removeVideo(video) {
  if (!confirm(`Remove ${video.name} and all queries about it?`)) return;
  if (state.video?.id === video.id) await openVideo(null);
  removeRow(byId("videos").querySelector(`[data-id="${video.id}"]`));
  await call("DELETE", `/videos/${video.id}`).finally(listVideos);
}

async function notThisOne() {
  const { query } = state, rank = (state.rank + 1) % candidates(query.answer).length;
  await loadScene(query, rank);
  if (state.query !== query) return;
  state.rank = rank;
  showQuery();
  remember();
  goToAnswer();
}

// A video, or images of one object.
const receive = tried(async (files) => {
  const images = files.filter(({ type }) => type.startsWith("image/"));
  if (images.length && !state.video) throw new Error("Choose a video first, then an image of the object.");
  for (const [i, image] of images.entries()) {
    if (i) await asking.keep();
    await asking.take(image);
  }
  if (files.length > images.length) await upload(files.find((file) => !images.includes(file)));
});

function listen() {
  byId("ask").addEventListener("click", tried(ask));
  byId("cancel").addEventListener("click", tried(async () => {
    const { id } = state.query, button = byId("cancel");
    Object.assign(button, { disabled: true, textContent: "Cancelling …" });
    try {
      await call("DELETE", `/queries/${id}`);
    } finally {
      Object.assign(button, { disabled: false, textContent: "Cancel" });
    }
    if (state.query?.id === id) await openQuery(id);
  }));
  byId("demo").addEventListener("click", tried(addDemo));
  byId("name").addEventListener("click", tried(nameQuery));
  byId("hints").append(...HINTS.map((hint) => make("li", {}, hint)));
  byId("to-answer").addEventListener("click", goToAnswer);
  byId("not-this").addEventListener("click", tried(notThisOne));
  for (const id of ["video-file", "image-file"]) {
    byId(id).addEventListener("change", async (event) => {
      const files = [...event.target.files];
      event.target.value = "";
      await receive(files);
    });
  }
  const over = (on) => (event) => {
    event.preventDefault();
    document.body.classList.toggle("dropping", on);
  };
  addEventListener("dragover", over(true));
  addEventListener("dragleave", over(false));
  addEventListener("drop", (event) => { over(false)(event); receive([...event.dataTransfer.files]); });
}

listen();
await tried(async () => {
  const [videos] = await Promise.all([listVideos(), sayLimits()]);
  const kept = new URLSearchParams(location.hash.slice(1));
  const video = videos.find(({ id }) => id === kept.get("v"));
  if (!video) return;
  await openVideo(video);
  const [time, ...box] = (kept.get("b") || "").split(" ").map(Number);
  if (box.length === 4) {
    viewer.seek(time);
    viewer.setDraft(box);
  }
  if (kept.get("q")) await openQuery(kept.get("q"), kept.has("n") ? Number(kept.get("n")) : null);
})();
