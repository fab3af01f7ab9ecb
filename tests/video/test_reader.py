from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import wave
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from av.stream import Disposition
from numbered_video import HEIGHT, WIDTH, image_of, number_of, write_video
from PIL import Image

from egohieraloc.errors import VideoError
from egohieraloc.images import write_image
from egohieraloc.query import Query
from egohieraloc.types import Box
from egohieraloc.video import container as container_module
from egohieraloc.video.reader import Video

KINDS = {
    "h264.mp4": {},
    "bframes.mp4": {"options": {"bf": "3", "g": "12"}},
    "short_gop.mp4": {"options": {"bf": "2", "g": "4"}},
    "open_gop.mkv": {"options": {"x264-params": "open-gop=1:bframes=3:keyint=12"}},
    "stream.ts": {"options": {"g": "12"}},
    "images.avi": {"codec": "mjpeg"},
    "mpeg4.mp4": {"codec": "mpeg4", "options": {"bf": "2"}},
    "h264.avi": {},
    "raw.h264": {},
    "vp8.webm": {"codec": "libvpx", "options": {"auto-alt-ref": "1", "lag-in-frames": "16"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"cpu-used": "8"}},
    "hevc.mp4": {"codec": "libx265", "options": {"x265-params": "bframes=3:keyint=12:log-level=none"}},
    "layers.mp4": {
        "codec": "libx265",
        "options": {"x265-params": "bframes=3:temporal-layers=2:log-level=none"},
    },
}


@pytest.fixture
def make_video(tmp_path: Path) -> Callable[..., Path]:
    return lambda name="video.mp4", **settings: write_video(tmp_path / name, **settings)


def numbers(frames) -> list[int]:
    """The number each image shows, which must be the one the reader says."""
    seen = []
    for frame in frames:
        assert number_of(frame.rgb) == frame.index
        seen.append(frame.index)
    return seen


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_gives_the_right_frames(make_video, name: str) -> None:
    video = Video.open(make_video(name, frames=60, **KINDS[name]))
    assert (video.info.width, video.info.height, video.info.num_frames) == (WIDTH, HEIGHT, 60)
    assert video.info.fps == 30
    assert video.times_s == pytest.approx(np.arange(60) / 30, abs=6e-4)
    assert video.duration_s == pytest.approx(2.0, abs=1e-3)
    assert numbers(video.samples(None)) == list(range(60))
    assert numbers(video.samples(5)) == list(range(0, 60, 6))
    assert numbers(video.samples(15)) == list(range(0, 60, 2))
    for index in (0, 1, 11, 12, 13, 35, 58, 59):
        assert numbers([video.frame(index)]) == [index]


@pytest.mark.parametrize("name", ["bframes.mp4", "open_gop.mkv", "h264.mp4", "hevc.mp4", "layers.mp4"])
def test_left_out_frames_change_no_pixel_of_the_others(make_video, name: str) -> None:
    path = make_video(name, frames=60, **KINDS[name])
    with av.open(str(path)) as plain:
        wanted = [frame.to_ndarray(format="rgb24") for frame in plain.decode(video=0)]
    for frame in Video.open(path).samples(4):
        assert np.array_equal(frame.rgb, wanted[frame.index])


@pytest.mark.parametrize(
    ("name", "left_out"), [("bframes.mp4", True), ("hevc.mp4", True), ("layers.mp4", False)]
)
def test_frames_that_no_other_builds_on_are_not_decoded(make_video, name: str, left_out: bool) -> None:
    """But for HEVC in several temporal layers: a frame may be marked and yet be needed by a higher one."""
    path = make_video(name, frames=60, **KINDS[name])
    pts = Video.open(path).backend.pts
    with container_module._opened(path) as (container, stream):
        decoded = list(container_module._decoded(container, stream, set(pts[::6].tolist())))
    assert {frame.pts for frame in decoded} >= set(pts[::6].tolist())
    assert (len(decoded) < 50) == left_out


