"""Fused Triton kernels for CUDA: one pass over memory for what `painting.py` and `degrade.py` do in many.

The letters of shapes are those of the two files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from egohieraloc.training.composer.painting import Backdrop, Layer

BLOCK = 512
SQUARES = 32  # blocks of 8 x 8 pixels that one program compresses


def paint_background(canvas: Tensor, photos: Tensor, backdrop: Backdrop, points: Tensor) -> Tensor:
    """`painting.paint_background`, in place."""
    count, _, side, _ = canvas.shape
    frames = count // len(backdrop.photos)
    _paint_background[(triton.cdiv(side**2, BLOCK), count)](
        canvas, photos, backdrop.photos, backdrop.mirrored, points, side, points.shape[1], frames, block=BLOCK
    )
    return canvas


def paint(
    canvas: Tensor, layer: Layer, shadow: Tensor, label: Tensor | int | None, opaque: Tensor | None
) -> Tensor:
    """`painting.paint`, in place."""
    count, _, side, _ = canvas.shape
    lattice = layer.points.shape[1]
    if not isinstance(label, Tensor):
        label = torch.full((count,), -1 if label is None else label, device=canvas.device)
    if opaque is None:
        opaque = torch.ones(count, dtype=torch.bool, device=canvas.device)
    grid = (triton.cdiv(layer.window**2, BLOCK), count)
    _paint[grid](
        canvas,
        layer.atlas,
        layer.points.contiguous(),
        layer.low.contiguous(),
        layer.high.contiguous(),
        layer.origin.contiguous(),
        shadow,
        label,
        opaque,
        side,
        layer.window,
        lattice,
        layer.atlas.shape[-2],
        layer.atlas.shape[-1],
        layer.atlas.stride(0),
        count // len(layer.atlas),
        block=BLOCK,
    )
    return canvas


def shift_and_add(image: Tensor, drift: Tensor, swing: Tensor, reach: float) -> Tensor:
    """One pass of `degrade.motion_blur`: the mean of four copies of the image shifted along the motion."""
    count, _, side, _ = image.shape
    image, out = image.contiguous(), torch.empty_like(image, memory_format=torch.contiguous_format)
    _shift_and_add[(triton.cdiv(side**2, BLOCK), count)](
        image, out, drift.contiguous(), swing.contiguous(), reach, side, block=BLOCK
    )
    return out


def compress(
    image: Tensor, strength: Tensor, basis: Tensor, steps: Tensor, ycc: Tensor, rgb: Tensor
) -> Tensor:
    """`degrade.Codec`, given its tables."""
    count, _, height, width = image.shape
    image, out = image.contiguous(), torch.empty_like(image, memory_format=torch.contiguous_format)
    squares = height * width // 64
    _compress[(triton.cdiv(squares, SQUARES), count)](
        image, out, strength.float(), basis, steps, ycc, rgb, squares, width, height * width, block=SQUARES
    )
    return out


def grade(image: Tensor, mix: Tensor, lift: Tensor, gamma: Tensor) -> Tensor:
    """`degrade.grade`, given the colour matrices (N, 3, 3) and offsets (N,)."""
    count, _, height, width = image.shape
    image, out = image.contiguous(), torch.empty_like(image, memory_format=torch.contiguous_format)
    _grade[(triton.cdiv(height * width, BLOCK), count)](
        image, out, mix.contiguous(), lift.contiguous(), gamma.contiguous(), height * width, block=BLOCK
    )
    return out


def blur(image: Tensor, weights: Tensor) -> Tensor:
    """Each image convolved with its own row of weights (N, taps), horizontally and then vertically."""
    count, _, height, width = image.shape
    for down in (False, True):
        image, out = image.contiguous(), torch.empty_like(image, memory_format=torch.contiguous_format)
        _blur[(triton.cdiv(height * width, BLOCK), count * 3)](
            image, out, weights.contiguous(), height, width, taps=weights.shape[1], down=down, block=BLOCK
        )
        image = out
    return image


@triton.jit
def _paint_background(canvas, photos, numbers, mirrored, points, side, lattice, frames, block: tl.constexpr):
    sample = tl.program_id(1)
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    inside = pixel < side * side
    row, column = pixel // side, pixel % side
    corner = points + ((sample * lattice + row // 4) * lattice + column // 4) * 2
    down, right = (row % 4).to(tl.float32) / 4, (column % 4).to(tl.float32) / 4
    u = _reflected(_between(corner, lattice * 2, down, right, inside))
    v = _reflected(_between(corner + 1, lattice * 2, down, right, inside))
    left, top = tl.floor(u).to(tl.int32), tl.floor(v).to(tl.int32)
    du, dv = u - left, v - top
    next_left, next_top = tl.minimum(left + 1, 767), tl.minimum(top + 1, 767)
    numbers += sample // frames * 9
    mirrored += sample // frames * 9
    a = _photo_pixel(photos, numbers, mirrored, left, top, inside)
    b = _photo_pixel(photos, numbers, mirrored, next_left, top, inside)
    c = _photo_pixel(photos, numbers, mirrored, left, next_top, inside)
    d = _photo_pixel(photos, numbers, mirrored, next_left, next_top, inside)
    spot = canvas + sample.to(tl.int64) * 5 * side * side + pixel
    for channel in tl.static_range(3):
        upper = _byte(a + channel, inside) * (1 - du) + _byte(b + channel, inside) * du
        lower = _byte(c + channel, inside) * (1 - du) + _byte(d + channel, inside) * du
        tl.store(spot + channel * side * side, (upper * (1 - dv) + lower * dv) / 255, mask=inside)


@triton.jit
def _reflected(x):
    """A backdrop coordinate in pixels (0 to 767), reflected at the borders."""
    u = tl.abs((x + 1) * 384)
    folds = tl.floor(u / 768)
    rest = u - folds * 768
    odd = folds - 2 * tl.floor(folds / 2)
    u = tl.where(odd == 0, rest, 768 - rest) - 0.5
    return tl.minimum(tl.maximum(u, 0.0), 767.0)


@triton.jit
def _photo_pixel(photos, numbers, mirrored, x, y, inside):
    """Address of the colour of a backdrop pixel."""
    cell = y // 256 * 3 + x // 256
    number = tl.load(numbers + cell, mask=inside, other=0).to(tl.int64)
    turned = tl.load(mirrored + cell, mask=inside, other=0) != 0
    column = tl.where(turned, 255 - x % 256, x % 256)
    return photos + (number * 65536 + y % 256 * 256 + column) * 3


@triton.jit
def _byte(place, inside):
    return tl.load(place, mask=inside, other=0).to(tl.float32)


@triton.jit
def _paint(
    canvas,
    atlas,
    points,
    low,
    high,
    origin,
    shadow,
    label,
    opaque,
    side,
    window,
    lattice,
    height,
    width,
    atlas_stride,
    windows,  # windows of each texture
    block: tl.constexpr,
):
    sample = tl.program_id(1)
    texture = sample // windows
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    inside = pixel < window * window
    row, column = pixel // window, pixel % window

    # The atlas point, interpolated between four points of the lattice.
    corner = points + ((sample * lattice + row // 4) * lattice + column // 4) * 2
    down, right = (row % 4).to(tl.float32) / 4, (column % 4).to(tl.float32) / 4
    x = _between(corner, lattice * 2, down, right, inside)
    y = _between(corner + 1, lattice * 2, down, right, inside)
    x = tl.minimum(tl.maximum(x, tl.load(low + texture * 2)), tl.load(high + texture * 2))
    y = tl.minimum(tl.maximum(y, tl.load(low + texture * 2 + 1)), tl.load(high + texture * 2 + 1))
    u, v = _pixel(x, width), _pixel(y, height)
    left, top = tl.floor(u).to(tl.int32), tl.floor(v).to(tl.int32)
    du, dv = u - left, v - top
    next_left = tl.minimum(left + 1, width - 1)
    next_top = tl.minimum(top + 1, height - 1)
    texels = atlas + texture.to(tl.int64) * atlas_stride
    plane = height * width
    a, b = top * width + left, top * width + next_left
    c, d = next_top * width + left, next_top * width + next_left

    alpha = _texel(texels + 3 * plane, a, b, c, d, du, dv, inside)
    shade = _texel(texels + 4 * plane, a, b, c, d, du, dv, inside)
    kept = 1 - alpha
    dark = kept * (1 - shade * tl.load(shadow + sample))
    solid = tl.load(opaque + sample) != 0
    corner_x = tl.load(origin + sample * 2).to(tl.int32)
    corner_y = tl.load(origin + sample * 2 + 1).to(tl.int32)
    spot = canvas + sample.to(tl.int64) * 5 * side * side + (corner_y + row) * side + corner_x + column
    for channel in tl.static_range(3):
        under = tl.load(spot + channel * side * side, mask=inside).to(tl.float32)
        colour = _texel(texels + channel * plane, a, b, c, d, du, dv, inside) + under * dark
        tl.store(spot + channel * side * side, tl.where(solid, colour, under), mask=inside)
    marked = tl.load(label + sample)
    for channel in tl.static_range(3, 5):
        under = tl.load(spot + channel * side * side, mask=inside).to(tl.float32)
        mark = under * kept + tl.where(marked == channel, alpha, 0.0)
        tl.store(spot + channel * side * side, mark, mask=inside)


@triton.jit
def _between(corner, line, down, right, inside):
    """Bilinear interpolation between a value, the next one, and the two below them."""
    left = tl.load(corner, mask=inside)
    left += (tl.load(corner + line, mask=inside) - left) * down
    other = tl.load(corner + 2, mask=inside)
    other += (tl.load(corner + line + 2, mask=inside) - other) * down
    return left + (other - left) * right


@triton.jit
def _pixel(x, size):
    """A coordinate from -1 to 1 in pixels, clamped because rounding may put it just outside."""
    return tl.minimum(tl.maximum(((x + 1) * size - 1) / 2, 0.0), size - 1.0)


@triton.jit
def _texel(plane, a, b, c, d, du, dv, inside):
    upper = tl.load(plane + a, mask=inside) * (1 - du) + tl.load(plane + b, mask=inside) * du
    lower = tl.load(plane + c, mask=inside) * (1 - du) + tl.load(plane + d, mask=inside) * du
    return upper * (1 - dv) + lower * dv


@triton.jit
def _shift_and_add(image, out, drift, swing, reach, side, block: tl.constexpr):
    sample = tl.program_id(1)
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    inside = pixel < side * side
    x = ((pixel % side).to(tl.float32) + 0.5) * (2 / side) - 1
    y = ((pixel // side).to(tl.float32) + 0.5) * (2 / side) - 1
    turn = tl.load(swing + sample)
    along_x = tl.load(drift + sample * 2) - turn * y
    along_y = tl.load(drift + sample * 2 + 1) + turn * x
    plane = side * side
    start = image + sample.to(tl.int64) * 3 * plane
    red, green, blue = x * 0, x * 0, x * 0
    for tap in tl.static_range(4):
        step = (tap - 1.5) * reach
        u, v = _pixel(x + along_x * step, side), _pixel(y + along_y * step, side)
        left, top = tl.floor(u).to(tl.int32), tl.floor(v).to(tl.int32)
        du, dv = u - left, v - top
        next_left, next_top = tl.minimum(left + 1, side - 1), tl.minimum(top + 1, side - 1)
        a, b = top * side + left, top * side + next_left
        c, d = next_top * side + left, next_top * side + next_left
        red += _texel(start, a, b, c, d, du, dv, inside)
        green += _texel(start + plane, a, b, c, d, du, dv, inside)
        blue += _texel(start + 2 * plane, a, b, c, d, du, dv, inside)
    spot = out + sample.to(tl.int64) * 3 * plane + pixel
    tl.store(spot, red / 4, mask=inside)
    tl.store(spot + plane, green / 4, mask=inside)
    tl.store(spot + 2 * plane, blue / 4, mask=inside)


@triton.jit
def _compress(image, out, strength, basis, steps, ycc, rgb, squares, width, plane, block: tl.constexpr):
    sample = tl.program_id(1)
    square = tl.program_id(0) * block + tl.arange(0, block)
    number = tl.arange(0, 64)
    inside = (square < squares)[:, None] & (number < 64)[None, :]
    across = width // 8
    corner = (square // across) * 8 * width + square % across * 8
    spot = sample.to(tl.int64) * 3 * plane + corner[:, None] + (number // 8 * width + number % 8)[None, :]
    red = tl.load(image + spot, mask=inside, other=0).to(tl.float32)
    green = tl.load(image + spot + plane, mask=inside, other=0).to(tl.float32)
    blue = tl.load(image + spot + 2 * plane, mask=inside, other=0).to(tl.float32)
    table = tl.load(basis + number[:, None] * 64 + number[None, :])
    scale = tl.load(strength + sample)
    luma = _quantised(_mixed(ycc, red, green, blue), table, steps, scale, number)
    first = _quantised(_mixed(ycc + 3, red, green, blue), table, steps + 64, scale, number)
    second = _quantised(_mixed(ycc + 6, red, green, blue), table, steps + 128, scale, number)
    for channel in tl.static_range(3):
        colour = _mixed(rgb + 3 * channel, luma, first, second)
        tl.store(out + spot + channel * plane, tl.minimum(tl.maximum(colour, 0.0), 1.0), mask=inside)


@triton.jit
def _mixed(row, a, b, c):
    """One row of a 3 x 3 matrix times three planes."""
    return tl.load(row) * a + tl.load(row + 1) * b + tl.load(row + 2) * c


@triton.jit
def _quantised(pixels, table, steps, scale, number):
    """Blocks (n, 64) with their cosine coefficients rounded to multiples of the steps."""
    step = tl.load(steps + number)[None, :] * scale
    rounded = tl.floor(tl.dot(pixels, tl.trans(table)) / step + 0.5) * step
    return tl.dot(rounded, table)


@triton.jit
def _grade(image, out, mix, lift, gamma, plane, block: tl.constexpr):
    sample = tl.program_id(1)
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    inside = pixel < plane
    spot = sample.to(tl.int64) * 3 * plane + pixel
    power = tl.load(gamma + sample)
    red = _with_gamma(image + spot, power, inside)
    green = _with_gamma(image + spot + plane, power, inside)
    blue = _with_gamma(image + spot + 2 * plane, power, inside)
    added = tl.load(lift + sample)
    for channel in tl.static_range(3):
        colour = _mixed(mix + sample * 9 + 3 * channel, red, green, blue) + added
        tl.store(out + spot + channel * plane, tl.minimum(tl.maximum(colour, 0.0), 1.0), mask=inside)


@triton.jit
def _with_gamma(place, power, inside):
    value = tl.load(place, mask=inside, other=1).to(tl.float32)
    return tl.exp(power * tl.log(tl.maximum(value, 1e-3)))


@triton.jit
def _blur(image, out, weights, height, width, taps: tl.constexpr, down: tl.constexpr, block: tl.constexpr):
    plane = tl.program_id(1)
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    inside = pixel < height * width
    row, column = pixel // width, pixel % width
    start = image + plane.to(tl.int64) * height * width
    total = (pixel * 0).to(tl.float32)
    for tap in tl.static_range(taps):
        if down:
            place = tl.minimum(tl.maximum(row + tap - taps // 2, 0), height - 1) * width + column
        else:
            place = row * width + tl.minimum(tl.maximum(column + tap - taps // 2, 0), width - 1)
        weight = tl.load(weights + plane // 3 * taps + tap)
        total += weight * tl.load(start + place, mask=inside, other=0).to(tl.float32)
    tl.store(out + plane.to(tl.int64) * height * width + pixel, total, mask=inside)
