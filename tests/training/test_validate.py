"""Validation during training: the benchmark's metrics, the best weights, no effect on the run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from egohieraloc.config import preset
from egohieraloc.data.base import Track
from egohieraloc.errors import DataError
from egohieraloc.localize import Localizer
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Calibration, Weights, load_weights
from egohieraloc.settings import override
from egohieraloc.training.composer.composed_videos import compose_halves
from egohieraloc.training.validate import ALL, Answers, Share, Validation, composed_answers, ego4d_answers
from footage_world import write_ego4d
from tiny_packs import calm_config, tiny_packs

SMALL = override(preset("tiny"), ["input_size=128", "query_sizes=[64,32]"])
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def network() -> EgoHieraLocNet:
    torch.manual_seed(0)
    return EgoHieraLocNet(SMALL).eval()


def track(first: int, shift: float = 0.0) -> Track:
    frames = np.arange(first, first + 4)
    return Track(frames, np.tile([10.0 + shift, 10, 50 + shift, 50], (4, 1)))


def scripted(*rounds: list[tuple[Track, Track, float]]):
    waiting = list(rounds)

    def answer(localizer: Localizer, share: Share) -> Answers:
        assert localizer.weights.calibration.threshold == 0  # no answer is rejected
        assert share == ALL
        return [(number, *row) for number, row in enumerate(waiting.pop(0))]

    return answer


RIGHT, WRONG = (track(3), track(3), 0.9), (track(3), track(30), 0.8)


def test_scores_are_the_benchmarks(tmp_path: Path, network: EgoHieraLocNet) -> None:
    half = [RIGHT, (track(3), track(3, shift=30.0), 0.7), WRONG, WRONG]
    scores = Validation(scripted(half), tmp_path, CPU, resume=False)(10, network)
    assert scores["success"] == 50
    assert scores["tap25"] == pytest.approx((1 + 1 / 2) / 4)  # ranked 1, wrong, wrong, 4th
    assert scores["stap25"] == pytest.approx(1 / 4)
    assert scores["recovery"] == pytest.approx(25)


def test_the_best_is_kept_through_a_resume(tmp_path: Path, network: EgoHieraLocNet) -> None:
    validation = Validation(scripted([WRONG], [RIGHT], [RIGHT]), tmp_path, CPU, resume=False)
    kept = []
    for step in (1, 2, 3):
        validation(step, network)
        kept.append(json.loads((tmp_path / "best.json").read_text())["step"])
    assert kept == [1, 2, 2]
    again = Validation(scripted([WRONG, RIGHT], [RIGHT]), tmp_path, CPU, resume=True)
    again(4, network)
    assert json.loads((tmp_path / "best.json").read_text())["step"] == 2
    assert load_weights(tmp_path / "best.safetensors").network.config == SMALL
    fresh = Validation(scripted([WRONG]), tmp_path, CPU, resume=False)
    fresh(1, network)
    assert json.loads((tmp_path / "best.json").read_text())["step"] == 1


def test_composed_queries_all_have_an_answer_and_never_change(network: EgoHieraLocNet) -> None:
    config = calm_config(frame_px=128, query_px=64, clip_frames=2, edge_share=0.0)
    halves = compose_halves(tiny_packs(), CPU, clips=4, config=config)
    answer_queries = composed_answers(halves)
    localizer = Localizer(Weights(network, Calibration(threshold=0.0), "tiny"), device="cpu")
    state = torch.get_rng_state()
    first = list(answer_queries(localizer, ALL))
    shares = [list(answer_queries(localizer, (number, 3))) for number in range(3)]
    assert torch.equal(torch.get_rng_state(), state)
    assert [[number for number, *_ in share] for share in shares] == [[0, 3], [1], [2]]
    second = sorted((row for share in shares for row in share), key=lambda row: row[0])
    assert [number for number, *_ in first] == [0, 1, 2, 3]
    for (_, truth, answer, score), (_, truth_again, answer_again, score_again) in zip(
        first, second, strict=True
    ):
        assert len(truth) == 2
        assert np.array_equal(truth.boxes_xyxy, truth_again.boxes_xyxy)
        assert np.array_equal(answer.frames, answer_again.frames)
        assert score == score_again


def test_ego4d_queries(tmp_path: Path, network: EgoHieraLocNet) -> None:
    """Three clips have two queries each; for three queries every second clip is used."""
    path = write_ego4d(tmp_path)
    localizer = Localizer(
        Weights(network, Calibration(threshold=0.0), "tiny"), device="cpu", cache=tmp_path / "c"
    )
    answer_queries = ego4d_answers(path, tmp_path / "clips", 3)
    answers = list(answer_queries(localizer, ALL))
    assert [number for number, *_ in answers] == [0, 1, 2, 3]
    assert [truth.frames.tolist() for _, truth, _, _ in answers[:2]] == [[*range(4, 10)], [*range(8, 15)]]
    assert [number for number, *_ in answer_queries(localizer, (1, 2))] == [2, 3]
    for _, _, answer, score in answers:
        assert answer.is_contiguous
        assert 0 <= score <= 1
    content = json.loads(path.read_text())
    crop = content["videos"][0]["clips"][0]["annotations"][0]["query_sets"]["1"]["visual_crop"]
    crop |= {"x": -500.0}  # outside the image: a miss
    path.write_text(json.dumps(content))
    (_, _, nothing, score), *_ = ego4d_answers(path, tmp_path / "clips", 3)(localizer, ALL)
    assert (len(nothing), score) == (0, 0)
    with pytest.raises(DataError, match=r"No clip of .* is in .*validation.queries=0"):
        ego4d_answers(path, tmp_path, 3)