def test_hidden_images_of_vp8_are_not_counted(make_video) -> None:
    path = make_video("hidden.webm", frames=30, codec="libvpx")
    with av.open(str(path)) as plain:
        packets = [bytes(packet) for packet in plain.demux(video=0) if packet.size]
    data = path.read_bytes()
    for packet in (packets[12], packets[29]):
        data = data.replace(packet, bytes([packet[0] & ~0x10]) + packet[1:])
    path.write_bytes(data)
    video = Video.open(path)
    assert video.info.num_frames == 28
    assert [frame.index for frame in video.samples(None)] == list(range(28))


def test_ntsc_rate_stays_exact_and_no_sample_comes_early(make_video) -> None:
    for name in ("ntsc.mp4", "ntsc.mkv"):
        video = Video.open(make_video(name, frames=120, rate=Fraction(30000, 1001)))
        assert video.info.fps == Fraction(30000, 1001)
        indices = video.sample_indices(5)
        assert len(indices) == 21
        late_s = np.arange(21) / 5 - video.times_s[indices]
        assert late_s.min() >= -1.001e-3
        assert late_s.max() < 1 / 29.97
        assert video.sample_indices(29.97).tolist() == list(range(120))
    assert video.times_s[30] == 1.001
    assert (
        Video.open(make_video("short.mkv", frames=5, rate=Fraction(30000, 1001))).info.fps == video.info.fps
    )


def test_rounded_times_do_not_shift_the_samples(make_video) -> None:
    video = Video.open(make_video("rounded.mkv", frames=60))
    assert video.times_s[2] == 0.067  # a little after the sample at 2/30 s
    assert video.sample_indices(15).tolist() == list(range(0, 60, 2))


def test_the_slack_for_rounding_never_reaches_the_next_frame(make_video) -> None:
    video = Video.open(make_video("fast.mp4", frames=60, rate=1000))
    assert video.sample_indices(100).tolist() == [0, 10, 20, 30, 40, 50]


def test_variable_rate(make_video) -> None:
    times = [0, 33, 66, 100, 500, 1000, 1010, 1020, 1030, 2000]
    video = Video.open(make_video("variable.mkv", frames=10, times=times, time_base=Fraction(1, 1000)))
    assert video.info.num_frames == 10
    assert video.times_s.tolist() == [time / 1000 for time in times]
    assert video.info.fps == Fraction(9, 2)
    assert numbers(video.samples(2)) == [0, 4, 5, 8, 9]
    assert [video.frame_at(t).index for t in (0, 0.05, 0.49, 0.5, 1.99, 2.0, 2.2)] == [0, 1, 3, 4, 8, 9, 9]


def test_a_slow_source_gives_each_frame_once(make_video) -> None:
    video = Video.open(make_video("slow.mp4", frames=10, rate=5))
    assert numbers(video.samples(5)) == list(range(10))
    assert numbers(video.samples(30)) == list(range(10))
    jittered = [0, 210, 390, 600, 800]
    video = Video.open(make_video("jitter.mkv", frames=5, times=jittered, time_base=Fraction(1, 1000)))
    assert video.info.fps == 5
    assert video.sample_indices(5).tolist() == [0, 1, 2, 3, 4]


def test_no_frame_comes_twice_when_the_rates_are_close(make_video) -> None:
    video = Video.open(make_video("close.mp4", frames=60, rate=30))
    indices = video.sample_indices(29)
    assert len(set(indices.tolist())) == len(indices) == 58


def test_time_zero_is_the_first_frame_shown(make_video) -> None:
    path = make_video("late.mkv", frames=6, times=range(5000, 5600, 100), time_base=Fraction(1, 1000))
    video = Video.open(path)
    assert video.times_s.tolist() == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert numbers(video.samples(5)) == [0, 2, 4]


def test_spans_neither_overlap_nor_leave_anything_out(make_video) -> None:
    video = Video.open(make_video(frames=60))
    whole = video.sample_indices(5).tolist()
    first, second = numbers(video.samples(5, until_s=0.8)), numbers(video.samples(5, start_s=0.8))
    assert first == [0, 6, 12, 18]
    assert first + second == whole
    assert numbers(video.samples(5, start_s=0.3, until_s=0.9)) == [12, 18, 24]
    assert numbers(video.samples(5, until_s=-1)) == numbers(video.samples(5, until_s=0)) == []
    assert numbers(video.samples(5, start_s=9)) == []


