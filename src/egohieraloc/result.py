"""The answer as a whole: the query, what was found, and what it was chosen from."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from egohieraloc.clock import clock
from egohieraloc.documents import read_json
from egohieraloc.errors import DataError, MissingExtraError, OutputError
from egohieraloc.files import atomic_folder, finish_folder, write_json
from egohieraloc.geometry.place import describe
from egohieraloc.geometry.reconstruction import Reconstruction, write_cameras
from egohieraloc.images import mask_on_image, write_image
from egohieraloc.notebook import answer_html
from egohieraloc.query import Query
from egohieraloc.types import (
    Floats,
    FrameMaps,
    Localization3D,
    Mask,
    NotFound,
    NotLocalized,
    QueryMask,
    ResponseTrack,
    SampledVideo,
    ScoreCurve,
)

if TYPE_CHECKING:
    from egohieraloc.result_schema import ResultDocument

# All that an answer may leave in its folder. An earlier answer's are thrown out.
FILES = (
    "query.png", "query_mask.png", "views", "masks", "overlay.mp4", "curve.png", "cameras.json",
    "report.html", "result.json", "thumbnail.jpg",
)  # fmt: skip
REMEDY = "Ask again with `egohieraloc locate`."


@dataclass(frozen=True, eq=False)
class Result:
    """Where the object was last seen: a track or a reason, and what it was chosen from."""

    query: Query
    video: SampledVideo
    track: ResponseTrack | NotFound
    curve: ScoreCurve
    alternatives: tuple[ResponseTrack, ...] = ()
    query_mask: QueryMask | None = None  # the query's foreground as the network saw it
    maps: tuple[FrameMaps, ...] = ()  # what decided, for some samples of the track
    place: Localization3D | NotLocalized | None = None  # None: 3D was not requested
    alternative_places: tuple[Localization3D | NotLocalized, ...] = ()  # of `alternatives`, where it was
    cameras: Reconstruction | None = None  # the poses that `place` stands on
    timings_s: tuple[tuple[str, float], ...] = ()  # differs each time, so it is not saved
    versions: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Result({self.track!r}, place={self.place!r})" if self.place else f"Result({self.track!r})"

    def _repr_html_(self) -> str:
        return answer_html(self.query, self.video.source, self.track, self.summary)

    @property
    def found(self) -> bool:
        return isinstance(self.track, ResponseTrack)

    @property
    def query_time_s(self) -> float:
        """The query time, at most the time of the last sample."""
        last_s = float(self.video.time_s[-1]) if len(self.video) else 0.0
        until_s = self.video.until_s
        return last_s if until_s is None else min(until_s, last_s)

    @property
    def summary(self) -> str:
        """The answer in words."""
        track = self.track
        if isinstance(track, NotFound):
            return f"Not found. {track.reason}"
        first, last = track.predictions[0], track.predictions[-1]
        x, y, width, height = (round(v) for v in last.box.xywh)
        return (
            f"Last seen from {clock(first.time_s)} to {clock(last.time_s)} "
            f"(frames {first.frame_index} to {last.frame_index}), at the end in the box "
            f"{x},{y},{width},{height} (x,y,w,h). Confidence {track.score:.2f}.{self._where()}"
        )

    def _where(self) -> str:
        doubts = self.place.doubts if isinstance(self.place, Localization3D) else ()
        lines = [self.place_words, *(f"Uncertain: {doubt}." for doubt in doubts)]
        return "".join(f"\n{line}" for line in lines if line)

    @property
    def place_words(self) -> str:
        """Where in space, in words; empty where that was not asked."""
        place = self.place
        if place is None:
            return ""
        if isinstance(place, NotLocalized):
            return f"No place in space: {place.reason.rstrip('.')}."
        viewpoint, seen_from_s = "the camera at the query time", self.viewpoint_time_s
        if seen_from_s is not None:
            viewpoint = f"the camera at {clock(seen_from_s)}, the nearest moment that has a camera pose,"
        return f"From {viewpoint} it is {describe(place)}."

    @property
    def viewpoint_time_s(self) -> float | None:
        """The moment from whose camera the place is seen; None where that is the query time itself."""
        if not isinstance(self.place, Localization3D) or self.cameras is None:
            return None
        times_s = {frame.index: frame.time_s for frame in self.cameras.frames}
        time_s = times_s.get(self.place.query_frame, self.query_time_s)
        return None if abs(time_s - self.query_time_s) <= 1 / self.video.sample_fps else time_s

    @property
    def boxes_xyxy(self) -> Floats:
        """(N, 4) of the track in pixels of the original frame; (0, 4) where nothing was found."""
        return self.track.boxes_xyxy if isinstance(self.track, ResponseTrack) else np.zeros((0, 4))

    def masks(self) -> list[Mask]:
        """The masks of the track over whole frames (height, width); empty where a sample has none."""
        info = self.video.info
        track = self.track.predictions if isinstance(self.track, ResponseTrack) else ()
        return [mask_on_image(p.mask, p.mask_box, info.width, info.height) for p in track]

    def to_rows(self) -> list[dict[str, float]]:
        """One flat row per sample of the track: frame, sample, time_s, score, x1, y1, x2, y2."""
        track = self.track.predictions if isinstance(self.track, ResponseTrack) else ()
        return [
            {"frame": p.frame_index, "sample": p.sample, "time_s": p.time_s, "score": p.score}
            | dict(zip(("x1", "y1", "x2", "y2"), p.box, strict=True))
            for p in track
        ]

    def to_dataframe(self) -> Any:
        """`to_rows` as a pandas.DataFrame; needs the package pandas."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise MissingExtraError("pandas", "detections") from error
        measured = ("time_s", "score", "x1", "y1", "x2", "y2")
        types = {"frame": int, "sample": int} | dict.fromkeys(measured, float)
        return DataFrame(self.to_rows(), columns=list(types)).astype(types)

    def to_supervision(self) -> list[Any]:
        """One `supervision.Detections` per sample of the track; needs the package supervision."""
        try:
            from supervision import Detections
        except ImportError as error:
            raise MissingExtraError("supervision", "detections") from error
        return [
            Detections(
                xyxy=np.array([[row[side] for side in ("x1", "y1", "x2", "y2")]], np.float32),
                mask=mask[None],
                confidence=np.array([row["score"]], np.float32),
                class_id=np.array([0]),  # its annotators choose colours by it
                data={"frame": np.array([row["frame"]]), "time_s": np.array([row["time_s"]])},
            )
            for row, mask in zip(self.to_rows(), self.masks(), strict=True)
        ]

    def to_document(self) -> ResultDocument:
        """The answer as it goes into result.json."""
        from egohieraloc import result_json as parts
        from egohieraloc.result_schema import FORMAT, VERSION, CandidatePart, ResultDocument

        track = self.track
        return ResultDocument(
            format=FORMAT,
            version=VERSION,
            found=self.found,
            score=track.score,
            reason=None if isinstance(track, ResponseTrack) else track.reason,
            query=parts.query_part(self.query, self.query_mask),
            video=parts.video_part(self.video),
            sample_fps=self.video.sample_fps,
            until_s=self.video.until_s,
            track=parts.prediction_rows(track) if isinstance(track, ResponseTrack) else [],
            curve=parts.curve_part(self.curve, self.video),
            intervals=list(self.curve.intervals),
            alternatives=[
                CandidatePart(
                    score=track.score,
                    track=parts.prediction_rows(track),
                    place=None if place is None else parts.place_part(place),
                )
                for track, place in zip_longest(self.alternatives, self.alternative_places)
            ],
            maps=[parts.maps_part(maps) for maps in self.maps],
            place=None if self.place is None else parts.place_part(self.place),
            cameras=None if self.cameras is None else parts.cameras_part(self.cameras),
            versions=self.versions,
        )

    @classmethod
    def from_document(cls, document: ResultDocument, query: Query) -> Result:
        """The answer that a document describes; it does not hold the query's pixels."""
        from egohieraloc import result_json as parts

        return cls(
            query=query,
            video=parts.video_from(document),
            track=parts.track_from(document.track, document.score)
            if document.found
            else NotFound(document.reason or "", document.score),
            curve=parts.curve_from(document),
            alternatives=tuple(parts.track_from(each.track, each.score) for each in document.alternatives),
            alternative_places=tuple(
                parts.place_from(each.place) for each in document.alternatives if each.place is not None
            ),
            query_mask=None
            if document.query.foreground is None
            else parts.foreground_from(document.query.foreground),
            maps=tuple(parts.maps_from(part) for part in document.maps),
            place=None if document.place is None else parts.place_from(document.place),
            cameras=None if document.cameras is None else parts.cameras_from(document.cameras),
            versions=document.versions,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values as they go into result.json."""
        return self.to_document().model_dump(mode="json")

    def save(self, folder: str | Path) -> Path:
        """Write result.json, the query, masks and cameras.json, all or none; returns the JSON's path.

        They replace an earlier answer in the folder, its report and overlay included.
        """
        with answer_folder(folder, self.video.source.path) as temporary:
            written = self.write_files(temporary)
        return Path(folder) / written.name

    def write_files(self, folder: Path) -> Path:
        """The files of `save`; result.json comes last, so that it is there only when all are."""
        from egohieraloc import result_json as parts

        parts.write_query(self.query, folder)
        for prediction in self.track.predictions if isinstance(self.track, ResponseTrack) else ():
            if prediction.mask is not None:
                write_image(folder / "masks" / f"{prediction.frame_index:07d}.png", prediction.mask)
        if self.cameras is not None:
            write_cameras(folder / "cameras.json", self.cameras)
        path = folder / "result.json"
        write_json(path, self.to_dict())
        return path

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read what `save` wrote: a folder, or the result.json in it."""
        path = Path(path)
        folder, path = (path, path / "result.json") if path.is_dir() else (path.parent, path)
        with suppress(OSError):  # of a folder that is not there, or may only be read
            finish_folder(folder, replaces=FILES)
        document = read_document(path)
        from egohieraloc import result_json as parts

        try:
            return cls.from_document(document, parts.query_from(document.query, folder))
        except ValueError as error:
            raise DataError(f"{path} is damaged: {error}. {REMEDY}") from error


def read_document(path: Path) -> ResultDocument:
    """A result.json, checked against its schema."""
    from pydantic import ValidationError

    from egohieraloc.result_schema import FORMAT, VERSION, ResultDocument

    try:
        value = read_json(path)
    except FileNotFoundError as error:
        raise DataError(f"There is no answer at {path}. Make one: `egohieraloc locate ... --out`.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {path}: {error}. {REMEDY}") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise DataError(f"{path} is not an answer, or of an egohieraloc before its first release. {REMEDY}")
    if value.get("version") != VERSION:
        newer = isinstance(value.get("version"), int) and value["version"] > VERSION
        remedy = "Update egohieraloc to read it." if newer else REMEDY
        raise DataError(f"{path} has version {value.get('version')!r}, wanted {VERSION}. {remedy}")
    try:
        return ResultDocument.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{path} is damaged: {where}: {first['msg']}. {REMEDY}") from error


def answer_folder(folder: str | Path, *inputs: str | Path | None) -> AbstractContextManager[Path]:
    """`atomic_folder` for an answer. It takes the place of an earlier answer, of nothing else, and never of
    the video or the query."""
    folder = Path(folder)
    with suppress(OSError):  # it may not be there yet
        finish_folder(folder, replaces=FILES)
    there = [folder / name for name in FILES if (folder / name).exists()]
    if not _is_answer(folder / "result.json"):
        others = sorted(path.name for path in folder.glob("[!.]*"))
        if others:
            raise OutputError(
                f"{folder} has other files in it, such as {others[0]}, and no earlier answer. "
                "Choose a new or an empty folder."
            )
    for path in inputs:
        if path is not None and any(Path(path).resolve().is_relative_to(file.resolve()) for file in there):
            raise OutputError(f"{path} would be replaced by the answer. Choose another folder.")
    return atomic_folder(folder, replaces=FILES)


def _is_answer(path: Path) -> bool:
    try:
        return "curve" in read_json(path)
    except (OSError, ValueError, TypeError):
        return False
