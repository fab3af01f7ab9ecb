"""How long each stage of an answer in 3D takes, and how little a second question adds.

    python benchmarks/place_speed.py [--minutes 3] [--model mini] [--set sfm.max_map_frames=300 ...]

The bundled demo clip, played forward and backward until the time is filled, is the video.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import av

from egohieraloc import Localizer, LocalizerConfig, Query, Video, demo
from egohieraloc.geometry.place import place
from egohieraloc.poses import camera_poses
from egohieraloc.progress import no_progress
from egohieraloc.settings import override
from egohieraloc.types import NotLocalized, ResponseTrack


class Stages:
    """Seconds since the last stage began, by the name of the stage."""

    def __init__(self) -> None:
        self._name, self._began = "start", time.perf_counter()
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        if stage != self._name:
            now = time.perf_counter()
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._began
            self._name, self._began = stage, now


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    truth = demo.load_truth()
    query = Query.from_image(demo.QUERY, box=truth.query_box)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "walk.mp4"
        write_long(path, options.minutes)
        video = Video.open(path)
        config = override(LocalizerConfig(), options.set)
        localizer = Localizer.from_pretrained(options.model, config=config, cache=Path(name))
        stages = Stages()
        result = localizer.locate(query, video, in_3d=True, progress=stages)
        stages("end")
        print(f"{video.duration_s:.0f} s of video, {len(result.video)} samples")
        for stage, seconds in stages.seconds.items():
            print(f"{stage:<22}{seconds:8.1f} s")
        print(f"{'in all':<22}{sum(stages.seconds.values()):8.1f} s")
        if result.cameras is None or not isinstance(result.track, ResponseTrack):
            raise SystemExit(f"no place: {result.place or result.track}")
        print(
            f"posed {result.cameras.num_posed} of {len(result.cameras.frames)}; {type(result.place).__name__}"
        )
        second_question(localizer, video, result.track)


def second_question(localizer: Localizer, video: Video, track: ResponseTrack) -> None:
    """The 3D part of it: what is stored of the video is read, and the track is placed."""
    encoded = localizer.encode(video)
    start = time.perf_counter()
    cameras = camera_poses(video, encoded, localizer.cache, localizer.config.sfm, no_progress)
    if isinstance(cameras, NotLocalized):
        raise SystemExit(cameras.reason)
    place(track.predictions, cameras, query_time_s=video.duration_s, config=localizer.config.place)
    print(f"second question, 3D part: {time.perf_counter() - start:.2f} s")


def write_long(path: Path, minutes: float) -> None:
    """The demo clip forward, backward, forward ... for so many minutes."""
    frames = [frame.rgb for frame in Video.open(demo.CLIP).samples(None)]
    loop = [*frames, *frames[-2:0:-1]]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=15, options={"crf": "20"})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for number in range(round(minutes * 60 * 15)):
            image = av.VideoFrame.from_ndarray(loop[number % len(loop)], format="rgb24")
            container.mux(stream.encode(image))
        container.mux(stream.encode())


if __name__ == "__main__":
    main()
