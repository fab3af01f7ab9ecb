"""One question to many videos: which of them, in which order, and when to stop.

Each video answers for itself with its last appearance above the threshold; the answer of the library is the
latest of these by the wall clock. A video that ends before an appearance that was found cannot hold a later
one, so videos are asked from the latest back, and an object that the latest one shows needs one question.
What is remembered of a video bounds no score, so it cannot tell which videos may be passed over.
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

OTHERS = 3  # further videos that are asked, for earlier sightings, once the answer is settled
# Of a video that is gone, moments that look like the query; of one that was removed meanwhile, None.
VideoAnswer = Result | tuple[Sighting, ...] | None
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
    question: int | None = None  # number under which it is kept

    @property
    def summary(self) -> str:
        """The answer in words."""
        words = [self.seen_words]
        if self.found and self.result is not None and self.result.place_words:
            words.append(self.result.place_words)
        if self.found and not self.sightings[0].video.exists:
            words.append(f"The file {self.sightings[0].video.path} is no longer there; this is from memory.")
        if self.remembered:
            entry, moment = self.remembered[0].video, _moment(self.remembered[0])
            state = "is no longer the video that was added" if entry.exists else "is gone"
            words.append(
                f"The file {entry.path} {state}; unverified, from memory, it looks most like it {moment}."
            )
        if self.unanswered:
            names = ", ".join(entry.path.name for entry in self.unanswered)
            reason = "the file is gone, damaged or replaced and another network remembers it"
            words.append(f"Not asked, since {reason}: {names}.")
        return " ".join(words)

    @property
    def seen_words(self) -> str:
        """Where it was last seen, or that it was not."""
        if not self.found:
            best = f" The closest is {_moment(self.sightings[0])}." if self.sightings else ""
            return f"Not found.{best}"
        return f"Last seen {_moment(self.sightings[0])}."


def ask_all(
    entries: Sequence[VideoEntry],
    ask: AskVideo,
    *,
    until: datetime | None = None,
    others: int = OTHERS,
    progress: Progress = no_progress,
) -> MemoryAnswer:
    """The latest of the videos' answers. Only the result that counts is held in memory."""
    sure: list[Sighting] = []
    guesses: list[Sighting] = []
    remembered: list[Sighting] = []
    unanswered: list[VideoEntry] = []
    best: tuple[tuple[float, float], Result] | None = None
    for done, entry in enumerate(worth_asking(entries, until, sure, others)):
        progress("videos", done, len(entries))
        result = ask(entry, None if until is None else (until - entry.start.time).total_seconds())
        if result is None:
            continue
        if not isinstance(result, Result):
            remembered += result
            unanswered += [] if result else [entry]
            continue
        sighting = sighting_of(entry, result)
        if sighting is not None:
            (sure if result.found else guesses).append(sighting)
        rank = _rank(result, sighting)
        if best is None or rank > best[0]:
            best = rank, result
    progress("videos", len(entries), len(entries))
    sure.sort(key=lambda s: (s.seen_until, s.score), reverse=True)
    guesses.sort(key=lambda s: s.score, reverse=True)
    remembered.sort(key=lambda s: s.score, reverse=True)
    most = 1 + others
    return MemoryAnswer(
        best and best[1],
        tuple((sure or guesses)[:most]),
        bool(sure),
        tuple(remembered[:most]),
        tuple(unanswered),
    )


def worth_asking(
    entries: Sequence[VideoEntry], until: datetime | None, sure: Sequence[Sighting], others: int
) -> Iterator[VideoEntry]:
    """Videos that may still change the answer, the one that ends last first, and then `others` more.

    `sure` grows while the caller asks; the answer is settled once no video that is left can hold a later one.
    """

    def last_moment(entry: VideoEntry) -> datetime:
        return entry.end if until is None else min(entry.end, until)

    begun = [entry for entry in entries if until is None or entry.start.time < until]
    for entry in sorted(begun, key=last_moment, reverse=True):
        latest = max((sighting.seen_until for sighting in sure), default=None)
        if latest is not None and last_moment(entry) <= latest:
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


def _rank(result: Result, sighting: Sighting | None) -> tuple[float, float]:
    """What is found comes before what is not; the later sighting, or else the better guess."""
    if sighting is None:
        return -1.0, 0.0
    return (sighting.seen_until.timestamp() if result.found else 0.0), sighting.score


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
