"""Images for floor, walls, rug, paintings and book spines, made from noise. sRGB floats (H, W, 3).

Nothing repeats: a wall that repeats itself would look alike in two places to feature matching.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.float64]
Rng = np.random.Generator
BOOK_COLOURS = np.array(
    [
        (0.55, 0.16, 0.14),
        (0.16, 0.27, 0.42),
        (0.20, 0.38, 0.28),
        (0.80, 0.72, 0.55),
        (0.83, 0.60, 0.22),
        (0.42, 0.28, 0.20),
        (0.68, 0.69, 0.70),
        (0.22, 0.20, 0.24),
    ]
)


def fractal(shape: tuple[int, int], rng: Rng, *, coarsest: tuple[float, float], octaves: int = 6) -> Picture:
    """Noise in about [-1, 1]; `coarsest` is the size (rows, columns) of its largest blobs in pixels."""
    total = np.zeros(shape)
    for octave in range(octaves):
        cell = [max(size / 2**octave, 1.0) for size in coarsest]
        grid = rng.normal(size=[int(n / c) + 3 for n, c in zip(shape, cell, strict=True)])
        rows, columns = (np.arange(n) / c for n, c in zip(shape, cell, strict=True))
        total += _bilinear(grid, rows, columns) * 0.72**octave
    return total / np.abs(total).max()


def plaster(shape: tuple[int, int], rng: Rng, colour: tuple[float, float, float]) -> Picture:
    """Limewashed wall: soft clouds, brush strokes and specks."""
    clouds = fractal(shape, rng, coarsest=(300, 300), octaves=8)
    strokes = fractal(shape, rng, coarsest=(30, 120), octaves=5)
    specks = (rng.random(shape) < 0.0012).astype(float)
    specks = specks + np.roll(specks, 1, 0) + np.roll(specks, 1, 1)
    return np.clip(np.array(colour) * (1 + 0.16 * clouds + 0.10 * strokes - 0.25 * specks)[..., None], 0, 1)


def bricks(shape: tuple[int, int], rng: Rng, brick: tuple[int, int] = (26, 84)) -> Picture:
    """Painted brick wall; `brick` is (height, width) in pixels."""
    rows, columns = np.indices(shape).astype(float)
    rows += 2.5 * fractal(shape, rng, coarsest=(60, 60))
    columns += 2.5 * fractal(shape, rng, coarsest=(60, 60))
    course = (rows // brick[0]).astype(int)
    shifted = columns + (course % 2) * brick[1] / 2
    number = (shifted // brick[1]).astype(int)
    tone = rng.normal(size=(course.max() + 3, number.max() + 3))[course, number]
    edge = np.minimum.reduce([rows % brick[0], shifted % brick[1]])
    grain = fractal(shape, rng, coarsest=(24, 24), octaves=5)
    clay = np.array([0.66, 0.40, 0.31]) * (1 + 0.13 * tone + 0.18 * grain)[..., None]
    mortar = np.array([0.74, 0.70, 0.65]) * (1 + 0.10 * grain)[..., None]
    return np.clip(np.where((edge < 3)[..., None], mortar, clay), 0, 1)


def planks(shape: tuple[int, int], rng: Rng, width: int = 38) -> Picture:
    """Wooden floor, boards along the columns."""
    picture = np.empty((*shape, 3))
    for top in range(0, shape[0], width):
        rows = min(width, shape[0] - top)
        grain = fractal((rows, shape[1]), rng, coarsest=(9, 260), octaves=6)
        left = -int(rng.integers(0, 400))
        while left < shape[1]:
            right = left + int(rng.integers(280, 520))
            span = slice(max(left, 0), min(right, shape[1]))
            colour = np.array([0.62, 0.44, 0.28]) * (1 + 0.12 * rng.normal())
            picture[top : top + rows, span] = colour * (1 + 0.34 * grain[:, span])[..., None]
            picture[top : top + rows, max(right - 2, 0) : right] *= 0.5
            left = right
        picture[top : top + 2] *= 0.5
    return np.clip(picture, 0, 1)


def rug(shape: tuple[int, int], rng: Rng) -> Picture:
    """Woven rug: bands of irregular motifs inside a border."""
    palette = np.array([[0.55, 0.13, 0.12], [0.85, 0.78, 0.62], [0.12, 0.20, 0.34], [0.78, 0.52, 0.20]])
    cells = rng.integers(0, 4, (shape[0] // 32 + 1, shape[1] // 64 + 1))
    mirrored = np.concatenate([cells, cells[:, ::-1]], 1)
    picture = palette[np.kron(mirrored, np.ones((32, 32), int))[: shape[0], : shape[1]]]
    rows, columns = np.indices(shape)
    diamond = (np.abs(rows % 32 - 16) + np.abs(columns % 32 - 16)) < 10
    picture[diamond] = palette[rng.integers(0, 4, (shape[0] // 32 + 1, shape[1] // 32 + 1))][
        rows[diamond] // 32, columns[diamond] // 32
    ]
    edge = np.minimum.reduce([rows, columns, shape[0] - 1 - rows, shape[1] - 1 - columns])
    picture[edge < 34] = palette[2]
    picture[(edge > 12) & (edge < 20)] = palette[1]
    weave = rng.normal(size=shape) * 0.10 + 0.12 * fractal(shape, rng, coarsest=(80, 80))
    return np.clip(picture * (1 + weave)[..., None], 0, 1)


def painting(rng: Rng, shape: tuple[int, int] = (300, 400)) -> Picture:
    """Hills under a sky, a sun, and some dots of colour."""
    rows, columns = np.indices(shape) / np.array(shape)[:, None, None]
    hue = rng.random(3)
    picture = 0.45 + 0.5 * (hue * (1 - rows[..., None]) + (1 - hue) * rows[..., None])
    sun = np.hypot(rows - rng.uniform(0.15, 0.4), (columns - rng.uniform(0.2, 0.8)) * 1.33) < rng.uniform(
        0.06, 0.13
    )
    picture[sun] = (0.98, 0.85, 0.45)
    for layer in range(5):
        ridge = 0.35 + 0.12 * layer + 0.16 * fractal((1, shape[1]), rng, coarsest=(1, 160), octaves=6)
        colour = BOOK_COLOURS[rng.integers(len(BOOK_COLOURS))] * (1.1 - 0.1 * layer)
        strokes = 1 + 0.4 * fractal(shape, rng, coarsest=(10, 40), octaves=4)[..., None]
        picture = np.where((rows > ridge)[..., None], colour * strokes, picture)
    for _ in range(40):
        dot = np.hypot(rows - rng.random(), (columns - rng.random()) * 1.33) < rng.uniform(0.006, 0.02)
        picture[dot] = BOOK_COLOURS[rng.integers(len(BOOK_COLOURS))]
    return np.clip(picture * (1 + 0.07 * rng.normal(size=shape))[..., None], 0, 1)


def spines(rng: Rng, cells: int = 8, cell: int = 128) -> Picture:
    """A sheet of `cells` x `cells` book spines with bands and something like lettering."""
    sheet = np.empty((cells * cell, cells * cell, 3))
    for row in range(cells):
        for column in range(cells):
            colour = BOOK_COLOURS[rng.integers(len(BOOK_COLOURS))] * rng.uniform(0.7, 1.15)
            ink = np.array([0.92, 0.86, 0.66]) if colour.mean() < 0.5 else np.array([0.12, 0.1, 0.1])
            spine = np.broadcast_to(colour, (cell, cell, 3)).copy()
            for band in rng.integers(4, cell - 8, 3):
                spine[band : band + int(rng.integers(2, 7))] = ink
            letters = rng.random((cell // 2, 4)) < 0.5
            blocks = np.kron(letters[: cell // 4], np.ones((2, cell // 10), bool))
            top, left = int(rng.integers(16, 44)), cell // 3
            area = spine[top : top + blocks.shape[0], left : left + blocks.shape[1]]
            area[blocks[: area.shape[0], : area.shape[1]]] = ink
            spine *= (1 + 0.06 * rng.normal(size=(cell, cell)))[..., None]
            sheet[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell] = spine
    return np.clip(sheet, 0, 1)


def garden(rng: Rng, shape: tuple[int, int] = (400, 400)) -> Picture:
    """What one sees through the window: sky over bushes."""
    rows = np.indices(shape)[0] / shape[0]
    clouds = fractal(shape, rng, coarsest=(60, 160))
    sky = np.array([0.62, 0.78, 0.95]) * (1 - 0.25 * rows[..., None]) + 0.2 * np.clip(clouds, 0, 1)[..., None]
    leaves = fractal(shape, rng, coarsest=(40, 40), octaves=7)
    green = np.array([0.25, 0.42, 0.16]) * (1 + 0.9 * leaves[..., None])
    ridge = 0.55 + 0.15 * fractal((1, shape[1]), rng, coarsest=(1, 90))
    return np.clip(np.where((rows > ridge)[..., None], green, sky), 0, 1)


def _bilinear(grid: Picture, rows: Picture, columns: Picture) -> Picture:
    """Values of `grid` at the outer product of `rows` and `columns`, eased so that no lattice shows."""
    i, j = rows.astype(int), columns.astype(int)
    u, v = (rows - i)[:, None], (columns - j)[None]
    u, v = u * u * (3 - 2 * u), v * v * (3 - 2 * v)
    top = grid[i][:, j] * (1 - v) + grid[i][:, j + 1] * v
    bottom = grid[i + 1][:, j] * (1 - v) + grid[i + 1][:, j + 1] * v
    return top * (1 - u) + bottom * u
