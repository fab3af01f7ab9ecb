// The library: all videos by date, a question to all or some of them, saved objects, answers over days.
import { dayName, recorded, showDays, timeOfDay } from "./timeline.js";
import { byId, clock, draw, legend, make } from "./tools.js";
import { showMaps } from "./maps.js";
import { call } from "./requests.js";
import { Views } from "./views.js";
import { fill } from "./rows.js";
import { isOpen, words } from "./words.js";

const LOOK_EVERY_MS = 400, LIST_EVERY_MS = 15_000;
const state = {
  videos: [], chosen: new Set(),
  questions: [], question: null, // answered ones, and the one that is shown
  sending: false, awaited: null, // the question on its way whose answer will be shown
};
const views = new Views(byId("views"), showViews);

const tried = (act) => async (...words) => {
  byId("trouble").hidden = true;
  try {
    return await act(...words);
  } catch (error) {
    byId("trouble").textContent = error.message;
    byId("trouble").hidden = false;
    return null;
  }
};

const thumbnail = (video, time_s = 0) => `/memory/videos/${video.id}/thumbnail?time_s=${time_s.toFixed(2)}`;
const when = (text) => `${dayName(recorded(text).day)}, ${timeOfDay(text)}`;
const shortly = (text) => `${dayName(recorded(text).day, "short")}, ${timeOfDay(text)}`; // in narrow lists

function showViews() {
  const some = views.entries.length > 0;
  byId("ask").disabled = byId("save").disabled = !some;
  byId("clear").hidden = !some;
}

async function listVideos() {
  const videos = await call("GET", "/memory/videos");
  if (JSON.stringify(videos) === JSON.stringify(state.videos) && videos.length) return; // what is clicked stays
  state.videos = videos;
  state.chosen = new Set([...state.chosen].filter((id) => state.videos.some((video) => video.id === id)));
  byId("no-videos").hidden = state.videos.length > 0;
  byId("videos").replaceChildren(...[...state.videos].reverse().map(shot));
  showChosen();
  showTimeline();
}

function shot(video) {
  const box = make("input", { type: "checkbox", "aria-label": `Ask only chosen videos: ${video.name}` });
  box.checked = state.chosen.has(video.id);
  box.addEventListener("change", () => {
    if (box.checked) state.chosen.add(video.id);
    else state.chosen.delete(video.id);
    showChosen();
  });
  const notes = [clock(video.duration_s), video.camera && `camera ${video.camera}`, !video.ready && "being added",
    !video.exists && "the file is gone or another one", video.start_origin === "file date" && "time from the file's date"].filter(Boolean);
  const image = video.ready ? make("img", { src: thumbnail(video), alt: "", loading: "lazy" }) : make("span", { class: "none" });
  const text = make("span", {}, make("b", {}, when(video.start)), make("span", { class: "title" }, video.name), make("span", { class: "quiet" }, notes.join(" · ")));
  const cross = make("button", { type: "button", class: "remove", "aria-label": `Remove ${video.name}` }, "✕");
  cross.addEventListener("click", tried(() => removeVideo(video)));
  return make("li", { "data-id": video.id }, make("label", {}, box, image, text), cross);
}

function showChosen() {
  const count = state.chosen.size;
  byId("chosen-words").hidden = !state.videos.length;
  byId("chosen-words").textContent = count ? `${count} of ${state.videos.length} are asked.` : "All are asked, unless you choose some.";
}

async function removeVideo(video) {
  const also = video.camera ? "The recording is deleted." : "Your file stays where it is.";
  if (!confirm(`Forget ${video.name} and what it answered? ${also}`)) return;
  await call("DELETE", `/memory/videos/${video.id}`);
  if (state.question?.sightings.some((sighting) => sighting.video.id === video.id)) showQuestion(null);
  await Promise.all([listVideos(), listQuestions()]);
}

async function listObjects() {
  const objects = await call("GET", "/memory/objects");
  byId("no-objects").hidden = objects.length > 0;
  byId("some-objects").hidden = !objects.length;
  fill(byId("objects"), objects.map(({ name, views: count, last_seen }) => ({
    id: name, image: `/memory/objects/${encodeURIComponent(name)}/thumbnail`, title: name,
    note: `${count} image${count === 1 ? "" : "s"}${last_seen ? `, last seen ${shortly(last_seen)}` : ""}`, current: false,
    open: tried(() => ask(name)), remove: { label: `Forget ${name}`, act: tried(() => removeObject(name)) },
  })));
}

