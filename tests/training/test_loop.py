"""The loop: exact resuming, several processes as one, clear failures, and that it learns."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from pathlib import Path
from types import MethodType

import pytest
import torch
from torch import multiprocessing

from clips import clip_batch
from egohieraloc.config import NetworkConfig, preset
from egohieraloc.data.base import Track
from egohieraloc.errors import ConfigError, WeightsError
from egohieraloc.localize import Localizer
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.settings import override
from egohieraloc.training import checkpoint
from egohieraloc.training.batches import ClipBatch, part_of_batch
from egohieraloc.training.checkpoint import TrainState
from egohieraloc.training.loop import LossNotFiniteError, Run, train
from egohieraloc.training.losses import LossWeights
from egohieraloc.training.optim import OptimConfig, build_optimizer, learning_rate_factor
from egohieraloc.training.shared_norm import share_norms
from egohieraloc.training.validate import Answers, Share, Validation

SMALL = override(preset("tiny"), ["input_size=128", "query_sizes=[64,32]"])
SHORT = OptimConfig(
    steps=6,
    batch=4,
    warmup=2,
    precision="no",
    freeze_norm="none",
    checkpoint_every=2,
    log_every=1,
    validate_every=3,
)


def build(config: NetworkConfig = SMALL, seed: int = 0) -> EgoHieraLocNet:
    torch.manual_seed(seed)
    return EgoHieraLocNet(config)


def source(step: int) -> ClipBatch:
    return clip_batch(SMALL, clips=4, times=1, seed=step)


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def assert_equal_states(one: TrainState, other: TrainState) -> None:
    assert one.step == other.step
    for a, b in ((one.network, other.network), (one.averaged, other.averaged)):
        for (name, x), y in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
            assert torch.equal(x, y), name
    for x, y in zip(
        one.optimizer.state_dict()["state"].values(),
        other.optimizer.state_dict()["state"].values(),
        strict=True,
    ):
        assert all(torch.equal(x[key], y[key]) for key in x)


class Killed(BaseException):
    """Caught by nothing, like a signal."""


STEADY = override(SHORT, ["schedule=paper"])  # learning rates do not depend on the number of steps


def endless(folder: str) -> None:
    torch.set_num_threads(1)
    train(build(), source, override(STEADY, ["steps=1000", "checkpoint_every=1"]), Run(Path(folder)))


@pytest.mark.slow
def test_a_killed_process_leaves_a_checkpoint_to_resume_from(tmp_path: Path) -> None:
    """SIGKILL while a checkpoint is written every step: a partial file is never read."""
    process = multiprocessing.get_context("spawn").Process(target=endless, args=(str(tmp_path),))
    process.start()
    deadline = time.monotonic() + 120
    while not (tmp_path / checkpoint.CHECKPOINT).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.7)
    process.kill()
    process.join()
    step = torch.load(tmp_path / checkpoint.CHECKPOINT, weights_only=True)["step"]
    config = override(STEADY, [f"steps={step + 1}"])
    resumed = train(build(seed=1), source, config, Run(tmp_path, resume=True))
    assert_equal_states(resumed, train(build(), source, config, Run(tmp_path / "whole")))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainState, list[dict[str, float]]]:
    """A whole run: its state and its log."""
    folder = tmp_path_factory.mktemp("whole")
    return train(build(), source, SHORT, Run(folder)), log_of(folder)


@pytest.mark.parametrize("killed_at", [1, 3, 5])
def test_a_killed_and_resumed_run_ends_with_the_same_bits(
    tmp_path: Path, killed_at: int, uninterrupted: tuple[TrainState, list[dict[str, float]]]
) -> None:
    def dying(step: int) -> ClipBatch:
        if step == killed_at:
            raise Killed
        return source(step)

    with pytest.raises(Killed):
        train(build(), dying, SHORT, Run(tmp_path))
    saved = (tmp_path / checkpoint.CHECKPOINT).exists()
    assert saved == (killed_at >= 2)
    resumed = train(build(seed=int(saved)), source, SHORT, Run(tmp_path, resume=saved))
    whole, log = uninterrupted
    assert_equal_states(whole, resumed)
    assert not list(tmp_path.glob(".*"))
    assert log[-1]["total"] == log_of(tmp_path)[-1]["total"]


def test_an_interrupted_checkpoint_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(build(), source, override(SHORT, ["steps=2"]), Run(tmp_path))
    before = (tmp_path / checkpoint.CHECKPOINT).read_bytes()

    def fail(value: object, path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise Killed

    monkeypatch.setattr(checkpoint.torch, "save", fail)
    with pytest.raises(Killed):
        train(build(), source, SHORT, Run(tmp_path, resume=True))
    assert (tmp_path / checkpoint.CHECKPOINT).read_bytes() == before


def test_missing_and_broken_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no checkpoint in .* Start without --resume"):
        train(build(), source, SHORT, Run(tmp_path, resume=True))
    (tmp_path / checkpoint.CHECKPOINT).write_bytes(b"half a file")
    with pytest.raises(WeightsError, match="cannot be read"):
        train(build(), source, SHORT, Run(tmp_path, resume=True))


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    train(build(), source, override(SHORT, ["steps=1"]), Run(tmp_path))
    other = build(override(SMALL, ["ram.width=32"]))
    with pytest.raises(WeightsError, match=r"another network"):
        train(other, source, SHORT, Run(tmp_path, resume=True))


def test_a_run_stopped_by_the_time_limit_can_be_resumed(tmp_path: Path) -> None:
    state = train(build(), source, SHORT, Run(tmp_path, time_limit_s=0))
    assert state.step == 1
    assert train(build(seed=1), source, SHORT, Run(tmp_path, resume=True)).step == SHORT.steps


@pytest.mark.parametrize("log_every", [1, 1000])
def test_a_loss_that_is_not_finite_stops_before_it_is_saved(tmp_path: Path, log_every: int) -> None:
    def poisoned(step: int) -> ClipBatch:
        batch = source(step)
        if step == 2:
            batch.frames.fill_(torch.nan)
        return batch

    config = override(SHORT, [f"log_every={log_every}"])
    with pytest.raises(LossNotFiniteError, match=r"at step [34]. Lower optim.learning_rate") as caught:
        train(build(), poisoned, config, Run(tmp_path))
    assert "resume from the last checkpoint" in str(caught.value)
    saved = torch.load(tmp_path / checkpoint.CHECKPOINT, weights_only=True)
    assert saved["step"] == 2
    assert all(v.isfinite().all() for v in saved["network"].values())


def test_log_and_validation(tmp_path: Path) -> None:
    def validate(step: int, network: EgoHieraLocNet) -> dict[str, float]:
        assert not network.training
        return {"success": step / 10}

    train(
        build(), source, override(SHORT, ["validate_every=4"]), Run(tmp_path), validate=validate
    )  # and after the last step
    rows = log_of(tmp_path)
    terms = [row for row in rows if "total" in row]
    assert [row["step"] for row in terms] == [1, 2, 3, 4, 5, 6]
    assert [(row["step"], row["success"]) for row in rows if "success" in row] == [(4, 0.4), (6, 0.6)]
    weights = LossWeights()
    for row in terms:
        total = sum(getattr(weights, name) * row[name] for name in weights.__dataclass_fields__)
        assert row["total"] == pytest.approx(total, abs=1e-4)
        assert row["learning_rate"] == pytest.approx(
            SHORT.learning_rate * learning_rate_factor(int(row["step"]) - 1, SHORT), abs=1e-6
        )


def test_average_follows_the_weights() -> None:
    network = build()
    state = TrainState.start(network, build_optimizer(network, SHORT))
    before = state.averaged.coarse.clone()
    with torch.no_grad():
        network.coarse += 1
    state.average(network, 0.999)  # in the first step the decay is 1/10
    torch.testing.assert_close(state.averaged.coarse, before + 0.9)
    state.step = 10**6
    state.average(network, 0.999)
    torch.testing.assert_close(state.averaged.coarse, before + 0.9 + 0.1 * 0.001)


@pytest.mark.slow
def test_a_compiled_network_learns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def only_traced(forward: MethodType, **options: object) -> object:
        compiled.append(forward.__self__)
        return torch._dynamo.optimize("eager")(forward)

    monkeypatch.setattr(torch, "compile", only_traced)
    losses = []
    for word in ("false", "true"):
        network = build()
        train(network, source, override(SHORT, ["steps=3", f"compile={word}"]), Run(tmp_path / word))
        losses.append([row["total"] for row in log_of(tmp_path / word)])
    assert compiled == [network.backbone]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize(("where", "frozen"), [("none", 0), ("backbone", 1), ("all", 2)])
def test_frozen_statistics_stay(tmp_path: Path, where: str, frozen: int) -> None:
    network = build()
    before = {n: b.clone() for n, b in network.named_buffers() if n.endswith("running_mean")}
    train(network, source, override(SHORT, ["steps=1", f"freeze_norm={where}"]), Run(tmp_path))
    after = dict(network.named_buffers())
    same = {n for n in before if torch.equal(before[n], after[n])}
    backbone = {n for n in before if n.startswith("backbone.")}
    assert same == (set(), backbone, set(before))[frozen]


@pytest.mark.parametrize(("where", "frozen"), [("none", 0), ("backbone", 1), ("all", 2)])
def test_frozen_gains_stay(tmp_path: Path, where: str, frozen: int) -> None:
    network = build()
    gains = {
        f"{name}.{part}": getattr(module, part).clone()
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.BatchNorm2d)
        for part in ("weight", "bias")
    }
    settings = override(SHORT, ["steps=1", f"freeze_norm={where}", "freeze_gain=true"])
    train(network, source, settings, Run(tmp_path))
    after = dict(network.named_parameters())
    same = {n for n in gains if torch.equal(gains[n], after[n])}
    backbone = {n for n in gains if n.startswith("backbone.")}
    assert same == (set(), backbone, set(gains))[frozen]


def test_frozen_stages_stay(tmp_path: Path) -> None:
    network = build()
    before = {name: value.clone() for name, value in network.named_parameters()}
    settings = override(SHORT, ["steps=1", "freeze_stages=2", "freeze_norm=backbone"])
    averaged = train(network, source, settings, Run(tmp_path)).averaged
    first = ("backbone.stem.", "backbone.stages.0.", "backbone.stages.1.")
    for name, value in network.named_parameters():
        assert torch.equal(value, before[name]) == name.startswith(first), name
        assert not name.startswith(first) or torch.equal(averaged.get_parameter(name), before[name]), name


@pytest.mark.parametrize("count", [-1, 5])
def test_the_number_of_frozen_stages_is_checked(tmp_path: Path, count: int) -> None:
    with pytest.raises(ConfigError, match="between 0 and 4"):
        train(build(), source, override(SHORT, [f"freeze_stages={count}"]), Run(tmp_path))


DISTRIBUTED = override(SHORT, ["steps=4", "freeze_norm=backbone", "negatives=0", "validate_every=4"])
NO_CONTRAST = LossWeights(contrast=0)  # like negatives, it only sees the clips of its own process


def validation(folder: Path, share: Share) -> Validation:
    """Ten queries, of which the first three are found; a file says who answered which."""

    def answer(localizer: Localizer, share: Share) -> Answers:
        box, there, elsewhere = [(10.0, 10.0, 50.0, 50.0)], [3], [7]
        for number in range(share[0], 10, share[1]):
            with (folder / f"answered-{share[0]}.txt").open("a") as file:
                file.write(f"{number} ")
            found = there if number < 3 else elsewhere
            yield number, Track.from_boxes(there, box), Track.from_boxes(found, box), 1 - number / 20

    return Validation(answer, folder, torch.device("cpu"), resume=False, share=share)


def worker(rank: int, processes: int, port: int, folder: str) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
    }
    torch.set_num_threads(1)
    part = part_of_batch(4, rank, processes)
    state = train(
        build(),
        lambda step: source(step).take(part),
        DISTRIBUTED,
        Run(Path(folder)),
        weights=NO_CONTRAST,
        validate=validation(Path(folder), (rank, processes)),
    )
    torch.save(state.network.state_dict(), Path(folder) / f"rank{rank}.pt")
    torch.save(through_a_norm(part_of_batch(6, rank, processes)), Path(folder) / f"norm{rank}.pt")
    torch.distributed.destroy_process_group()


def through_a_norm(part: slice) -> dict[str, torch.Tensor]:
    """What a BatchNorm makes of a part of a batch: output, gradients and statistics."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.BatchNorm2d(3)).double()
    if part != slice(0, 6):
        share_norms(network)
    whole = torch.randn(6, 3, 4, 5, dtype=torch.float64) * 3 + 1
    values = whole[part].requires_grad_()
    output = network(values)
    (output * torch.linspace(-1, 1, 6, dtype=torch.float64)[part][:, None, None, None].exp()).sum().backward()
    norm = network[0]
    return {
        "output": output.detach(),
        "gradient": values.grad,
        "gain": norm.weight.grad,
        "mean": norm.running_mean,
        "variance": norm.running_var,
    }


