// What the page says of a query and its answer.
import { candidates, confidence, fromTo } from "./answer.js";
import { clock } from "./tools.js";

export const isOpen = ({ status }) => status === "waiting" || status === "running";
export const percent = (value) => `${Math.round(100 * value)}\u00a0%`;

function timeLeft(seconds) {
  if (seconds >= 90) return `about ${Math.round(seconds / 60)} min left`;
  return `about ${Math.max(1, Math.ceil(seconds))} s left`;
}

// How a query stands, in a few words.
export function words(query) {
  if (query.status === "waiting") return "Waiting for its turn";
  if (query.status === "cancelled") return "Cancelled";
  if (query.status === "failed") return query.message;
  if (query.status === "done") return query.found ? `${clock(query.span_s[0])} – ${clock(query.span_s[1])}` : "Not seen";
  const progress = query.progress;
  if (!progress) return "Getting ready";
  if (!progress.done) return `${progress.label} …`;
  const left = progress.left_s === null ? "" : `, ${timeLeft(progress.left_s)}`;
  return `${progress.label}, ${percent(progress.done / Math.max(1, progress.total))}${left}`;
}

export function answerWords({ answer, message }, rank) {
  const all = candidates(answer), found = all[rank];
  if (!found) return message;
  const words = `${fromTo(found.track)}, ${confidence(found)}.`;
  if (!answer.found) return `A guess, too unsure to be an answer (${rank + 1} of ${all.length}): ${words}`;
  return rank === 0 ? words : `Candidate ${rank + 1} of ${all.length}: ${words}`;
}

export function answerTitle({ answer }, rank) {
  const found = candidates(answer)[rank];
  if (!found) return "Not seen in this video";
  let start = rank === 0 && answer.found ? "Last seen" : "Perhaps seen";
  if (answer.found && rank > 0 && found.score >= 0.5) start = "Also seen"; // earlier: the answer is the last time
  return `${start} from ${fromTo(found.track, "to")}`;
}
