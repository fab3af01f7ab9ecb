"""Small synthetic clips for tests: a striped object among coloured ones on noise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.config import NetworkConfig
from egohieraloc.training.batches import ClipBatch


def paint_object(image: Tensor, number: int, box: tuple[int, int, int, int]) -> None:
    """Paint object `number` into image (3, H, W): its own two colours in its own stripes."""
    x1, y1, x2, y2 = box
    generator = torch.Generator().manual_seed(1000 + number)
    colours = torch.rand(2, 3, generator=generator)
    stripes = (
        torch.arange(y2 - y1)[:, None] * 4 // max(1, y2 - y1) + (number % 2) * torch.arange(x2 - x1) // 8
    ) % 2
    image[:, y1:y2, x1:x2] = colours[stripes.long().expand(y2 - y1, x2 - x1)].permute(2, 0, 1)


def clip_batch(
    config: NetworkConfig,
    *,
    clips: int = 4,
    times: int = 2,
    seed: int = 0,
    canvas: tuple[int, int] | None = None,
) -> ClipBatch:
    """Clips in which object i is looked for; every fourth one does not show it. canvas: width and height."""
    generator = torch.Generator().manual_seed(seed)
    side = config.query_sizes[0]
    columns, rows = canvas or (config.input_size, config.input_size)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=generator))

    query = torch.zeros(clips, 3, side, side)
    query_mask = torch.zeros(clips, 1, side, side)
    quarter = round(side * 0.3 / 1.6)
    inner = (side // 2 - quarter, side // 2 - quarter, side // 2 + quarter, side // 2 + quarter)
    frames = 0.4 + 0.1 * torch.rand(clips, times, 3, rows, columns, generator=generator)
    masks = torch.zeros(clips, times, rows, columns)
    boxes = torch.zeros(clips, times, 4)
    presence = torch.zeros(clips, times)
    for clip in range(clips):
        query[clip] = 0.4 + 0.1 * torch.rand(3, side, side, generator=generator)
        paint_object(query[clip], clip, inner)
        query_mask[clip, :, inner[1] : inner[3], inner[0] : inner[2]] = 1
        for time in range(times):
            other = draw(0, columns - 60), draw(0, rows - 60)
            paint_object(frames[clip, time], clip + 50, (*other, other[0] + 48, other[1] + 40))
            if clip % 4 == 3:
                continue
            x, y, width, height = draw(0, columns - 80), draw(0, rows - 80), draw(40, 72), draw(40, 72)
            box = (x, y, x + width, y + height)
            paint_object(frames[clip, time], clip, box)
            masks[clip, time, y : y + height, x : x + width] = 1
            boxes[clip, time] = torch.tensor(box)
            presence[clip, time] = 1
    return ClipBatch(
        query,
        query_mask,
        torch.tensor([inner] * clips).float(),
        frames,
        F.avg_pool2d(masks, 4),
        boxes,
        presence,
        torch.arange(clips),
        torch.arange(clips)[:, None],
        torch.zeros(clips, times, rows // 4, columns // 4),
        torch.ones(clips),
    )
