// What an answer says, as it stands in result.json.
import { clock } from "./tools.js";

// The answer, where there is one, and what else it might have been: [{score, track}].
export function candidates(result) {
  if (!result) return [];
  return [...(result.found ? [{ score: result.score, track: result.track }] : []), ...result.alternatives];
}

export const halfSample = (result) => 0.5 / result.sample_fps;

// The time that samples stand for: half a sample more than from the first to the last.
export const spanOf = (result, first_s, last_s, name) =>
  ({ start_s: first_s - halfSample(result), end_s: last_s + halfSample(result), name });

export const fromTo = (track, word = "–") => `${clock(track[0].time_s)} ${word} ${clock(track.at(-1).time_s)}`;

export const confidence = ({ score }) => `confidence ${score.toFixed(2)}`;
