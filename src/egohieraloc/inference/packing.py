"""Features of frames in few bytes: what is kept on disk, and what every answer is computed from.

Fresh and stored features go through the same rounding, so both give the same answer. Descriptors are 8-bit,
the other maps, which are never negative, are rounded on a square-root scale: 8-bit at stride 32, 4-bit at the
finer strides. N samples. Also the product of such whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from egohieraloc.models.neck import FrameFeatures
from egohieraloc.types import Ints

LEVELS = {"context": 255, "fine8": 15, "fine4": 15}
DTYPES = {"match": np.dtype(np.int8), "match_scale": np.dtype(np.float16)} | {
    f"{name}{suffix}": np.dtype(kind)
    for name in LEVELS
    for suffix, kind in (("", np.uint8), ("_scale", np.float16))
}
Codes = NDArray[np.uint8]
Scales = NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class PackedFeatures:
    """Rounded features of N samples."""

    match: NDArray[np.int8]  # (N, D, h, w)
    match_scale: Scales  # (N,)
    context: Codes  # (N, C, h, w)
    context_scale: Scales  # (N, C)
    fine8: Codes  # (N, C, h, w / 2) two cells a byte
    fine8_scale: Scales
    fine4: Codes  # (N, C, h, w / 2)
    fine4_scale: Scales

    def __post_init__(self) -> None:
        for name, dtype in DTYPES.items():
            values = getattr(self, name)
            if values.dtype != dtype or len(values) != len(self):
                raise ValueError(f"Wanted {dtype} of {len(self)} samples, got {values.dtype} {values.shape}")

    def __len__(self) -> int:
        return len(self.match)

    def __getitem__(self, index: slice | Ints) -> PackedFeatures:
        return PackedFeatures(*(getattr(self, f.name)[index] for f in fields(self)))

    @staticmethod
    def cat(parts: list[PackedFeatures]) -> PackedFeatures:
        names = [f.name for f in fields(PackedFeatures)]
        return PackedFeatures(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))

    @property
    def bytes_per_sample(self) -> float:
        return float(sum(getattr(self, f.name).nbytes for f in fields(self)) / max(1, len(self)))


def pack(features: FrameFeatures) -> PackedFeatures:
    """Round features."""
    match = features.match.float()
    scale = match.abs().amax((1, 2, 3)).clamp(min=1e-6).half()
    codes = (match / scale.float()[:, None, None, None] * 127).round().clamp(-127, 127).to(torch.int8)
    maps: dict[str, NDArray[Any]] = {}
    for name, levels in LEVELS.items():
        maps[name], maps[f"{name}_scale"] = _pack_map(getattr(features, name).float(), levels)
    return PackedFeatures(match=codes.cpu().numpy(), match_scale=scale.cpu().numpy(), **maps)


def unpack(packed: PackedFeatures, device: torch.device, *, outlines: bool = True) -> FrameFeatures:
    """The features as the network takes them, on a device. `outlines`: also the fine maps that masks need,
    else they are those of no frame."""
    some = {name: slice(None) if outlines or name == "context" else slice(0) for name in LEVELS}
    maps = {
        name: _unpack_map(
            getattr(packed, name)[some[name]], getattr(packed, f"{name}_scale")[some[name]], levels, device
        )
        for name, levels in LEVELS.items()
    }
    return FrameFeatures(unpack_match(packed.match, packed.match_scale, device), **maps)


def unpack_match(codes: NDArray[np.int8], scale: Scales, device: torch.device) -> Tensor:
    """Descriptors (N, D, h, w) alone: all that a first look at a video needs."""
    values = torch.from_numpy(codes).to(device).float()
    return values.mul_((torch.from_numpy(scale).to(device).float() / 127)[:, None, None, None])


def _pack_map(values: Tensor, levels: int) -> tuple[Codes, Scales]:
    scale = values.amax((2, 3)).clamp(min=1e-4).half()
    codes = ((values / scale.float()[..., None, None]).clamp(0, 1).sqrt() * levels).round().to(torch.uint8)
    if levels == 15:
        codes = codes[..., ::2] | (codes[..., 1::2] << 4)
    return codes.contiguous().cpu().numpy(), scale.cpu().numpy()


def _unpack_map(codes: Codes, scale: Scales, levels: int, device: torch.device) -> Tensor:
    values = torch.from_numpy(codes).to(device)
    if levels == 15:
        values = torch.stack([values & 15, values >> 4], -1).flatten(-2)
    return (values.float() / levels).square() * torch.from_numpy(scale).to(device).float()[..., None, None]


def whole_products(rows: NDArray[np.int8], columns: NDArray[np.int8]) -> NDArray[np.int32]:
    """Matrix product (N, M) of whole numbers (N, D) and (D, M)."""
    found: NDArray[np.int32] = torch._int_mm(torch.from_numpy(rows), torch.from_numpy(columns)).numpy()
    return found
