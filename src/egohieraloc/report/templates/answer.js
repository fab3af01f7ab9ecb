// What an answer says, as it stands in result.json.
import { clock } from "./tools.js";

// What to try when nothing was found.
export const HINTS = [
  "Give a photo that also shows what is around the object, with a box drawn around it.",
  "Give a photo of the side of the object that the video shows.",
  "If the object can be seen earlier in the video, draw a box around it there.",
];

// The answer, where there is one, and what else it might have been: [{score, track}].
export function candidates(result) {
  if (!result) return [];
  return [...(result.found ? [{ score: result.score, track: result.track }] : []), ...result.alternatives];
}

export const halfSample = (result) => 0.5 / result.sample_fps;

// The time that samples stand for: half a sample before the first and after the last.
export const spanOf = (result, first_s, last_s, name) =>
  ({ start_s: first_s - halfSample(result), end_s: last_s + halfSample(result), name });

export const fromTo = (track, word = "–") => `${clock(track[0].time_s)} ${word} ${clock(track.at(-1).time_s)}`;

export const confidence = ({ score }) => `confidence\u00a0${score.toFixed(2)}`;

// The object at a moment, by one of the candidates, between two samples on the straight line: {box, mask, other} or null.
export function seenAt(result, rank, time) {
  const track = candidates(result)[rank]?.track;
  if (!track) return null;
  const { start_s, end_s } = spanOf(result, track[0].time_s, track.at(-1).time_s);
  if (time < start_s || time > end_s) return null;
  let after = track.findIndex((each) => each.time_s >= time);
  if (after < 0) after = track.length - 1;
  const a = track[Math.max(0, after - 1)], b = track[after];
  const part = b.time_s > a.time_s ? Math.min(1, (time - a.time_s) / (b.time_s - a.time_s)) : 0;
  return {
    box: a.box.map((side, i) => side + part * (b.box[i] - side)),
    mask: (part < 0.5 ? a : b).mask,
    other: rank > 0,
    guess: !result.found,
  };
}
