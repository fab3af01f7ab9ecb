"""Homographies, lenses, windows and mipmapped textures."""

from __future__ import annotations

import pytest
import torch

from egohieraloc.training.composer.render import (
    chain,
    dense,
    distort,
    inverse,
    mip_atlas,
    mip_level,
    projective,
    rotation,
    sample_atlas,
    scaling,
    sheared,
    tight_box,
    translation,
    undistort,
    warp,
    window_index,
    window_origin,
    window_points,
)


def random_maps(count: int) -> torch.Tensor:
    torch.manual_seed(0)
    return chain(
        translation(torch.randn(count, 2)),
        rotation(torch.randn(count)),
        sheared(torch.randn(count) * 0.2),
        scaling(torch.rand(count, 2) + 0.5),
        projective(torch.randn(count, 2) * 0.1),
    )


def test_the_elementary_maps() -> None:
    point = torch.tensor([[1.0, 2.0]])
    cases = (
        (translation(torch.tensor([[3.0, 4.0]])), (4.0, 6.0)),
        (rotation(torch.tensor([torch.pi / 2])), (-2.0, 1.0)),
        (scaling(torch.tensor([[2.0, 3.0]])), (2.0, 6.0)),
        (sheared(torch.tensor([0.5])), (2.0, 2.0)),
        (projective(torch.tensor([[0.5, 0.25]])), (0.5, 1.0)),
    )
    for matrices, expected in cases:
        torch.testing.assert_close(warp(matrices, point), torch.tensor([expected]))


def test_a_chain_is_the_product() -> None:
    first, second = random_maps(5), rotation(torch.randn(5))
    torch.testing.assert_close(chain(first[:, None], second), first[:, None] @ second)


def test_inverse_undoes_a_map() -> None:
    maps = random_maps(20)
    torch.testing.assert_close(inverse(maps), torch.linalg.inv(maps), atol=1e-4, rtol=1e-4)


def test_points_behind_the_horizon_stay_outside() -> None:
    behind = warp(projective(torch.tensor([[1.0, 0.0]])), torch.tensor([[-3.0, 0.0]]))
    assert behind[0, 0] < -10


@pytest.mark.parametrize("lens", [0.0, 0.1, 0.5])
def test_distort_undoes_undistort(lens: float) -> None:
    points = torch.rand(1, 50, 2) * 2 - 1
    k = torch.tensor([lens])
    torch.testing.assert_close(distort(undistort(points, k), k), points, atol=2e-4, rtol=0)


def test_points_of_a_window_are_those_of_the_canvas() -> None:
    whole = dense(window_points(torch.zeros(1, 2), 64, 64))
    assert whole[0, 0, 0].tolist() == pytest.approx([-1 + 1 / 64, -1 + 1 / 64])
    part = dense(window_points(torch.tensor([[7.0, 20.0]]), 32, 64))
    torch.testing.assert_close(part[0], whole[0, 20:52, 7:39], atol=1e-6, rtol=0)


def test_a_dense_lattice_is_near_the_exact_map() -> None:
    size, k = 448, torch.tensor([0.5])
    maps = projective(torch.tensor([[0.1, 0.1]])) @ rotation(torch.tensor([0.4]))
    exact_ramp = (torch.arange(size) + 0.5) * (2 / size) - 1
    exact = torch.stack(torch.meshgrid(exact_ramp, exact_ramp, indexing="xy"), -1)[None]
    exact = warp(maps, undistort(exact, k))
    ours = dense(warp(maps, undistort(window_points(torch.zeros(1, 2), size, size), k)))
    step = (exact[:, :, 1:] - exact[:, :, :-1]).norm(dim=-1)  # one pixel of the canvas, in the scene
    assert ((ours - exact).norm(dim=-1)[:, :, 1:] / step).max() < 0.05


def test_windows_stay_on_the_canvas() -> None:
    centers = torch.tensor([[-3.0, 0.0], [0.0, 0.0], [0.9, 5.0]])
    assert window_origin(centers, 32, 128).tolist() == [[0, 48], [48, 48], [96, 96]]
    index = window_index(torch.tensor([[3.0, 2.0]]), 2, 10)
    assert index.tolist() == [[23, 24, 33, 34]]


def test_every_level_of_an_atlas_shows_the_same_texture() -> None:
    ramp = torch.linspace(0.1, 0.9, 64)
    texture = ramp[None, :].expand(64, 64)[None, None] * ramp[:, None]
    points = window_points(torch.zeros(1, 2), 32, 32) * 0.8
    levels = [sample_atlas(mip_atlas(texture), points, torch.tensor([float(level)])) for level in range(4)]
    for level in levels[1:]:
        torch.testing.assert_close(level, levels[0], atol=0.02, rtol=0)


def test_an_atlas_never_leaks_from_level_to_level() -> None:
    texture = torch.ones(1, 1, 64, 64)
    points = window_points(torch.zeros(2, 2), 16, 16) * 9
    sample = sample_atlas(mip_atlas(texture), points, torch.zeros(1))
    assert sample.shape == (1, 1, 32, 16)
    torch.testing.assert_close(sample, torch.ones_like(sample))


def test_mip_levels_follow_the_texels_per_pixel() -> None:
    ratio = torch.tensor([0.2, 1.0, 1.4, 2.0, 4.0, 100.0])
    assert mip_level(ratio).tolist() == [0, 0, 0, 1, 2, 3]


def test_tight_box() -> None:
    mask = torch.zeros(3, 8, 10, dtype=torch.bool)
    mask[0, 2:5, 3:9] = True
    mask[1, 7, 0] = True
    assert tight_box(mask).tolist() == [[3, 2, 9, 5], [0, 7, 1, 8], [0, 0, 0, 0]]
