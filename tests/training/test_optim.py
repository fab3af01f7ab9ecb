"""Learning rate schedules and the groups of the optimizer."""

from __future__ import annotations

import pytest

from egohieraloc.config import preset
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.training.optim import OptimConfig, build_optimizer, learning_rate_factor


def test_warm_up_is_linear() -> None:
    config = OptimConfig(warmup=250)
    assert learning_rate_factor(0, config) == pytest.approx(1 / 250)
    assert learning_rate_factor(124, config) == pytest.approx(0.5)
    assert learning_rate_factor(249, config) == 1


def test_the_papers_schedule() -> None:
    config = OptimConfig(schedule="paper", steps=20_000)
    expected = {250: 1, 1999: 1, 2000: 0.1, 3999: 0.1, 4000: 0.01, 10_999: 0.01, 11_000: 1e-3, 19_999: 1e-3}
    for step, factor in expected.items():
        assert learning_rate_factor(step, config) == pytest.approx(factor), step


def test_the_cosine_schedule() -> None:
    config = OptimConfig(steps=1000, warmup=200)
    assert learning_rate_factor(200, config) == pytest.approx(1)
    assert learning_rate_factor(600, config) == pytest.approx(0.01 + 0.99 / 2)
    assert learning_rate_factor(1000, config) == pytest.approx(0.01)
    assert learning_rate_factor(5000, config) == pytest.approx(0.01)


def test_optimizer_groups() -> None:
    """The backbone has its own rate, vectors have no decay, and every parameter is in one group."""
    network = EgoHieraLocNet(preset("tiny"))
    optimizer = build_optimizer(
        network, OptimConfig(learning_rate=1e-2, backbone_rate=0.1, weight_decay=0.05)
    )
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(network.parameters()))
    for name, parameter in network.named_parameters():
        (group,) = [g for g in optimizer.param_groups if any(parameter is p for p in g["params"])]
        assert group["lr"] == pytest.approx(1e-3 if name.startswith("backbone.") else 1e-2)
        assert group["weight_decay"] == (0.05 if parameter.ndim > 1 else 0)
