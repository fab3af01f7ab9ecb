"""From decoded samples to the answer: interpolation, reasons, calibration."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import stored
from stored import sampled, search_over

from egohieraloc.config import SearchConfig, TemporalConfig
from egohieraloc.inference.answer import Answer, answer
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.store import FeatureStore
from egohieraloc.models.weights import Calibration
from egohieraloc.types import Box, NotFound, ResponseTrack
from egohieraloc.video.letterbox import Letterbox

LETTERBOX = Letterbox(128, 48, 64)  # half the size on a canvas of 64 x 32, 4 black rows above
PLAIN = TemporalConfig(median=1)
decoded = partial(stored.decoded, columns=16)


def ask(
    samples: dict[int, Decoded],
    count: int,
    *,
    calibration: Calibration | None = None,
    config: TemporalConfig = PLAIN,
    stride: int = 1,
) -> Answer:
    encoded = EncodedVideo(sampled(count, width=128), LETTERBOX, FeatureStore(Path("unused")))
    knows = SimpleNamespace(calibration=calibration or Calibration())
    search = search_over(encoded, knows, config=SearchConfig(stride=stride), temporal=config)
    return answer(search, samples)


def found(result: Answer) -> ResponseTrack:
    assert isinstance(result.track, ResponseTrack), result.track
    return result.track


def test_a_track_in_original_pixels() -> None:
    track = found(ask({s: decoded(0.9, left=s) for s in (3, 4, 5)}, 10))
    assert [p.sample for p in track.predictions] == [3, 4, 5]
    assert [p.frame_index for p in track.predictions] == [18, 24, 30]
    assert [p.time_s for p in track.predictions] == pytest.approx([0.6, 0.8, 1.0])
    assert track.predictions[0].box.xyxy == (6, 12, 22, 20)  # (3, 10, 11, 14) on the canvas
    assert track.predictions[0].mask is not None
    assert track.predictions[0].mask.shape == (6, 16)  # without the black rows
    assert np.argwhere(track.predictions[0].mask).tolist() == [[3, 4]]
    assert track.predictions[0].mask_box == Box(0, 0, 128, 48)


def test_boxes_stay_inside_the_frame() -> None:
    track = found(ask({0: decoded(0.9, left=62)}, 1))
    assert track.predictions[0].box.xyxy == (124, 12, 128, 20)


def test_samples_that_were_not_decoded_score_zero() -> None:
    result = ask({2: decoded(0.9), 3: decoded(0.8)}, 6)
    assert result.curve.raw.tolist() == [0, 0, 0.9, 0.8, 0, 0]


def test_undecoded_samples_inside_a_track_are_interpolated() -> None:
    """Gaps up to `bridge` samples do not end an appearance; their boxes lie between, without a mask."""
    track = found(ask({2: decoded(0.9, left=0), 5: decoded(0.9, left=12)}, 8))
    assert [p.sample for p in track.predictions] == [2, 3, 4, 5]
    assert [p.box.x1 for p in track.predictions] == pytest.approx([0, 8, 16, 24])
    assert [p.mask is None for p in track.predictions] == [False, True, True, False]
    assert [p.score for p in track.predictions] == [0.9, 0, 0, 0.9]


def test_skipped_samples_lie_between_the_decoded_ones() -> None:
    samples = {0: decoded(0.3, 0), 3: decoded(0.9, 3), 6: decoded(0.6, 12)}
    result = ask(samples, 9, stride=3, config=TemporalConfig(median=1, extend_share=0.1))
    expected = [0.3, 0.5, 0.7, 0.9, 0.8, 0.7, 0.6, 0.6, 0.6]
    np.testing.assert_allclose(result.curve.raw, expected, atol=1e-12)
    boxes = [p.box.x1 / 2 for p in found(result).predictions]
    assert boxes == pytest.approx([0, 1, 2, 3, 6, 9, 12, 12, 12])


def test_decoded_scores_are_never_changed_by_their_neighbours() -> None:
    """Two stretches of skipping that lie closer than the stride."""
    samples = {0: decoded(0.2), 3: decoded(0.4), 5: decoded(1.0), 8: decoded(0.7), 20: decoded(0.5)}
    raw = ask(samples, 24, stride=3).curve.raw
    for sample, value in samples.items():
        assert raw[sample] == value.score
    np.testing.assert_allclose(raw[3:6], [0.4, 0.7, 1.0])
    assert raw[8:12].tolist() == [0.7, 0.7, 0.7, 0]
    assert raw[20:].tolist() == [0.5, 0.5, 0.5, 0]


def test_the_last_sample_of_the_video_may_be_skipped_or_not() -> None:
    for count in (4, 5, 6):
        raw = ask({0: decoded(0.5), 3: decoded(1.0)}, count, stride=3).curve.raw
        np.testing.assert_allclose(raw, [0.5, 2 / 3, 5 / 6, 1, 1, 1][:count])


def test_an_empty_video() -> None:
    result = ask({}, 0)
    assert result.track == NotFound("The video has no sample before the query time.")
    assert result.curve.raw.shape == (0,)
    assert result.alternatives == ()


@pytest.mark.parametrize("samples", [{}, {1: decoded(0.0)}])
def test_nothing_alike(samples: dict[int, Decoded]) -> None:
    assert ask(samples, 4).track == NotFound("Nothing in the video looks like the query.")


def test_a_weak_answer_is_not_found_and_says_so() -> None:
    result = ask({2: decoded(0.3)}, 5, calibration=Calibration(threshold=0.5))
    assert isinstance(result.track, NotFound)
    assert "best guess, at 0:00.4, has confidence 0.30, an answer needs 0.50." in result.track.reason
    assert result.track.score == pytest.approx(0.3)
    assert result.alternatives[0].start == 2  # it is still there to look at


def test_calibration_by_hand() -> None:
    result = ask({2: decoded(0.8)}, 5, calibration=Calibration(slope=2, offset=-1, threshold=0.1))
    logit = 2 * math.log(0.8 / 0.2) - 1
    assert found(result).score == pytest.approx(1 / (1 + math.exp(-logit)))


def test_certain_scores_do_not_overflow() -> None:
    assert found(ask({0: decoded(1.0)}, 1)).score == pytest.approx(1, abs=1e-5)


def test_alternatives_come_by_falling_score_and_are_limited() -> None:
    peaks = {0: 0.5, 10: 0.9, 20: 0.6, 30: 0.95, 40: 0.4}
    result = ask({s: decoded(v) for s, v in peaks.items()}, 45)
    assert found(result).start == 30
    assert [track.start for track in result.alternatives] == [10, 20, 0]
    assert [track.score for track in result.alternatives] == pytest.approx([0.9, 0.6, 0.5])


def test_a_candidate_below_the_threshold_does_not_win() -> None:
    """The median of a short peak is low: the rule prefers a later, longer one that has less confidence."""
    scores = {5: 0.2, 6: 0.9, 7: 0.2, 20: 0.3, 21: 0.3, 22: 0.3, 23: 0.3}
    samples = {s: decoded(v) for s, v in scores.items()}
    calibration = Calibration(threshold=0.5)
    result = ask(samples, 30, config=TemporalConfig(), calibration=calibration)
    assert (found(result).start, found(result).end) == (5, 7)
    assert [t.start for t in result.alternatives] == [20]
    missed = ask(samples, 30, config=TemporalConfig(), calibration=Calibration(threshold=0.95))
    assert isinstance(missed.track, NotFound)
    assert "best guess, at 0:01.4, has confidence 0.90, an answer needs 0.95." in missed.track.reason
    assert [t.start for t in missed.alternatives] == [5, 20]


def test_when_not_found_the_best_is_the_first_alternative() -> None:
    peaks = {0: 0.1, 10: 0.2, 20: 0.15, 30: 0.3, 40: 0.12}
    result = ask({s: decoded(v) for s, v in peaks.items()}, 45)
    assert isinstance(result.track, NotFound)
    assert [track.start for track in result.alternatives] == [30, 10, 20]


def test_one_frame() -> None:
    track = found(ask({0: decoded(0.9)}, 1, config=TemporalConfig()))
    assert (track.start, track.end) == (0, 0)


def test_the_papers_rule_has_no_threshold_of_confidence() -> None:
    """Its last interval is the answer, though an earlier one is surer and it is below the threshold."""
    scores = {2: 0.9, 6: 0.75}
    strict = Calibration(slope=1.0, offset=0.0, threshold=0.8)
    samples = {number: decoded(score, left=0) for number, score in scores.items()}
    assert found(ask(samples, 10, calibration=strict)).start == 2
    literal = TemporalConfig(median=1, rule="paper", bridge=0)
    assert found(ask(samples, 10, calibration=strict, config=literal)).start == 6
