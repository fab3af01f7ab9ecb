"""PLY files: coloured points and triangles, for every viewer of point clouds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from egohieraloc.files import atomic_path
from egohieraloc.types import Floats

_RINGS, _SIDES = 12, 20  # of an ellipsoid


@dataclass(frozen=True, eq=False)
class Mesh:
    """Points (N, 3) with one colour, and triangles of them (M, 3)."""

    vertices: Floats
    colour: tuple[int, int, int]
    triangles: NDArray[np.int64]

    @classmethod
    def points(cls, vertices: Floats, colour: tuple[int, int, int]) -> Mesh:
        return cls(vertices.reshape(-1, 3), colour, np.empty((0, 3), np.int64))


def write_ply(path: Path, meshes: list[Mesh], comments: list[str]) -> None:
    """Binary, little endian, atomically. The comments say unit and frame."""
    count = sum(len(mesh.vertices) for mesh in meshes)
    faces = sum(len(mesh.triangles) for mesh in meshes)
    header = ["ply", "format binary_little_endian 1.0", *(f"comment {line}" for line in comments)]
    header += [f"element vertex {count}", *(f"property float {axis}" for axis in "xyz")]
    header += [*(f"property uchar {name}" for name in ("red", "green", "blue"))]
    header += [f"element face {faces}", "property list uchar int vertex_indices", "end_header"]
    vertex = np.zeros(count, [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    face = np.zeros(faces, [("count", "u1"), ("corners", "<i4", 3)])
    face["count"] = 3
    row = corner = 0
    for mesh in meshes:
        vertex["xyz"][row : row + len(mesh.vertices)] = mesh.vertices
        vertex["rgb"][row : row + len(mesh.vertices)] = mesh.colour
        face["corners"][corner : corner + len(mesh.triangles)] = mesh.triangles + row
        row, corner = row + len(mesh.vertices), corner + len(mesh.triangles)
    with atomic_path(path) as temporary:
        temporary.write_bytes(
            "\n".join(header).encode("ascii", "replace") + b"\n" + vertex.tobytes() + face.tobytes()
        )


def ellipsoid(center: Floats, axes: Floats, colour: tuple[int, int, int]) -> Mesh:
    """The surface around a point (3,) with half-axes (3, 3), one per row."""
    polar, around = np.meshgrid(
        np.linspace(0, np.pi, _RINGS + 1), np.arange(_SIDES) * 2 * np.pi / _SIDES, indexing="ij"
    )
    ball = np.stack([np.sin(polar) * np.cos(around), np.sin(polar) * np.sin(around), np.cos(polar)], -1)
    ring, side = np.meshgrid(np.arange(_RINGS), np.arange(_SIDES), indexing="ij")
    here, right = ring * _SIDES + side, ring * _SIDES + (side + 1) % _SIDES
    below = np.stack([here, here + _SIDES, right], -1), np.stack([right, here + _SIDES, right + _SIDES], -1)
    return Mesh(center + ball.reshape(-1, 3) @ axes, colour, np.concatenate(below).reshape(-1, 3))
