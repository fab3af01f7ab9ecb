"""Laws of the decoder: what it looks at, where its boxes stand, and how it scores a frame."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from egohieraloc.config import preset
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.ram import EVEN_CELL_LOGIT, Ram, RamOutput, cell_score, mask_confidence
from egohieraloc.models.weights import Calibration, Weights
from egohieraloc.settings import override

TINY = preset("tiny")
HEIGHT, WIDTH = 4, 6  # of the grid at stride 16


def build(*words: str) -> EgoHieraLocNet:
    torch.manual_seed(0)
    return EgoHieraLocNet(override(TINY, words)).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def ram() -> Ram:
    return build().ram


@pytest.fixture(scope="module")
def frames() -> tuple[FrameFeatures, Tensor]:
    """Three frames and the four maps that DPM and QAM make of them."""
    chance = torch.Generator().manual_seed(0)
    features = build().encode_frames(torch.rand(3, 3, 16 * HEIGHT, 16 * WIDTH, generator=chance))
    return features, torch.rand(3, 4, HEIGHT, WIDTH, generator=chance)


def query(count: int = 5) -> tuple[Tensor, Tensor]:
    """Tokens (3, N, D) and their sets (3, N, 2): foreground, background, and the last one of neither."""
    tokens = torch.randn(3, count, TINY.neck.match, generator=torch.Generator().manual_seed(1))
    sets = torch.zeros(3, count, 2)
    sets[:, :2, 0] = sets[:, 2:-1, 1] = 1
    return tokens, sets


def test_tokens_of_neither_set_have_no_say(ram: Ram, frames: tuple[FrameFeatures, Tensor]) -> None:
    tokens, sets = query()
    usual = ram(*frames, tokens, sets)
    for number, matters in ((0, True), (2, True), (4, False)):
        other = tokens.clone()
        other[:, number] *= -5
        changed = ram(*frames, other, sets)
        for field in ("mask_logits", "cell_logits", "boxes"):
            assert torch.equal(getattr(usual, field), getattr(changed, field)) is not matters, (number, field)


def test_the_sets_of_a_token_matter(ram: Ram, frames: tuple[FrameFeatures, Tensor]) -> None:
    tokens, sets = query()
    usual, swapped = (ram(*frames, tokens, each).cell_logits for each in (sets, sets.flip(-1)))
    assert not torch.allclose(usual, swapped, atol=1e-4)


def test_a_zero_output_is_a_box_centred_in_its_cell(
    frames: tuple[FrameFeatures, Tensor],
) -> None:
    ram = build().ram
    ram.box.weight.zero_()
    assert ram.box.bias is not None
    ram.box.bias.zero_()
    x1, y1, x2, y2 = ram(*frames, *query()).boxes.unbind(1)
    columns = (torch.arange(WIDTH) + 0.5) / WIDTH
    rows = (torch.arange(HEIGHT) + 0.5) / HEIGHT
    torch.testing.assert_close((x1 + x2) / 2, columns.expand_as(x1))
    torch.testing.assert_close((y1 + y2) / 2, rows[:, None].expand_as(y1))
    torch.testing.assert_close(x2 - x1, torch.full_like(x1, 2 / WIDTH))
    torch.testing.assert_close(y2 - y1, torch.full_like(y1, 2 / HEIGHT))


@pytest.mark.parametrize(
    ("side", "moved"), [(0, "left"), (1, "top"), (2, "right"), (3, "bottom")], ids=lambda v: str(v)
)
def test_each_output_moves_its_own_side(frames: tuple[FrameFeatures, Tensor], side: int, moved: str) -> None:
    ram = build().ram
    ram.box.weight.zero_()
    assert ram.box.bias is not None
    ram.box.bias.zero_()
    before = ram(*frames, *query()).boxes
    ram.box.bias[side] = 1.0
    shift = (ram(*frames, *query()).boxes - before)[0, :, 0, 0]
    outward = -1 if moved in {"left", "top"} else 1
    wanted = torch.zeros(4)
    wanted[side] = outward * (torch.e - 1) / (WIDTH if side % 2 == 0 else HEIGHT)
    torch.testing.assert_close(shift, wanted)


def output(ram: Ram, frames: tuple[FrameFeatures, Tensor], **options: object) -> RamOutput:
    decoded: RamOutput = ram(*frames, *query(), **options)
    return decoded


def test_the_setting_names_what_scores_a_frame(frames: tuple[FrameFeatures, Tensor]) -> None:
    usual = output(build().ram, frames, presence=True)
    wanted = {
        "cell": 2 * (usual.cell_logits.amax((1, 2)) - EVEN_CELL_LOGIT),
        "presence": usual.presence_logit,
        "mask": mask_confidence(usual.mask_logits.sigmoid()).logit(),
    }
    for name, score in wanted.items():
        found = output(build(f"ram.score={name}").ram, frames)
        torch.testing.assert_close(found.score_logit, score, msg=name)
        for field in ("mask_logits", "cell_logits", "boxes"):
            assert torch.equal(getattr(found, field), getattr(usual, field)), (name, field)
    assert len({tuple(score.tolist()) for score in wanted.values()}) == 3


def test_the_presence_head_runs_only_where_it_is_read(frames: tuple[FrameFeatures, Tensor]) -> None:
    for words, asked, runs in (
        ((), False, 0),
        ((), True, 1),
        (("ram.score=mask",), False, 0),
        (("ram.score=presence",), False, 1),
    ):
        ram, used = build(*words).ram, []
        ram.presence.register_forward_hook(lambda *_, used=used: used.append(1))
        decoded = output(ram, frames, presence=asked)
        assert len(used) == runs
        assert len(decoded.presence_logit) == 3 * runs


def test_the_score_needs_no_other_weights() -> None:
    network = build()
    weights = Weights(network, Calibration(), "test")
    changed = weights.with_settings(override(network.config, ["ram.score=presence"])).network
    assert changed.ram.config.score == "presence"
    for name, value in network.state_dict().items():
        assert torch.equal(changed.state_dict()[name], value)


def test_a_frame_is_scored_by_its_best_cell() -> None:
    logits = torch.full((2, 3, 4), -9.0)
    logits[0, 1, 2], logits[1, 0, 0] = EVEN_CELL_LOGIT, EVEN_CELL_LOGIT + 1.5
    assert cell_score(logits).tolist() == [0.0, 3.0]
    assert cell_score(logits.bfloat16()).dtype == torch.float32


def test_the_papers_confidence_of_a_mask_by_hand() -> None:
    """Pixels 0.9, 0.7, 0.4: P_ave 2/3, P_thr 0.8, P_max 0.9; without a pixel above 0.5 P_thr is 0."""
    masks = torch.zeros(4, 2, 3)
    masks[0, 0] = torch.tensor([0.9, 0.7, 0.4])
    masks[1, 1] = torch.tensor([0.4, 0.35, 0.2])
    masks[2, 0, 0] = 0.3
    masks[3, 0, 0] = 1.0
    wanted = [(2 / 3 + 0.8 + 0.9) / 3, (0.375 + 0.0 + 0.4) / 3, 0.0, 1.0]
    torch.testing.assert_close(mask_confidence(masks), torch.tensor(wanted))


def test_masks_of_some_frames_give_scores_of_those(frames: tuple[FrameFeatures, Tensor]) -> None:
    chosen = torch.tensor([2, 0])
    ram = build("ram.score=mask").ram
    some, everything = output(ram, frames, outlined=chosen), output(ram, frames)
    torch.testing.assert_close(some.score_logit, everything.score_logit[chosen])