def flat(network: EgoHieraLocNet, state: dict[str, torch.Tensor] | None) -> torch.Tensor:
    network.load_state_dict(state or network.state_dict())
    return torch.cat([p.detach().double().flatten() for p in network.parameters()])


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """With the same batches in total; one absent clip among four makes the parts unequal."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    validate = validation(tmp_path / "one", (0, 1))
    one = train(build(), source, DISTRIBUTED, Run(tmp_path / "one"), weights=NO_CONTRAST, validate=validate)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(worker, (2, port, str(tmp_path / "two")), nprocs=2)
    ranks = [torch.load(tmp_path / "two" / f"rank{r}.pt", weights_only=True) for r in range(2)]
    for name, value in ranks[0].items():
        assert torch.equal(value, ranks[1][name]), name
    start, alone, both = (flat(build(), state) for state in (None, one.network.state_dict(), ranks[0]))
    # About 3e-6. Not compared weight by weight, as Adam amplifies rounding where gradients are nearly zero.
    assert float((both - alone).norm()) < 1e-3 * float((alone - start).norm())
    halves = [torch.load(tmp_path / "two" / f"norm{r}.pt", weights_only=True) for r in range(2)]
    for name, value in through_a_norm(slice(0, 6)).items():
        parts = [half[name] for half in halves]
        joined = (
            torch.cat(parts) if name in ("output", "gradient") else sum(parts) / (1 if name == "gain" else 2)
        )
        torch.testing.assert_close(joined, value, rtol=1e-10, atol=1e-12)
    single, double = log_of(tmp_path / "one"), log_of(tmp_path / "two")
    assert len(single) == len(double) == DISTRIBUTED.steps + 1  # and the validation
    assert single[-1]["success"] == double[-1]["success"] == 30
    answered = [(tmp_path / "two" / f"answered-{r}.txt").read_text().split() for r in range(2)]
    assert answered == [["0", "2", "4", "6", "8"], ["1", "3", "5", "7", "9"]]
    assert (tmp_path / "two" / "best.json").read_text() == (tmp_path / "one" / "best.json").read_text()
    for row, other in zip(single, double, strict=True):
        for name in set(row) - {"time_s", "elapsed_s", "contrast", "data_wait", "frames_per_s"}:
            assert other[name] == pytest.approx(row[name], rel=1e-3, abs=2e-4), name


def test_a_used_folder_is_refused(tmp_path: Path) -> None:
    config = override(SHORT, ["steps=2"])
    train(build(), source, config, Run(tmp_path))
    before = (tmp_path / checkpoint.CHECKPOINT).read_bytes()
    with pytest.raises(
        ConfigError, match=r"has the checkpoint\.pt of another run\. Continue it with --resume"
    ):
        train(build(), source, config, Run(tmp_path))
    assert (tmp_path / checkpoint.CHECKPOINT).read_bytes() == before


def test_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    train(build(), source, override(SHORT, ["checkpoint_every=1", "keep_checkpoints=3"]), Run(tmp_path))
    kept = sorted(tmp_path.glob("checkpoint-*.pt"))
    assert [torch.load(path, weights_only=True)["step"] for path in kept] == [4, 5, 6]
    assert kept[-1].samefile(tmp_path / checkpoint.CHECKPOINT)
    # Going back to one: its steps are taken again.
    (tmp_path / checkpoint.CHECKPOINT).unlink()
    kept[0].rename(tmp_path / checkpoint.CHECKPOINT)
    assert train(build(), source, SHORT, Run(tmp_path, resume=True)).step == 6
    alone = tmp_path / "alone"
    train(build(), source, override(SHORT, ["steps=2", "keep_checkpoints=1"]), Run(alone))
    assert [path.name for path in alone.glob("checkpoint*")] == [checkpoint.CHECKPOINT]


def test_the_log_says_how_long_data_was_waited_for(tmp_path: Path) -> None:
    def slow(step: int) -> ClipBatch:
        time.sleep(0.2)
        return source(step)

    train(build(), slow, override(SHORT, ["steps=2", "log_every=2"]), Run(tmp_path))
    (line,) = log_of(tmp_path)
    assert 0 < line["data_wait"] < 1
    assert line["data_wait"] * line["elapsed_s"] > 0.35
    assert 8 / line["frames_per_s"] == pytest.approx(line["elapsed_s"], rel=0.5)  # 2 steps of 4 frames


def test_parts_of_a_batch() -> None:
    assert [part_of_batch(6, rank, 3) for rank in range(3)] == [slice(0, 2), slice(2, 4), slice(4, 6)]
    with pytest.raises(ConfigError, match=r"4 clips cannot be divided among 3 processes. Change optim.batch"):
        part_of_batch(4, 0, 3)


def test_a_small_network_overfits_one_batch(tmp_path: Path) -> None:
    batch = source(0)
    config = OptimConfig(
        steps=50,
        warmup=10,
        learning_rate=8e-3,
        backbone_rate=1.0,
        precision="no",
        freeze_norm="none",
        log_every=10,
        checkpoint_every=10**6,
    )
    train(build(), lambda step: batch, config, Run(tmp_path))
    last = log_of(tmp_path)[-1]
    assert last["mask_iou"] > 0.9
    assert last["presence_accuracy"] == 1
    assert math.isfinite(last["total"])
