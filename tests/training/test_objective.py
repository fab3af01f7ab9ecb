"""What a query is shown beside its own clip."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from clips import clip_batch
from egohieraloc.config import preset
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.training.objective import _add_negatives, clip_terms

SIMILARITY = torch.tensor(
    [[0.9, 0.2, 0.5, 0.4], [0.3, 0.9, 0.1, 0.2], [0.6, 0.1, 0.9, 0.7], [0.1, 0.8, 0.2, 0.9]]
)
SURE = -torch.inf  # the object may be there: no negative


def test_negatives_are_the_frames_of_other_clips_that_are_liked_best() -> None:
    seen, truth = _add_negatives(SIMILARITY, times=3, count=2)
    assert seen.tolist() == [[0, 1, 2, 6, 9], [3, 4, 5, 0, 9], [6, 7, 8, 9, 0], [9, 10, 11, 3, 6]]
    presence = truth(torch.ones(4, 3))
    assert presence.reshape(4, 5).tolist() == [[1, 1, 1, 0, 0]] * 4
    assert truth(torch.ones(4, 3, 2, 2)).shape == (20, 2, 2)


def test_a_frame_that_may_show_the_object_is_no_negative() -> None:
    similarity = SIMILARITY.clone()
    similarity[0, 2] = similarity[0, 3] = SURE
    seen, truth = _add_negatives(similarity, times=1, count=2)
    assert seen[0].tolist() == [0, 1, 0]  # too few others: its own once more, with its own truth
    boxes = torch.arange(16.0).reshape(4, 1, 4)
    assert truth(boxes).reshape(4, 3, 4)[0].tolist() == [[0, 1, 2, 3], [0, 0, 0, 0], [0, 1, 2, 3]]


def test_no_negatives_in_a_batch_of_one() -> None:
    seen, truth = _add_negatives(torch.zeros(1, 1), times=2, count=2)
    assert seen.tolist() == [[0, 1, 0]]
    assert truth(torch.tensor([[0.0, 1.0]])).tolist() == [0, 1, 0]


def test_what_a_clip_shows_is_left_out() -> None:
    """With all clips said to show the object, negatives are the own frames and no contrast is left."""
    torch.manual_seed(0)
    network = EgoHieraLocNet(preset("tiny")).eval()
    batch, chance = clip_batch(preset("tiny"), clips=3, times=1), torch.full((3, 2), 0.6)
    everywhere = dataclasses.replace(batch, shown=torch.arange(3).expand(3, 3))
    with torch.no_grad():
        alone, _ = clip_terms(network, everywhere, chance)
        again, _ = clip_terms(network, everywhere, chance, negatives=1)
        apart, _ = clip_terms(network, batch, chance, negatives=1)
    assert float(alone["contrast"]) == 0
    assert float(apart["contrast"]) > 0
    # The same frame seen twice: only what the QAM remembers of the first time makes a difference.
    assert abs(float(again["presence"] - alone["presence"])) < 1e-3
    assert abs(float(apart["presence"] - alone["presence"])) > 1e-2


def test_masks_are_learnt_from_the_own_frames_alone() -> None:
    torch.manual_seed(0)
    network = EgoHieraLocNet(preset("tiny")).eval()
    batch, chance = clip_batch(preset("tiny"), clips=4, times=2), torch.full((4, 2), 0.6)
    with torch.no_grad():
        alone, seen_alone = clip_terms(network, batch, chance)
        among, seen_among = clip_terms(network, batch, chance, negatives=2)
    for name in ("mask", "dice", "mask_in_box", "query_mask"):
        torch.testing.assert_close(among[name], alone[name])
    torch.testing.assert_close(seen_among["mask_iou"], seen_alone["mask_iou"])
    assert not torch.equal(among["presence"], alone["presence"])


def test_the_score_is_learnt_as_answers_use_it() -> None:
    """Surer where the object is, or less sure where it is not, and the loss of the score falls."""
    torch.manual_seed(0)
    network = EgoHieraLocNet(preset("tiny")).eval()
    batch, chance = clip_batch(preset("tiny"), clips=2, times=1), torch.full((2, 2), 0.6)
    shown = [dataclasses.replace(batch, presence=torch.full((2, 1), value)) for value in (1.0, 0.0)]

    def losses() -> list[float]:
        with torch.no_grad():
            return [float(clip_terms(network, clips, chance)[0]["score"]) for clips in shown]

    before = losses()
    with torch.no_grad():
        network.ram.cell.bias += 1
    after = losses()
    # Two a logit: yes gains what no loses, log(1 + exp(-x)) - log(1 + exp(x)) = -x.
    assert after[0] < before[0]
    assert after[1] > before[1]
    assert (before[0] - before[1]) - (after[0] - after[1]) == pytest.approx(2, rel=1e-3)