const listMaps = async () => showMaps(await call("GET", "/memory/maps"), when);

async function removeObject(name) {
  if (!confirm(`Forget ${name} and its images?`)) return;
  await call("DELETE", `/memory/objects/${encodeURIComponent(name)}`);
  await Promise.all([listObjects(), listQuestions()]);
}

async function saveObject() {
  const name = prompt("Save under which name?");
  if (!name) return;
  const form = new FormData();
  form.append("name", name);
  views.fill(form);
  await call("POST", "/memory/objects", form);
  await listObjects();
}

// What was asked before, also elsewhere; places of objects are from these answers. One listing after the other,
// so that an older one never comes last.
let listing = Promise.resolve();
const listQuestions = () => (listing = listing.catch(() => {}).then(loadQuestions));

async function loadQuestions() {
  const questions = await call("GET", "/memory/questions");
  if (JSON.stringify(questions) === JSON.stringify(state.questions)) return;
  state.questions = questions;
  byId("questions-card").hidden = !questions.length;
  fill(byId("questions"), questions.map((question) => ({
    id: String(question.id), image: `/memory/questions/${question.id}/thumbnail`, title: title(question),
    note: [question.object_name, `asked ${shortly(question.asked_at)}`, question.until && `only before ${shortly(question.until)}`].filter(Boolean).join(", "),
    current: question.id === state.question?.id, open: () => openQuestion(question.id, true),
    remove: { label: `Forget question ${question.id}`, act: tried(() => removeQuestion(question)) },
  })));
  await listMaps();
}

function openQuestion(id, chosen = false) {
  state.awaited = null;
  if (chosen) byId("headline").scrollIntoView({ block: "nearest" });
  showQuestion(state.questions.find((question) => question.id === id) || null);
}

async function removeQuestion(question) {
  if (!confirm("Forget this question and its answer?")) return;
  await call("DELETE", `/memory/questions/${question.id}`);
  if (state.question?.id === question.id) showQuestion(null);
  await listQuestions();
}

const title = ({ found, sightings: [first] }) => (found && first ? shortly(first.seen_until) : found ? "Its video was removed" : "Not seen");

async function ask(name = null) {
  if (state.sending) return; // a second click
  const form = new FormData();
  if (name) form.append("object_name", name);
  else views.fill(form);
  if (byId("in-3d").checked) form.append("in_3d", "true");
  if (byId("until").value) form.append("until", byId("until").value);
  if (state.chosen.size) form.append("videos", [...state.chosen].join(","));
  state.sending = true;
  const entry = await call("POST", "/memory/questions", form).finally(() => { state.sending = false; });
  showQuestion(null);
  await follow(entry);
}

// Shows how far a question is, and its answer unless another was opened meanwhile.
async function follow(entry) {
  state.awaited = entry.id;
  const said = make("span", {}), bar = make("progress", { max: 1, "aria-label": "Progress" });
  const cancel = make("button", { type: "button" }, "Cancel");
  cancel.addEventListener("click", tried(() => call("DELETE", `/memory/asks/${entry.id}`)));
  const line = make("li", {}, said, cancel, bar);
  byId("asks").append(line);
  byId("asks-card").hidden = false;
  byId("asks-card").scrollIntoView({ block: "nearest" });
  try {
    while (isOpen(entry)) {
      said.textContent = `${entry.object_name ? `${entry.object_name}: ` : ""}${words(entry)}`;
      if (entry.progress) bar.value = entry.progress.done / Math.max(1, entry.progress.total);
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
      entry = await call("GET", `/memory/asks/${entry.id}`);
    }
  } finally {
    line.remove();
    byId("asks-card").hidden = !byId("asks").children.length;
  }
  if (entry.status === "failed") throw new Error(entry.message);
  await Promise.all([listQuestions(), listObjects()]);
  if (entry.status === "done" && state.awaited === entry.id) openQuestion(entry.question);
}

