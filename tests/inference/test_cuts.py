"""What tells a cut: the mean descriptor of a sample."""

from __future__ import annotations

import numpy as np

from egohieraloc.inference.cuts import mean_descriptors

RANDOM = np.random.default_rng(0)


def test_a_mean_descriptor_is_the_direction_of_the_mean_of_unit_cells() -> None:
    """However long the packed cells are, and on canvases of any shape."""
    lengths = RANDOM.uniform(0.1, 1, (3, 1, 4, 6))
    match = np.round(RANDOM.uniform(-20, 127, (3, 8, 4, 6)) * lengths).astype(np.int8)
    for sample, said in zip(match, mean_descriptors(match), strict=True):
        cells = [sample[:, y, x] / np.linalg.norm(sample[:, y, x]) for y in range(4) for x in range(6)]
        mean = np.mean(cells, axis=0)
        np.testing.assert_allclose(said, mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-6)


def test_an_empty_cell_says_nothing_and_empty_samples_are_no_error() -> None:
    match = np.zeros((2, 4, 2, 2), np.int8)
    match[0, 1, 0, 1] = 100
    np.testing.assert_allclose(mean_descriptors(match), [[0, 1, 0, 0], [0, 0, 0, 0]], atol=1e-6)
