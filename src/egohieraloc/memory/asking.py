"""One question to many videos: which of them, in which order, and when to stop.

Each video answers for itself with its last appearance above the threshold. The answer of the library is the
latest of these by the wall clock that is at least SHARE as sure as the surest, as within one video. Videos
are asked from the latest back: one that ends before a sure appearance cannot change the answer any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from egohieraloc.memory.thumbnails import slots
from egohieraloc.memory.values import Sighting, VideoEntry
from egohieraloc.progress import Progress, no_progress
from egohieraloc.result import Result
from egohieraloc.types import ResponseTrack

SHARE = 0.5  # of the highest confidence: `temporal.weighed_share` between videos
OTHERS = 3  # further videos that are asked, for earlier sightings, once the answer is settled
# Of a video that is gone, moments that look like the query; of one that was removed meanwhile, None.
VideoAnswer = Result | tuple[Sighting, ...] | None
STATES = {
    "there": "cannot be read",
    "gone": "is no longer there",
    "replaced": "is no longer the video that was added",
}
AskVideo = Callable[[VideoEntry, float | None], VideoAnswer]  # until which second


@dataclass(frozen=True, eq=False)
class MemoryAnswer:
    """Where an object was last seen, over all videos that were asked."""

    result: Result | None  # of the video that answers; where nothing was found, of the one that came closest
    sightings: tuple[
        Sighting, ...
    ]  # where `found` the answer first, then earlier ones; else the best guesses
    found: bool
    remembered: tuple[Sighting, ...] = ()  # of videos that are gone: what looks like it, from memory alone
    unanswered: tuple[VideoEntry, ...] = ()  # neither the video nor a memory of it is there
    incomplete: tuple[VideoEntry, ...] = ()  # not asked: adding them was stopped
    until: datetime | None = None
    video: VideoEntry | None = None  # that `result` is of
    question: int | None = None  # number under which it is kept

    @property
    def nothing_asked(self) -> bool:
        """Whether there was no video to ask."""
        return self.result is None and not self.remembered

    @property
    def summary(self) -> str:
        """The answer in words."""
        words = [self._why_nothing if self.nothing_asked else seen_words(self.sightings, self.found)]
        if self.found and self.result is not None and self.result.place_words:
            words.append(self.result.place_words)
        if self.found and not self.sightings[0].video.exists:
            entry = self.sightings[0].video
            words.append(f"The file {entry.path} {STATES[entry.state]}; this is from memory.")
        if self.remembered:
            entry, moment = self.remembered[0].video, _moment(self.remembered[0])
            state = f"{STATES[entry.state]}; unverified, from memory"
            words.append(f"The file {entry.path} {state}, it looks most like it {moment}.")
        if self.unanswered:
            names = ", ".join(entry.path.name for entry in self.unanswered)
            reason = "the file is gone, damaged or replaced and another network remembers it"
            words.append(f"Not asked, since {reason}: {names}.")
        if self.incomplete:
            names = ", ".join(str(entry.path) for entry in self.incomplete)
            words.append(f"Not asked, since adding it was stopped: {names}. Add it again.")
        return " ".join(words)

    @property
    def _why_nothing(self) -> str:
        if self.unanswered or self.incomplete:
            return "No video could be asked."
        if self.until is not None:
            return f"No video of the memory began before {self.until:%Y-%m-%d %H:%M:%S}."
        return "The memory holds no video to ask: add some with `egohieraloc memory add`."


def seen_words(sightings: Sequence[Sighting], found: bool) -> str:
    """Where it was last seen, or that it was not."""
    if not found:
        return f"Not found. The closest is {_moment(sightings[0])}." if sightings else "Not found."
    return f"Last seen {_moment(sightings[0])}."


def ask_all(
    entries: Sequence[VideoEntry],
    ask: AskVideo,
    *,
    until: datetime | None = None,
    others: int = OTHERS,
    progress: Progress = no_progress,
) -> MemoryAnswer:
    """The latest of the videos' answers that is sure enough beside the surest."""
    sure: list[tuple[Sighting, Result]] = []
    guesses: list[tuple[Sighting, Result]] = []
    remembered: list[Sighting] = []
    unanswered: list[VideoEntry] = []
    nothing: tuple[VideoEntry, Result] | None = None  # a video in which nothing even resembles it
    for done, entry in enumerate(worth_asking(entries, until, sure, others)):
        progress("videos", done, len(entries))
        result = ask(entry, seconds_of(entry, until))
        if result is None:
            continue
        if not isinstance(result, Result):
            remembered += result
            unanswered += [] if result else [entry]
            continue
        sighting = sighting_of(entry, result)
        if sighting is None:
            nothing = nothing or (entry, result)
        elif result.found:
            sure.append((sighting, result))
        else:  # of guesses the best is kept
            guesses = sorted([*guesses, (sighting, result)], key=lambda g: g[0].score)[-1 - others :]
    progress("videos", len(entries), len(entries))
    remembered.sort(key=lambda s: s.score, reverse=True)
    told = in_order(sure) if sure else guesses[::-1]
    most = 1 + others
    video, answer = (told[0][0].video, told[0][1]) if told else nothing or (None, None)
    return MemoryAnswer(
        answer,
        tuple(sighting for sighting, _ in told[:most]),
        bool(sure),
        tuple(remembered[:most]),
        tuple(unanswered),
        until=until,
        video=video,
    )


