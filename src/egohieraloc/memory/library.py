"""The library: many videos with wall-clock times, asked as one.

    memory = Memory.open("my_memory")
    memory.add("kitchen.mp4")
    memory.objects.save("keys", Query.of_views(front, back))
    print(memory.ask("keys").summary)

A folder holds one: the catalogue (small, kept for ever), features/ (large, a cache: what was thrown out is
made again from the video) and recordings/ (what `egohieraloc watch` has recorded). Users' videos stay where
they are and are never changed. Any number of processes may use a memory at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import cached_property
from pathlib import Path

from filelock import FileLock

from egohieraloc.errors import VideoError
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.localize import Localizer, SpaceSources
from egohieraloc.memory.asking import OTHERS, MemoryAnswer, VideoAnswer, ask_all, seconds_of
from egohieraloc.memory.shelf import Shelf
from egohieraloc.memory.thumbnails import slots, to_jpeg, watched
from egohieraloc.memory.values import FileStamp, Sighting, VideoEntry
from egohieraloc.memory.videos import Known, Videos
from egohieraloc.memory.wall_clock import Start, aware, start_of
from egohieraloc.memory.without_video import without_video
from egohieraloc.progress import Progress, no_progress
from egohieraloc.query import Query
from egohieraloc.types import NotLocalized, Rgb, SampledVideo
from egohieraloc.video.reader import Video

FEW = 8  # videos, or fewer: each is asked
GLIMPSES = 1  # of a video that is gone: the stretch that looks most like the query
KEPT_AT_ONCE = 16  # thumbnails in one change of the catalogue


class Memory(Shelf):
    """Videos, saved objects, questions and answers in a folder; see `Memory.open`."""

    def __init__(
        self, folder: str | Path, localizer: Localizer | None = None, *, create: bool = True
    ) -> None:
        self._given = localizer
        super().__init__(folder, create=create)

    @classmethod
    def open(cls, folder: str | Path, *, localizer: Localizer | None = None, create: bool = True) -> Memory:
        """The memory in a folder; with `create` a new one where there is none.

        localizer: reads and asks the videos, by default the one that ships; it is loaded when first needed.
        """
        return cls(folder, localizer, create=create)

    @cached_property
    def localizer(self) -> Localizer:
        return self._given or Localizer.from_pretrained(cache=self.cache)

    def add(
        self,
        video: Video | str | Path,
        *,
        start: datetime | None = None,
        zone: tzinfo | None = None,
        camera: str | None = None,
        progress: Progress = no_progress,
    ) -> VideoEntry:
        """Add a video; one that is known is found by its content, and a stopped addition goes on.

        start: when it began, instead of what its name, container or date say; `zone`: of times without one.
        """
        opened = video if isinstance(video, Video) else Video.open(video)
        with self._turn(opened.content_hash):
            entry = self.begin(opened, start=start, zone=zone, camera=camera)
            if not entry.ready:
                self._read(entry, opened, progress)
        return self.videos.get(entry.id)

    def begin(
        self,
        video: Video,
        *,
        start: datetime | None = None,
        zone: tzinfo | None = None,
        camera: str | None = None,
    ) -> VideoEntry:
        """Note a video in the catalogue without reading it; see `add`."""
        entry = self.knows(video)
        if entry is None:
            began = start_of(video, start, zone=zone)
            new = VideoEntry(
                "", video.content_hash, video.source, video.info, video.duration_s, began, camera=camera
            )
            return self.videos.begin(new)
        if start is not None:
            return self.videos.set_start(entry, Start(aware(start, zone), "given"))
        if zone is not None and entry.start.origin != "given":
            began = start_of(video, zone=zone)
            if _differ_in_zone(began.time, entry.start.time):
                return self.videos.set_start(entry, began)
        return entry

    def knows(self, video: Video) -> VideoEntry | None:
        """The entry of a video that was added before, wherever its file was then."""
        entry = self.videos.with_content(video.content_hash)
        if entry is None:
            return None
        return self._current(entry) if entry.exists else self.videos.found(entry, video.source)

    def _current(self, entry: VideoEntry) -> VideoEntry:
        """The entry; of a file that was written anew with the same content it is noted when."""
        if entry.stamp != FileStamp.of(entry.path) and entry.exists:
            return self.videos.found(entry, entry.source)
        return entry

    def ask(
        self,
        query: Query | str | Path,
        *,
        until: datetime | None = None,
        videos: Iterable[VideoEntry | str] | None = None,
        others: int = OTHERS,
        in_3d: bool = False,
        space: SpaceSources | None = None,
        progress: Progress = no_progress,
    ) -> MemoryAnswer:
        """Where was this last seen, anywhere? See asking.py; of many videos the likely ones are asked.

        query: a query, the name of a saved object, or the path (a `Path`) of an image; until: the query time,
        by the wall clock; videos: only these (entries, ids or paths); others: so many further videos are
        asked, for earlier sightings, once the answer is settled; in_3d: also where it is in the space of the
        video that answers, of which `space` may tell more. The question and its answer are kept in
        `questions`.
        """
        object_id = self.objects.id_of(query) if isinstance(query, str) else None
        sought = self.objects[query] if isinstance(query, str) else query
        sought = Query.from_image(sought) if isinstance(sought, Path) else sought
        until = None if until is None else aware(until)
        chosen = self.list() if videos is None else [self.find(video) for video in videos]
        begun = [e for e in chosen if until is None or e.start.time < until]
        ready = [self._current(entry) for entry in begun if entry.ready]
        answer = ask_all(
            self._likely(sought, ready, until, progress),
            lambda entry, until_s: self._ask(sought, entry, until_s, progress),
            until=until,
            others=others,
            progress=progress,
        )
        answer = replace(answer, incomplete=tuple(entry for entry in begun if not entry.ready))
        if in_3d:
            answer = self._placed(answer, space, progress)
        return replace(answer, question=self.questions.keep(sought, answer, object_id, until))

    def _likely(
        self, query: Query, entries: Sequence[VideoEntry], until: datetime | None, progress: Progress
    ) -> Sequence[VideoEntry]:
        """The videos to ask: all of a few, else those that a search of all as one long video finds likely,
        and those that cannot be searched so."""
        if len(entries) <= FEW:
            return entries
        known, others = self._known(entries, until)
        try:
            likely = self.localizer.likely(query, [video for _, video in known], progress=progress)
        except VideoError:  # a file that must be read again cannot be: its memory will say what it knows
            return entries
        return [*others, *(known[number][0] for number in likely)]

    def _known(
        self, entries: Sequence[VideoEntry], until: datetime | None
    ) -> tuple[list[tuple[VideoEntry, EncodedVideo]], list[VideoEntry]]:
        """What can be searched without the videos, and the entries that cannot."""
        known, others = [], []
        for entry in entries:
            encoded = self.encoded(entry)
            searched = encoded and before(encoded, seconds_of(entry, until))
            if searched is not None and not entry.exists:
                searched = without_video(searched) if searched.is_stored else None
            if searched is None or not len(searched):
                others.append(entry)
            else:
                known.append((entry, searched))
        return known, others

    def _placed(self, answer: MemoryAnswer, space: SpaceSources | None, progress: Progress) -> MemoryAnswer:
        """With the place of what was found; poses of a video that is gone are those of an earlier answer."""
        if answer.result is None or not answer.found:
            return answer
        entry = answer.sightings[0].video
        if not entry.exists and (space is None or space.cameras is None):
            cameras = self.questions.cameras_of(entry.id)
            if cameras is None:
                reason = "the video is no longer where it was, and no camera poses of it are known"
                return replace(answer, result=replace(answer.result, place=NotLocalized(reason)))
            space = replace(space or SpaceSources(), cameras=cameras)
        return replace(answer, result=self.localizer.place(answer.result, space, progress=progress))

    def encoded(self, entry: VideoEntry) -> EncodedVideo | None:
        """What this network knows of a video, without opening it; None where only others have read it."""
        model = self.localizer.predictor.features_fingerprint
        for known in self.videos.known(entry):
            if known.model == model:
                return self.localizer.reopen(known.video, known.store)
        return None

    @property
    def cache(self) -> Path:
        """Where features are: in the folder, or where the given Localizer keeps them."""
        return super().cache if self._given is None else self._given.cache

    def _ask(self, query: Query, entry: VideoEntry, until_s: float | None, progress: Progress) -> VideoAnswer:
        """What one video answers; None where it was removed meanwhile."""
        encoded = self.encoded(entry)
        if encoded is None:
            if self.videos.with_content(entry.content) is None:
                return None
            try:
                video = Video.reopen(entry.source)
                if video.content_hash != entry.content:
                    return ()
                encoded = self._read(entry, video, progress)
            except VideoError:  # gone or damaged
                return ()
        searched = before(encoded, until_s)
        if entry.exists:
            with suppress(VideoError):  # it would have to be read again, and cannot be
                return self.localizer.ask(query, searched, progress=progress)
        return self._recalled(query, entry, searched)

    def _recalled(self, query: Query, entry: VideoEntry, searched: EncodedVideo) -> VideoAnswer:
        """What is left of a video: an answer from its features, or what it is remembered by."""
        with suppress(VideoError):
            return self.localizer.ask(query, without_video(searched))
        glimpses = self.localizer.recall(query, searched, most=GLIMPSES)
        return tuple(Sighting(entry, g.start_s, g.end_s, g.similarity, None) for g in glimpses)

    def _read(self, entry: VideoEntry, video: Video, progress: Progress) -> EncodedVideo:
        """Encode a video, or what is missing of it, and keep thumbnails of what is decoded."""
        thumbnails = _Thumbnails(self.videos, entry, video.sampled(self.localizer.config.search.fps))
        encoded = self.localizer.encode(watched(video, thumbnails.see), progress=progress)
        thumbnails.finish(video)
        sampled = replace(encoded.video, source=replace(video.source, start=entry.start.time))
        predictor = self.localizer.predictor
        known = Known(sampled, encoded.store.key, predictor.features_fingerprint, predictor.engine)
        self.videos.finish(entry.id, known)
        return replace(encoded, video=sampled)

    def _turn(self, content: str) -> FileLock:
        """Two processes that add the same video take turns; the second finds it done."""
        locks = self.folder / "locks"
        locks.mkdir(exist_ok=True)
        return FileLock(str(locks / f"{content[:2]}.lock"))


def _differ_in_zone(one: datetime, other: datetime) -> bool:
    """The same moment, or the same reading of a clock: not so where a file was given another name."""
    clocks = [time.replace(tzinfo=None) for time in (one, other)]
    same = one == other or clocks[0] == clocks[1]
    return same and one.utcoffset() != other.utcoffset()


class _Thumbnails:
    """Keeps a thumbnail of every slot while a video is read."""

    def __init__(self, videos: Videos, entry: VideoEntry, sampled: SampledVideo) -> None:
        self._videos, self._id = videos, entry.id
        self._times_s = dict(zip(sampled.frame_index.tolist(), sampled.time_s.tolist(), strict=True))
        there = videos.thumbnail_slots(entry.id)
        self._wanted = {frame: slot for frame, slot in slots(sampled).items() if slot not in there}
        self._made: list[tuple[int, float, bytes]] = []

    def see(self, index: int, rgb: Rgb) -> None:
        slot = self._wanted.pop(index, None)
        if slot is not None:
            self._made.append((slot, self._times_s[index], to_jpeg(rgb)))
            if len(self._made) >= KEPT_AT_ONCE:
                self._keep()

    def finish(self, video: Video) -> None:
        """Also those of frames that were not decoded this time."""
        for frame in video.frames(sorted(self._wanted)):
            self.see(frame.index, frame.rgb)
        self._keep()

    def _keep(self) -> None:
        self._videos.add_thumbnails(self._id, self._made)
        self._made = []


def before(encoded: EncodedVideo, until_s: float | None) -> EncodedVideo:
    """What was seen before the query time; all of a video that ended by then."""
    ended = until_s is None or until_s > encoded.time_s[-1:].max(initial=0.0)
    return encoded if ended else encoded.until(until_s)