@pytest.fixture
def decoded(monkeypatch) -> list[int]:
    """Grows by the number of each frame that is decoded."""
    seen: list[int] = []
    plain = container_module._numbered
    monkeypatch.setattr(
        container_module, "_numbered", lambda *a: (seen.append(pair[0]) or pair for pair in plain(*a))
    )
    return seen


@pytest.mark.parametrize("name", ["far.mp4", "far.mkv", "far.ts"])
def test_far_frames_are_reached_by_key_frames(make_video, decoded: list[int], name: str) -> None:
    video = Video.open(make_video(name, frames=300, options={"g": "25", "keyint_min": "25", "bf": "2"}))
    assert numbers(video.frames([3, 5, 178, 299])) == [3, 5, 178, 299]
    assert min(number for number in decoded if number > 5) == 175
    assert not {number for number in decoded if 178 < number < 275}


def test_images_that_stand_alone_are_decoded_alone(make_video, decoded: list[int]) -> None:
    assert numbers(Video.open(make_video("images.avi", codec="mjpeg")).frames([3, 8, 50])) == [3, 8, 50]
    assert decoded == [3, 8, 50]


def test_a_seek_that_lands_late_is_repaired(make_video, decoded: list[int]) -> None:
    video = Video.open(make_video("h264.mp4", frames=60, options={"g": "10"}))
    source = video.backend
    late = container_module.Container(
        source.path, source.info, source.times_s, source.pts, source.keys, source.seeks + 10 * 512
    )
    assert numbers(Video(late).frames([45])) == [45]
    assert min(decoded) == 40
    early = container_module.Container(
        source.path, source.info, source.times_s, source.pts, source.keys, np.maximum(source.seeks, 20 * 512)
    )
    with pytest.warns(RuntimeWarning, match="1 of 1 wanted frames cannot be decoded"):
        assert numbers(Video(early).frames([12])) == []


def test_frames_at_unknown_times_get_no_number() -> None:
    frames = []
    for pts in (5, 10, 15, 20, 30, None):
        frames.append(av.VideoFrame(16, 16, "rgb24"))
        frames[-1].pts = pts
    found = container_module._numbered(iter(frames), np.array([10, 20]))
    assert [(number, frame.pts) for number, frame in found] == [(0, 10), (1, 20)]


