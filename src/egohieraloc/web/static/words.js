// What a question and its answer say.
import { clock, percent, timeLeft } from "./tools.js";

const STAGES = {
  encode: "Reading the video", look: "Looking", decode: "Looking closely", follow: "Following",
  "poses: reading": "Where you walked: reading", "poses: features": "Where you walked: finding landmarks",
  "poses: calibrating": "Where you walked: measuring the lens", "poses: matching": "Where you walked: comparing images",
  "poses: mapping": "Where you walked: building a map", "poses: attaching": "Where you walked: comparing with the map",
  "poses: registering": "Where you walked: filling gaps",
};

export const isOpen = ({ status }) => status === "waiting" || status === "running";

// The answer, where there is one, and what else it might have been: [{score, track}].
export function candidates(query) {
  const answer = query?.answer;
  if (!answer) return [];
  return [...(answer.found ? [{ score: answer.score, track: answer.track }] : []), ...answer.alternatives];
}

const halfSample = (query) => 0.5 / query.answer.sample_fps;

// The object at a moment, between two samples on the straight line: {box, mask, maskBox, other} or null.
export function viewIn(query, rank, time, playing) {
  const views = candidates(query)[rank]?.track;
  if (!views) return null;
  const half = halfSample(query);
  if (time < views[0].time_s - half || time > views.at(-1).time_s + half) return null;
  let after = views.findIndex((view) => view.time_s >= time);
  if (after < 0) after = views.length - 1;
  const a = views[Math.max(0, after - 1)], b = views[after];
  const part = b.time_s > a.time_s ? Math.min(1, (time - a.time_s) / (b.time_s - a.time_s)) : 0;
  const near = part < 0.5 ? a : b;
  return {
    box: a.box.map((side, i) => side + part * (b.box[i] - side)),
    mask: playing ? null : near.mask, maskBox: near.mask_box,
    other: rank > 0 || !query.answer.found,
  };
}

// The candidates as stretches of time, for the curve.
export function spansOf(query, rank, duration) {
  const half = halfSample(query);
  return candidates(query).map(({ track }, i) => ({
    start_s: Math.max(0, track[0].time_s - half),
    end_s: Math.min(duration, track.at(-1).time_s + half),
    name: i === rank ? "chosen" : "passed",
  }));
}

// How a question stands, in a few words.
export function words(query) {
  if (query.status === "waiting") return "Waiting for its turn";
  if (query.status === "cancelled") return "Cancelled";
  if (query.status === "failed") return query.message;
  if (query.status === "done") return query.found ? `${clock(query.span_s[0])} – ${clock(query.span_s[1])}` : "Not seen";
  const progress = query.progress;
  if (!progress) return "Getting ready";
  const stage = STAGES[progress.stage] || progress.stage;
  if (!progress.done) return `${stage} …`;
  const left = progress.left_s === null ? "" : `, ${timeLeft(progress.left_s)}`;
  return `${stage}, ${percent(progress.done / Math.max(1, progress.total))}${left}`;
}

export function answerWords(query, rank) {
  const all = candidates(query), found = all[rank];
  if (!found) return query.message;
  const span = `${clock(found.track[0].time_s)} – ${clock(found.track.at(-1).time_s)}, ${percent(found.score)} sure.`;
  return rank === 0 && query.answer.found ? span : `Candidate ${rank + 1} of ${all.length}: ${span}`;
}

export function answerTitle(query, rank) {
  const track = candidates(query)[rank]?.track;
  if (!track) return "Not seen in this video";
  let start = rank === 0 && query.answer.found ? "Last seen" : "Perhaps seen";
  if (query.answer.found && rank > 0 && candidates(query)[rank].score >= 0.5) start = "Also seen"; // earlier: the answer is the last time
  return `${start} from ${clock(track[0].time_s)} to ${clock(track.at(-1).time_s)}`;
}
