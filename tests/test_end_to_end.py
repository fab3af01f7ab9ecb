"""A tiny network overfits one clip, and then the command line finds the object in it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import av
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from clips import paint_object
from egohieraloc import Box, Localizer, NotFound, Query, Result, Video
from egohieraloc.config import preset
from egohieraloc.data.base import Track
from egohieraloc.evaluation.vq2d import overlap
from egohieraloc.images import write_image
from egohieraloc.inference.query_window import cut_window
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Calibration, save_weights
from egohieraloc.report.build import save_report
from egohieraloc.settings import override
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.loop import Run, train
from egohieraloc.training.optim import OptimConfig
from egohieraloc.video.letterbox import Letterbox
from untrained import run_command

SMALL = override(preset("tiny"), ["input_size=128", "query_sizes=[64,32]"])
WIDTH, HEIGHT, FPS, FRAMES = 224, 160, 10, 100
SHOWN = [*range(20, 45), *range(70, 90)]  # frames that show the object; the second stretch is the answer


def true_box(frame: int) -> tuple[int, int, int, int]:
    x = 20 + (frame % 45) * 2
    return (x, 50, x + 56, 50 + 48)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A video of a striped object among others."""
    path = tmp_path_factory.mktemp("clip") / "walk.mp4"
    generator = torch.Generator().manual_seed(0)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "12"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(FRAMES):
            image = 0.4 + 0.1 * torch.rand(3, HEIGHT, WIDTH, generator=generator)
            paint_object(image, 50 + number // 30, (130 - number % 30, 100, 180 - number % 30, 150))
            if number in SHOWN:
                paint_object(image, 0, true_box(number))
            rgb = (image.clamp(0, 1) * 255).byte().permute(1, 2, 0).contiguous().numpy()
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb)))
        container.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def query_image(tmp_path_factory):
    image = 0.45 * torch.ones(3, 120, 140)
    paint_object(image, 0, (40, 30, 96, 78))
    path = tmp_path_factory.mktemp("query") / "frame.png"
    write_image(path, (image * 255).byte().permute(1, 2, 0).contiguous().numpy())
    return path