def in_order(sure: Sequence[tuple[Sighting, Result]]) -> list[tuple[Sighting, Result]]:
    """The answer first: the latest of those that are sure enough beside the surest; then the others so."""
    bar = SHARE * max(sighting.score for sighting, _ in sure)
    return sorted(sure, key=lambda s: (s[0].score >= bar, s[0].seen_until, s[0].score), reverse=True)


def seconds_of(entry: VideoEntry, moment: datetime | None) -> float | None:
    """A moment by the wall clock as the video counts."""
    return None if moment is None else (moment - entry.start.time).total_seconds()


def worth_asking(
    entries: Sequence[VideoEntry],
    until: datetime | None,
    sure: Sequence[tuple[Sighting, Result]],
    others: int,
) -> Iterator[VideoEntry]:
    """Videos that may still change the answer, the one that ends last first, and then `others` more.

    `sure` grows while the caller asks; the answer is settled once no video that is left can hold a later one.
    """

    def last_moment(entry: VideoEntry) -> datetime:
        return entry.end if until is None else min(entry.end, until)

    begun = [entry for entry in entries if until is None or entry.start.time < until]
    for entry in sorted(begun, key=last_moment, reverse=True):
        best = in_order(sure)[0][0] if sure else None
        # None that is left can be more than twice as sure as this one, nor later.
        if best is not None and best.score >= SHARE and last_moment(entry) <= best.seen_until:
            if others == 0:
                return
            others -= 1
        yield entry


def sighting_of(entry: VideoEntry, result: Result) -> Sighting | None:
    """The answer of one video, or its best guess; None where it has none."""
    track = result.track
    if not isinstance(track, ResponseTrack):
        if not result.alternatives:
            return None
        track = result.alternatives[0]
    pictured = slots(result.video)
    shown = [(p.time_s, p.box) for p in track if p.frame_index in pictured]
    last = track.predictions[-1]
    return Sighting(entry, track.start_s, track.end_s, track.score, last.box, shown[-1] if shown else None)


def _moment(sighting: Sighting) -> str:
    first, last = sighting.seen_from, sighting.seen_until
    where = f"similarity {sighting.score:.2f}"
    if sighting.box is not None:
        x, y, width, height = (round(v) for v in sighting.box.xywh)
        where = f"at the end in the box {x},{y},{width},{height} (x,y,w,h), confidence {sighting.score:.2f}"
    return (
        f"on {first:%A, %d %B %Y} from {first:%H:%M:%S} to {last:%H:%M:%S} in {sighting.video.path.name} "
        f"({sighting.start_s:.1f} s to {sighting.end_s:.1f} s), {where}"
    )
