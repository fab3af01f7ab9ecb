"""How long each stage of an answer in 3D takes, and how little a second question adds.

    python benchmarks/place_speed.py [--minutes 3] [--poses] [--model mini] [--set sfm.overlap=11 ...]

The bundled demo clip, played forward and backward until the time is filled, is the video. `--poses` computes
nothing but the camera poses of all of its samples. Besides the time on the clock, each stage's time of the
processor is told, of this process and of those it started.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import av

from egohieraloc import Localizer, LocalizerConfig, Query, Video, demo
from egohieraloc.poses import camera_poses
from egohieraloc.settings import override
from egohieraloc.types import Ints, NotLocalized


class Stages:
    """Seconds of each stage, on the clock and of the processor, by the name of the stage."""

    def __init__(self) -> None:
        self._name, self._began = "start", (time.perf_counter(), processor_s())
        self.seconds: dict[str, tuple[float, float]] = {}

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        if stage != self._name:
            now, (clock, work) = (
                (time.perf_counter(), processor_s()),
                self.seconds.get(self._name, (0.0, 0.0)),
            )
            self.seconds[self._name] = clock + now[0] - self._began[0], work + now[1] - self._began[1]
            self._name, self._began = stage, now

    def show(self) -> None:
        self("end")
        for stage, (clock, work) in self.seconds.items():
            print(f"{stage:<22}{clock:8.1f} s{work:8.1f} s of the processor")
        clock, work = (sum(column) for column in zip(*self.seconds.values(), strict=True))
        print(f"{'in all':<22}{clock:8.1f} s{work:8.1f} s of the processor")


def processor_s() -> float:
    """Of this process and of those that it started and that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--poses", action="store_true", help="camera poses alone")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    config = override(LocalizerConfig(), options.set)
    with tempfile.TemporaryDirectory() as name:
        video = Video.open(write_long(Path(name) / "walk.mp4", options.minutes))
        samples = video.sample_indices(config.search.fps)
        print(f"{video.duration_s:.0f} s of video, {len(samples)} samples")
        if options.poses:
            poses_alone(video, samples, Path(name), config)
        else:
            whole_answer(video, Localizer.from_pretrained(options.model, config=config, cache=Path(name)))


def poses_alone(video: Video, samples: Ints, cache: Path, config: LocalizerConfig) -> None:
    stages = Stages()
    found = camera_poses(video, samples, cache, config.sfm, progress=stages)
    stages.show()
    print(found.reason if isinstance(found, NotLocalized) else f"posed {found.num_posed} of {len(samples)}")


def whole_answer(video: Video, localizer: Localizer) -> None:
    query = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
    stages = Stages()
    result = localizer.locate(query, video, in_3d=True, progress=stages)
    stages.show()
    if result.cameras is None:
        raise SystemExit(f"no place: {result.place or result.track}")
    print(f"posed {result.cameras.num_posed} of {len(result.cameras.frames)}; {type(result.place).__name__}")
    start = time.perf_counter()
    localizer.place(result)
    print(f"second question, 3D part: {time.perf_counter() - start:.2f} s")


def write_long(path: Path, minutes: float) -> Path:
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
    return path


if __name__ == "__main__":
    main()