def test_a_stream_cut_at_its_start_begins_with_the_first_frame_that_can_be_shown(make_video) -> None:
    path = make_video("joined.ts", frames=60, options={"g": "12"})
    data = path.read_bytes()
    path.write_bytes(data[len(data) * 3 // 10 // 188 * 188 :])
    video = Video.open(path)
    shown = list(video.samples(None))
    assert [frame.index for frame in shown] == list(range(video.info.num_frames))
    first = number_of(shown[0].rgb)
    assert first in (12, 24, 36)
    assert [number_of(frame.rgb) for frame in shown] == list(range(first, 60))
    assert video.times_s[0] == 0


@pytest.mark.filterwarnings("error")
def test_frames_before_the_edit_list_are_not_shown(make_video, tmp_path: Path) -> None:
    path = tmp_path / "edited.mp4"
    with (
        av.open(str(make_video("whole.mp4", frames=30, options={"bf": "0"}))) as whole,
        av.open(str(path), "w", options={"avoid_negative_ts": "disabled"}) as output,
    ):
        stream = output.add_stream_from_template(whole.streams.video[0])
        for packet in whole.demux(video=0):
            if packet.size:
                packet.pts, packet.dts = packet.pts - 10 * 512, packet.dts - 10 * 512
                packet.stream = stream
                output.mux(packet)
    video = Video.open(path)
    assert video.info.num_frames == 20
    assert [number_of(frame.rgb) for frame in video.samples(None)] == list(range(10, 30))


@pytest.mark.parametrize("angle", [90, 180, -90])
def test_rotation_is_honoured_as_opencv_does(make_video, angle: int) -> None:
    path = make_video(frames=3, rotation=angle)
    capture = cv2.VideoCapture(str(path))
    wanted = [capture.read()[1][..., ::-1] for _ in range(3)][2]
    capture.release()
    video = Video.open(path)
    assert (video.info.height, video.info.width) == wanted.shape[:2]
    assert np.abs(video.frame(2).rgb.astype(int) - wanted).mean() < 3


def test_one_frame(make_video) -> None:
    video = Video.open(make_video(frames=1))
    assert video.info.num_frames == 1
    assert numbers(video.samples(5)) == [0]
    assert video.frame_at(0.02).index == 0
    assert numbers(Video.open(make_video("brief.mp4", frames=1, rate=1000)).samples(5)) == [0]


def test_given_up_halfway_and_read_again(make_video) -> None:
    video = Video.open(make_video(frames=60))
    samples = video.samples(None)
    assert [next(samples).index for _ in range(3)] == [0, 1, 2]
    samples.close()
    assert numbers(video.samples(5)) == list(range(0, 60, 6))
    shutil.move(video.path, video.path.with_name("moved.mp4"))  # nothing holds the file


def test_frames_are_closed_before_the_reader_goes_on(make_video, monkeypatch) -> None:
    video = Video.open(make_video(frames=60))
    opened = []
    plain = av.open
    monkeypatch.setattr(av, "open", lambda *a, **k: opened.append(plain(*a, **k)) or opened[-1])
    next(video.samples(None))
    video.frame(7)
    assert len(opened) == 2
    for container in opened:
        with pytest.raises(AssertionError, match="not open"):
            container.seek(0)


def test_content_hash(make_video, tmp_path: Path, monkeypatch) -> None:
    path = make_video("one.mp4", frames=30)
    same = tmp_path / "copy.mp4"
    shutil.copy2(path, same)
    changed = tmp_path / "changed.mp4"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(data)
    first = Video.open(path)
    assert first.content_hash == Video.open(same).content_hash
    assert len(first.content_hash) == 32
    source = first.backend
    other = container_module.Container(
        changed, source.info, source.times_s, source.pts, source.keys, source.seeks
    )
    assert Video(other).content_hash != first.content_hash
    monkeypatch.setattr(container_module, "BLOCK_BYTES", 16)
    monkeypatch.setattr(container_module, "HASHED_BLOCKS", 4)
    by_blocks = Video(source).content_hash
    assert by_blocks == Video.open(same).content_hash != first.content_hash
    os.utime(same, ns=(1, 1))  # what changed may lie between the blocks
    assert Video.open(same).content_hash != by_blocks
    same.write_bytes(path.read_bytes()[:-1] + b"?")
    assert Video(container_module.Container(same, *list(vars(source).values())[1:])).content_hash != by_blocks


def write_folder(folder: Path, count: int = 12, ending: str = "png") -> Path:
    for number in range(count):
        write_image(folder / f"frame_{number}.{ending}", image_of(number))
    return folder


@pytest.mark.parametrize("ending", ["png", "jpg", "webp", "JPG"])
def test_folder_in_natural_order(tmp_path: Path, ending: str) -> None:
    folder = write_folder(tmp_path / "frames", ending=ending)
    (folder / "notes.txt").write_text("not an image")
    (folder / f"._frame_1.{ending}").write_text("left by another system")
    video = Video.open(folder)
    assert (video.info.fps, video.info.num_frames, video.duration_s) == (5, 12, pytest.approx(2.4))
    assert numbers(video.samples(5)) == list(range(12))
    assert numbers(video.samples(2.5)) == [0, 2, 4, 6, 8, 10]
    assert video.frame_at(0.5).index == 2
    assert Video.open(folder, folder_fps=29.97).info.fps == Fraction(2997, 100)


def test_folder_hash(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "one", 3)
    shutil.copytree(folder, tmp_path / "two")
    wanted = Video.open(folder).content_hash
    assert Video.open(tmp_path / "two").content_hash == wanted
    assert Video.open(folder, folder_fps=6).content_hash != wanted
    (folder / "frame_2.png").rename(folder / "frame_3.png")
    assert Video.open(folder).content_hash != wanted
    write_image(tmp_path / "two" / "frame_1.png", image_of(5))
    assert Video.open(tmp_path / "two").content_hash != wanted


def test_every_image_of_a_long_folder_counts(tmp_path: Path) -> None:
    """Each is changed in place, in the middle, to one of equal size; none goes unnoticed."""
    image = np.random.default_rng(0).integers(0, 256, (120, 160, 3), np.uint8)
    write_image(tmp_path / "0000.bmp", image)
    data = bytearray((tmp_path / "0000.bmp").read_bytes())
    for number in range(1, 400):
        (tmp_path / f"{number:04d}.bmp").write_bytes(data)
    seen = {Video.open(tmp_path).content_hash}
    data[len(data) // 2] ^= 1
    for number in range(0, 400, 7):
        (tmp_path / f"{number:04d}.bmp").write_bytes(data)
        seen.add(Video.open(tmp_path).content_hash)
    assert len(seen) == 1 + len(range(0, 400, 7))


def test_query_from_a_moment(make_video) -> None:
    query = Query.from_time(Video.open(make_video()), time_s=0.41, box=Box(0, 0, 20, 20))
    assert query.seen_at_s == 0.4
    assert number_of(query.image) == 12


def cut(path: Path, share: float) -> Path:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    return path


def test_a_cut_file_works_up_to_the_damage(make_video) -> None:
    whole = make_video("cut.mp4", frames=200, options={"g": "20"}, container={"movflags": "faststart"})
    with pytest.warns(RuntimeWarning, match=r"ends early: \d+ of 200 frames can be read"):
        video = Video.open(cut(whole, 0.7))
    assert 20 < video.info.num_frames < 200
    assert video.frame(video.info.num_frames - 1).index == video.info.num_frames - 1
    video = Video.open(cut(make_video("cut.mkv", frames=200, options={"g": "20"}), 0.7))
    assert 20 < video.info.num_frames < 200
    shown = list(video.samples(5))
    assert [frame.index for frame in shown] == video.sample_indices(5).tolist()
    assert [number_of(frame.rgb) for frame in shown] == [round(frame.time_s * 30) for frame in shown]


def hurt(path: Path, numbers: Iterable[int]) -> Path:
    """Overwrite some packets with zeros."""
    data = bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        for number in numbers:
            start, size = packets[number].pos, packets[number].size
            data[start : start + size] = bytes(size)
    path.write_bytes(data)
    return path


def test_damage_in_the_middle_is_passed_over_with_a_warning(make_video) -> None:
    path = make_video("hurt.mp4", frames=120, codec="mjpeg")
    hurt(path, [60])
    video = Video.open(path)
    with pytest.warns(RuntimeWarning, match="1 of 20 wanted frames cannot be decoded"):
        assert numbers(video.samples(5)) == [n for n in range(0, 120, 6) if n != 60]
    with (
        pytest.raises(VideoError, match=r"Frame 60 .* is damaged and cannot be decoded"),
        pytest.warns(RuntimeWarning),
    ):
        video.frame(60)


def write_empty(path: Path) -> Path:
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        output.start_encoding()
    return path


def test_bad_files(make_video, tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"There is no video at .*nowhere\.mp4"):
        Video.open(tmp_path / "nowhere.mp4")
    (tmp_path / "empty.mp4").touch()
    with pytest.raises(VideoError, match=r"is empty \(0 bytes\)"):
        Video.open(tmp_path / "empty.mp4")
    (tmp_path / "text.mp4").write_text("this is not a video\n" * 100)
    with pytest.raises(VideoError, match=r"text\.mp4 cannot be read as a video \(Invalid data"):
        Video.open(tmp_path / "text.mp4")
    with pytest.raises(VideoError, match=r"no_index\.mp4 cannot be read as a video"):
        Video.open(cut(make_video("no_index.mp4"), 0.2))
    with pytest.raises(VideoError, match=r"half_index\.mp4 holds no images: it is empty or cut off"):
        Video.open(cut(make_video("half_index.mp4"), 0.6))
    with pytest.raises(VideoError, match=r"none\.mp4 holds no images: it is empty or cut off"):
        Video.open(write_empty(tmp_path / "none.mp4"))
    with pytest.raises(VideoError, match=r"none\.mkv cannot be read as a video \(End of file\)"):
        Video.open(write_empty(tmp_path / "none.mkv"))
    with pytest.raises(VideoError, match=r"No frame of .*noise\.mp4 can be decoded"):
        Video.open(hurt(make_video("noise.mp4", codec="mjpeg", frames=4), range(4)))
    with wave.open(str(tmp_path / "sound.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(16000))
    with pytest.raises(VideoError, match=r"sound\.wav holds no images: only sound"):
        Video.open(tmp_path / "sound.wav")


REFUSALS = """
import sys
from egohieraloc.errors import VideoError
from egohieraloc.video.reader import Video
for path in sys.argv[1:]:
    try:
        Video.open(path)
    except VideoError as error:
        print(error)
"""


def test_a_list_of_other_files_is_refused_and_they_stay_closed(tmp_path: Path) -> None:
    """The other file is a pipe that nobody fills: who opened it would wait for ever."""
    os.mkfifo(tmp_path / "other.ts")
    playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nother.ts\n#EXT-X-ENDLIST\n"
    paths = [tmp_path / name for name in ("a.mp4", "a.ffconcat", "b.mp4", "b.m3u8")]
    for path in paths:
        path.write_text("ffconcat version 1.0\nfile other.ts\n" if path.stem == "a" else playlist)
    command = [sys.executable, "-c", REFUSALS, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    said = done.stdout.splitlines()
    assert len(said) == len(paths)
    assert all("cannot be read as a video" in line and "a list of other files" in line for line in said)


def test_a_name_that_looks_like_an_address_is_a_file(make_video, tmp_path: Path, monkeypatch) -> None:
    make_video("plain.mp4", frames=4).rename(tmp_path / "concat:12:30.mp4")
    monkeypatch.chdir(tmp_path)
    assert Video.open("concat:12:30.mp4").info.num_frames == 4


def test_a_cover_image_is_no_video(tmp_path: Path) -> None:
    path = tmp_path / "song.mp4"
    with av.open(str(path), "w") as output:
        sound = output.add_stream("aac", rate=8000, layout="mono")
        cover = output.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = WIDTH, HEIGHT, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        output.mux(cover.encode(av.VideoFrame.from_ndarray(image_of(1), format="rgb24")))
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), "fltp", "mono")
        silence.sample_rate = 8000
        output.mux(sound.encode(silence))
        output.mux(sound.encode(None))
    with pytest.raises(VideoError, match="only sound"):
        Video.open(path)


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match="holds no images"):
        Video.open(tmp_path)
    folder = write_folder(tmp_path / "frames", 3)
    for rate in (0, -1, math.nan, math.inf):
        with pytest.raises(VideoError, match="rate must be a positive number"):
            Video.open(folder, folder_fps=rate)
    write_image(folder / "frame_1.png", np.zeros((10, 20, 3), np.uint8))
    with pytest.raises(VideoError, match=r"frame_1\.png is 20x10, frame_0\.png is 96x64"):
        list(Video.open(folder).samples())
    (folder / "frame_1.png").write_text("text")
    with pytest.raises(VideoError, match=r"frame_1\.png is not an image"):
        Video.open(folder).frame(1)


def test_bad_questions(make_video) -> None:
    video = Video.open(make_video(frames=30))
    for index in (-1, 30):
        with pytest.raises(VideoError, match=rf"Frame {index} is not in .*frames 0 to 29"):
            video.frame(index)
        with pytest.raises(VideoError, match=rf"Frame {index} is not in .*frames 0 to 29"):
            video.sampled(indices=np.array([index]))
    for time_s in (-0.1, 1.2, math.nan, math.inf):
        with pytest.raises(VideoError, match=r"must lie between 0 and 1\.000 s"):
            video.frame_at(time_s)
    for indices in ([4, 3], [4, 4]):
        with pytest.raises(VideoError, match="must increase"):
            video.frames(indices)
        with pytest.raises(VideoError, match="must increase"):
            video.sampled(indices=np.array(indices))
    for fps in (0, -5, math.nan, math.inf):
        with pytest.raises(VideoError, match="sampling rate must be a positive number"):
            video.samples(fps)
    for span in ({"start_s": math.nan}, {"until_s": math.nan}):
        with pytest.raises(VideoError, match="Times must be numbers of seconds"):
            video.samples(5, **span)


PEAK_MEMORY = """
import resource, sys
from egohieraloc.video.reader import Video
count = sum(1 for frame in Video.open(sys.argv[1]).samples(1))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_long_video(path: Path, seconds: int) -> None:
    """A second of 1080p at 10 fps, encoded once and repeated."""
    image = np.random.default_rng(0).integers(0, 255, (1080, 1920, 3), np.uint8)
    frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format="yuv420p")
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=10, options={"preset": "ultrafast", "crf": "51"})
        stream.width, stream.height, stream.pix_fmt = 1920, 1080, "yuv420p"
        packets = []
        for number in range(10):
            frame.pts = number
            packets += stream.encode(frame)
        packets += stream.encode(None)
        ticks = packets[1].pts - packets[0].pts
        for second in range(seconds):
            for number, packet in enumerate(packets):
                packet.pts = packet.dts = (second * 10 + number) * ticks
                packet.time_base, packet.stream = stream.codec_context.time_base, stream
                output.mux(packet)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_video(tmp_path: Path) -> None:
    peaks = []
    for minutes in (2, 20):
        path = tmp_path / f"{minutes}.mp4"
        write_long_video(path, minutes * 60)
        command = [sys.executable, "-c", PEAK_MEMORY, str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        count, peak = map(int, result.stdout.split())
        assert count == minutes * 60
        peaks.append(peak)
    assert peaks[1] < 1.1 * peaks[0]


def test_focal_length_where_the_file_states_one(make_video, tmp_path: Path) -> None:
    plain = make_video("plain.mp4", frames=3)
    assert Video.open(plain).focal_px is None
    for text, wanted in (
        ("26.0", 26 / np.hypot(36, 24) * np.hypot(WIDTH, HEIGHT)),
        ("wide", None),
        ("-1", None),
    ):
        tagged = tmp_path / "tagged.mov"
        with (
            av.open(str(plain)) as source,
            av.open(str(tagged), "w", options={"movflags": "use_metadata_tags"}) as output,
        ):
            output.metadata["com.apple.quicktime.camera.focal_length.35mm_equivalent"] = text
            stream = output.add_stream_from_template(source.streams.video[0])
            for packet in source.demux(video=0):
                if packet.size:
                    packet.stream = stream
                    output.mux(packet)
        assert Video.open(tagged).focal_px == (None if wanted is None else pytest.approx(wanted))


def test_focal_length_from_the_first_image_of_a_folder(tmp_path: Path) -> None:
    image = Image.new("RGB", (64, 48))
    image.save(tmp_path / "2.jpg")
    assert Video.open(tmp_path).focal_px is None
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0xA405] = 28
    image.save(tmp_path / "1.jpg", exif=exif)
    assert Video.open(tmp_path).focal_px == pytest.approx(28 / np.hypot(36, 24) * 80)


def test_an_image_an_hour_and_names_of_other_times(tmp_path: Path) -> None:
    """Rates far below one a second, and file names that are no UTF-8."""
    for name in (b"1-\xff.png", b"2.png"):
        write_image(tmp_path / "image.png", np.zeros((4, 4, 3), np.uint8))
        os.replace(tmp_path / "image.png", os.path.join(os.fsencode(tmp_path), name))
    video = Video.open(tmp_path, folder_fps=1 / 3600)
    assert video.times_s.tolist() == [0, 3600]
    assert len(video.content_hash) == 32


def test_a_video_that_goes_away(make_video) -> None:
    video = Video.open(make_video())
    video.path.unlink()
    with pytest.raises(VideoError, match="No such file"):
        list(video.frames(np.arange(3)))