// Shows a question that was answered, or with null none.
function showQuestion(question) {
  state.question = question;
  const sightings = question?.sightings || [];
  byId("answer-card").hidden = !question;
  byId("headline").textContent = !question ? "Where was it last seen, anywhere?" : question.found && sightings.length ? `Last seen on ${when(sightings[0].seen_until)}` : "Not seen";
  byId("answer-words").textContent = question && !sightings.length ? question.message : "";
  byId("notes").textContent = (sightings.length && question.notes) || ""; // without a sighting the message is shown
  byId("notes").hidden = !byId("notes").textContent;
  byId("shown").hidden = !sightings.length;
  byId("files").hidden = !sightings[0]?.box || !question.message.includes(sightings[0].video.name); // else its video was removed
  for (const link of byId("files").querySelectorAll("a")) link.href = `/memory/questions/${question?.id}/files/${link.dataset.file}`;
  history.replaceState(null, "", question ? `#${question.id}` : location.pathname); // a reload shows it again
  fill(byId("sightings"), sightings.map((sighting, rank) => ({
    id: `${question.id} ${rank} ${sighting.video.id}`, image: thumbnail(sighting.video, sighting.shown_s), title: when(sighting.seen_until),
    note: `${!question.found || !sighting.box ? "perhaps" : rank ? "also" : "last"} in ${sighting.video.name}`, current: rank === 0,
    open: () => showSighting(rank),
  })));
  if (sightings.length) showSighting(0);
  for (const row of byId("questions").children) row.querySelector(".row").setAttribute("aria-current", row.dataset.id === String(question?.id));
  showTimeline();
}

function showSighting(rank) {
  const sighting = state.question.sightings[rank], { video, shown_box: box } = sighting;
  byId("shown-image").src = thumbnail(video, sighting.shown_s);
  byId("shown-image").alt = `${video.name} at ${timeOfDay(sighting.seen_until)}`;
  byId("shown-marks").setAttribute("viewBox", `0 0 ${video.width} ${video.height}`);
  const sides = box && { x: box[0], y: box[1], width: box[2] - box[0], height: box[3] - box[1] };
  byId("shown-marks").replaceChildren(...(box ? ["halo", "mark"] : []).map((kind) => draw("rect", { class: kind, ...sides })));
  const gone = video.exists || state.question.notes.includes(video.name) ? "" : " The file is gone or another one; this is from memory.";
  byId("answer-words").textContent =
    `${dayName(recorded(sighting.seen_from).day)}, ${timeOfDay(sighting.seen_from)} – ${timeOfDay(sighting.seen_until)}, in ${video.name} ` +
    `from ${clock(sighting.start_s)} to ${clock(sighting.end_s)}, ${sighting.box ? "confidence" : "unverified, similarity"} ${sighting.score.toFixed(2)}.${gone}`;
  [...byId("sightings").children].forEach((row, i) => row.querySelector(".row").setAttribute("aria-current", i === rank));
}

function showTimeline() {
  const sightings = state.question?.sightings || [];
  byId("days-card").hidden = !state.videos.length;
  showDays(byId("days"), state.videos, sightings, showSighting);
  const entries = [["var(--quiet)", "recorded"]];
  if (sightings.length) entries.push(["var(--accent)", state.question.found ? "last seen" : "perhaps seen"]);
  if (sightings.length > 1) entries.push(["var(--other)", "other sightings"]);
  byId("days-legend").replaceChildren(...legend(entries));
}

for (const entry of (await tried(call)("GET", "/memory/asks")) || []) tried(follow)(entry);
const addChosen = tried(async () => {
  const chosen = byId("image-files"), files = [...chosen.files];
  chosen.value = "";
  for (const file of files) await views.add(file);
});
byId("image-files").addEventListener("change", addChosen);
addChosen(); // also what was chosen before this script was ready
byId("clear").addEventListener("click", () => views.clear());
byId("ask").addEventListener("click", tried(() => ask()));
byId("save").addEventListener("click", tried(saveObject));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", tried(async (event) => {
  event.preventDefault();
  for (const file of event.dataTransfer.files) await views.add(file);
}));
const list = () => Promise.all([listVideos(), listObjects(), listQuestions()]);
await tried(list)();
if (!state.question && !state.awaited) openQuestion(Number(location.hash.slice(1)));
setInterval(() => list().catch(() => {}), LIST_EVERY_MS); // a camera may be recording, others may ask