@pytest.fixture(scope="module")
def weights(clip, query_image, tmp_path_factory):
    """A small network, trained on the clip's own samples for a moment."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    network = EgoHieraLocNet(SMALL)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.2  # the run is short
    size, side = SMALL.input_size, SMALL.query_sizes[0]
    box = Letterbox(WIDTH, HEIGHT, size)
    wide, high = box.canvas_size
    query = cut_window(Query.from_image(query_image, box=Box(40, 30, 96, 78)), share=1.6, size=side)
    frames, masks, boxes, presence = [], [], [], []
    for frame in Video.open(clip).samples(5):
        shown = frame.index in SHOWN
        on_canvas = box.box_to_canvas(Box(*true_box(frame.index)))
        mask = torch.zeros(high, wide)
        if shown:
            x1, y1, x2, y2 = (round(v) for v in on_canvas.xyxy)
            mask[y1:y2, x1:x2] = 1
        frames.append(torch.from_numpy(box.apply(frame.rgb)).permute(2, 0, 1) / 255)
        masks.append(F.avg_pool2d(mask[None, None], 4)[0, 0])
        boxes.append(torch.tensor(on_canvas.xyxy if shown else (0, 0, 0, 0)))
        presence.append(float(shown))
    window = torch.from_numpy(query.rgb).permute(2, 0, 1) / 255
    inside = torch.zeros(1, side, side)
    x1, y1, x2, y2 = (round(side * v) for v in query.box)
    inside[:, y1:y2, x1:x2] = 1

    def source(step: int) -> ClipBatch:
        pick = torch.randperm(len(frames), generator=torch.Generator().manual_seed(step))[:4]
        count = len(pick)
        return ClipBatch(
            window.repeat(count, 1, 1, 1),
            inside.repeat(count, 1, 1, 1),
            side * torch.from_numpy(query.box).float().repeat(count, 1),
            torch.stack([frames[i] for i in pick])[:, None],
            torch.stack([masks[i] for i in pick])[:, None],
            torch.stack([boxes[i] for i in pick])[:, None].float(),
            torch.tensor([presence[i] for i in pick])[:, None],
            torch.zeros(count, dtype=torch.long),
            torch.zeros(count, 1, dtype=torch.long),
            torch.zeros(count, 1, high // 4, wide // 4),
            torch.ones(count),
        )

    config = OptimConfig(
        steps=120, batch=4, learning_rate=4e-3, backbone_rate=1.0, warmup=5, ema=0.8,
        precision="no", freeze_norm="none", checkpoint_every=1000, validate_every=1000,
    )  # fmt: skip
    train(network, source, config, Run(folder / "rough"))
    settled = replace(config, learning_rate=3e-3, freeze_norm="all")  # norms as they will be used
    state = train(network, source, settled, Run(folder / "settled"))
    path = folder / "tiny.safetensors"
    save_weights(path, state.averaged, Calibration(threshold=0.3))
    return path


def test_the_command_line_finds_the_last_appearance(clip, query_image, weights, tmp_path):
    out = tmp_path / "out"
    command = [
        sys.executable, "-c", "from egohieraloc.cli import main; main()",
        "locate", clip, "--query", query_image, "--box", "40,30,56,48", "--model", weights,
        "--out", out, "--json", "--cache", tmp_path / "cache",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result == json.loads((out / "result.json").read_text())
    assert result["found"]
    rows = result["track"]
    answered = Track(np.array([row["frame"] // 2 for row in rows]), np.array([row["box"] for row in rows]))
    frames = [frame for frame in SHOWN if frame >= 70 and frame % 2 == 0]
    truth = Track(np.array(frames) // 2, np.array([true_box(f) for f in frames], float))
    temporal_iou, spatio_temporal_iou, _ = overlap(truth, answered)
    assert temporal_iou > 0.5
    assert (
        spatio_temporal_iou > 0.3
    )  # some 0.8; rounding differs by processor, and so does so short a training
    assert (out / "overlay.mp4").stat().st_size > 0
    assert (out / "curve.png").stat().st_size > 0
    assert len(list((out / "masks").glob("*.png"))) == len(result["track"])
    assert len(result["curve"]["time_s"]) == 50


def test_a_second_question_neither_decodes_nor_encodes(clip, query_image, weights, tmp_path, monkeypatch):
    localizer = Localizer.from_pretrained(weights, cache=tmp_path)
    query = Query.from_image(query_image, box=Box(40, 30, 96, 78))
    first = localizer.locate(query, Video.open(clip))

    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("the video was touched again")

    video = Video.open(clip)
    monkeypatch.setattr(localizer.predictor, "encode", never)
    monkeypatch.setattr(Video, "frames", never)
    assert localizer.locate(query, video).to_dict() == first.to_dict()
    assert [name for name, _ in first.timings_s] == ["read the video", "search for the object"]


def test_the_query_time_ends_the_search(clip, query_image, weights, tmp_path):
    localizer = Localizer.from_pretrained(weights, cache=tmp_path)
    query = Query.from_image(query_image, box=Box(40, 30, 96, 78))
    early = localizer.locate(query, clip, until_s=6.0)
    assert early.found
    assert early.track.predictions[-1].time_s < 5.0
    nothing = localizer.locate(query, clip, until_s=0.0)
    assert isinstance(nothing.track, NotFound)
    assert "no sample before the query time" in nothing.track.reason


def test_live_frames_give_the_same_answer(clip, query_image, weights, tmp_path):
    localizer = Localizer.from_pretrained(weights, cache=tmp_path)
    query = Query.from_image(query_image, box=Box(40, 30, 96, 78))
    whole = localizer.locate(query, clip)
    with localizer.live() as live:
        for frame in Video.open(clip).samples(5):
            live.add(frame.rgb, 1000 + frame.time_s)
        answered = live.ask(query)
        page = save_report(answered, tmp_path / "live")
    assert [p.sample for p in answered.track] == [p.sample for p in whole.track]
    assert answered.track.start_s == pytest.approx(1000 + whole.track.start_s)
    assert (page.parent / "overlay.mp4").stat().st_size > 10_000


def test_the_tracker_follows_and_answers_every_frame(clip, weights):
    localizer = Localizer.from_pretrained(weights)
    predictions = list(localizer.track(clip, Box(*true_box(70)), at_s=7.0))
    assert [p.frame_index for p in predictions] == list(range(72, 100, 2))
    backward = list(localizer.track(clip, Box(*true_box(70)), at_s=7.0, backward=True))
    assert [p.frame_index for p in backward] == list(range(68, -1, -2))
    seen = [p.score for p in predictions if p.frame_index in SHOWN]
    gone = [p.score for p in predictions if p.frame_index not in SHOWN]
    assert np.mean(seen) > np.mean(gone)


def test_a_report_page_comes_out(clip, query_image, weights, tmp_path):
    localizer = Localizer.from_pretrained(weights, cache=tmp_path / "cache")
    result = localizer.locate(Query.from_image(query_image, box=Box(40, 30, 96, 78)), clip)
    page = save_report(result, tmp_path / "report")
    assert page.name == "report.html"
    assert "Foreground O" in page.read_text(encoding="utf-8")
    assert len(Result.load(tmp_path / "report").maps) == len(result.maps) > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.mp4", "--query", "{query}"], "There is no video at"),
        (["{clip}", "--query", "missing.png"], "Cannot read the image"),
        (["{clip}", "--query", "{clip}"], "is not an image"),
        (["{clip}"], "Say what to look for"),
        (["{clip}", "--at", "3", "--box", "1,2,3"], "written x,y,w,h"),
        (["{clip}", "--at", "3", "--box", "nan,2,3,4"], "x,y,w,h"),
        (["{clip}", "--at", "3", "--box", "900,900,30,30"], "needs 2 pixels either way"),
        (["{clip}", "--at", "300", "--box", "10,10,30,30"], "must lie between"),
        (["{clip}", "--query", "{query}", "--set", "temporal.rul=paper"], "did you mean 'temporal.rule'"),
        (["{clip}", "--query", "{query}", "--model", "{query}"], "cannot be read as weights"),
        (["{clip}", "--query", "{query}", "--model", "nothing"], "No trained weights 'nothing'"),
        (["{clip}", "--query", "{query}", "--device", "tpu"], "Device 'tpu' cannot be used"),
        (["{clip}", "--query", "{query}", "--out", "/proc/nothing"], "Cannot write"),
    ],
)
def test_mistakes_end_in_one_clear_line(
    words, message, clip, query_image, weights, tmp_path, monkeypatch, capfd
):
    names = {"clip": clip, "query": query_image}
    filled = [word.format(**names) for word in words]
    if "--model" not in filled:
        filled += ["--model", str(weights)]
    assert run_command(["locate", *filled, "--cache", str(tmp_path / "cache")], monkeypatch) == 2
    said = capfd.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
