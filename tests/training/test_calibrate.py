"""Calibration: the logistic fit, the threshold, and calibrated copies of weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import expit

from egohieraloc.config import preset
from egohieraloc.errors import DataError, WeightsError
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Calibration, Weights, copy_weights, load_weights, save_weights
from egohieraloc.training.calibrate import (
    CandidateEvidence,
    Evidence,
    calibrate,
    fit,
    fit_looks,
    logistic,
    rejecting_threshold,
    shows_object,
)
from tiny_packs import calm_config, tiny_packs

CLIPS = calm_config(frame_px=224, query_px=128, clip_frames=3, pan=(0.001, 0.002), edge_share=0.0)


@pytest.fixture(scope="module")
def tiny_weights() -> Weights:
    torch.manual_seed(0)
    return Weights(EgoHieraLocNet(preset("tiny")).eval(), Calibration(), "tiny")


def test_logistic_regression_finds_the_line_that_made_the_data() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, 40_000)
    right = (rng.random(40_000) < expit(1.7 * logits - 0.8)).astype(np.float64)
    (slope,), offset = logistic(logits[:, None], right)
    assert (slope, offset) == pytest.approx((1.7, -0.8), abs=0.05)


def test_separable_data_give_a_finite_slope() -> None:
    (slope,), offset = logistic(np.array([[-3.0], [-2.0], [2.0], [3.0]]), np.array([0.0, 0.0, 1.0, 1.0]))
    assert 0 < slope < 5
    assert offset == pytest.approx(0, abs=1e-3)


def evidence(peaks: list[float], *, present: bool, correct: bool) -> list[Evidence]:
    return [Evidence(float(expit(p)), present, correct) for p in peaks]


def test_the_threshold_lies_between_most_absent_objects_and_the_next_correct_answer() -> None:
    absent = np.array([-5.0, -4, -4, -3, -3, -3, -2, -1, 6, 6])
    assert rejecting_threshold(absent, np.array([-1.5, 1.0, 3.0])) == pytest.approx((-1 + 1) / 2)


def test_without_a_correct_answer_above_them_the_threshold_is_just_above_the_absent_objects() -> None:
    found = rejecting_threshold(np.array([2.0]), np.array([0.0, 1.0]))
    assert found == pytest.approx(2.0)
    assert found > 2.0


def test_both_looks_are_weighed_by_what_they_tell() -> None:
    """Twice as much of the second as of the first; the threshold refuses four absent queries of five."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(0, 2, (2, 20_000))
    right = rng.random(20_000) < expit(0.5 * first + 1.0 * second - 1)
    seen = [
        CandidateEvidence(k, a, b, bool(r), bool(r))
        for k, (a, b, r) in enumerate(zip(first.tolist(), second.tolist(), right, strict=True))
    ]
    fitted = fit_looks(seen)
    assert (fitted.first, fitted.second, fitted.offset) == pytest.approx((0.5, 1.0, -1.0), abs=0.08)
    refused = [fitted.confidence(c.first, c.second) < fitted.threshold for c in seen if not c.present]
    assert np.mean(refused) == pytest.approx(0.8, abs=0.01)


def test_a_query_is_answered_by_its_best_candidate() -> None:
    """The absent query's better candidate sets the threshold, not its worse one."""
    absent = [CandidateEvidence(0, a, a, False, False) for a in (-4.0, 0.0)]
    present = [CandidateEvidence(1, 4.0, 4.0, True, True), CandidateEvidence(1, -4.0, -4.0, True, False)]
    fitted = fit_looks(absent + present)
    assert fitted.confidence(0.0, 0.0) < fitted.threshold < fitted.confidence(4.0, 4.0)


def test_the_threshold_is_a_calibrated_probability() -> None:
    absent = evidence([-3.0, -2.0], present=False, correct=False)
    right = evidence([1.0, 2.0, 3.0], present=True, correct=True)
    fitted = fit(absent + right)
    assert fitted.threshold == pytest.approx(expit(fitted.slope * -0.5 + fitted.offset))
    assert expit(fitted.slope * -2 + fitted.offset) < fitted.threshold < expit(fitted.slope + fitted.offset)


@pytest.mark.parametrize(("present", "correct"), [(False, False), (True, True)])
def test_too_little_evidence_is_an_error(present: bool, correct: bool) -> None:
    with pytest.raises(DataError, match=r"needs correct answers and absent objects, got \d and \d in 2"):
        fit(evidence([0.0, 1.0], present=present, correct=correct))


def test_a_copy_differs_in_its_calibration_only(tmp_path: Path, tiny_weights: Weights) -> None:
    save_weights(tmp_path / "a.safetensors", tiny_weights.network, bits=8)
    wanted = Calibration(slope=2.0, offset=-1.0, threshold=0.3)
    copy_weights(tmp_path / "a.safetensors", tmp_path / "b.safetensors", wanted)
    assert load_weights(tmp_path / "b.safetensors").calibration == wanted
    before, after = (load_file(tmp_path / f"{name}.safetensors") for name in "ab")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_only_weights_are_copied(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    with pytest.raises(WeightsError, match="cannot be read as weights"):
        copy_weights(tmp_path / "a.safetensors", tmp_path / "b.safetensors", Calibration())
    assert not (tmp_path / "b.safetensors").exists()


def test_an_untrained_network_cannot_be_calibrated(tmp_path: Path, tiny_weights: Weights) -> None:
    save_weights(tmp_path / "a.safetensors", tiny_weights.network)
    config = replace(CLIPS, absent_share=1.0)
    with pytest.raises(DataError, match="needs correct answers and absent objects, got 0 and 4 in 4 queries"):
        calibrate(tmp_path / "a.safetensors", tiny_packs(), queries=2, rounds=2, config=config)


def test_a_candidate_without_a_decoded_sample_shows_nothing() -> None:
    """A stretch of the smoothed curve may lie between decoded samples."""
    assert not shows_object((3, 4), {}, None)  # type: ignore[arg-type]
