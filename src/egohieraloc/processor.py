"""Processors that announce an instruction set which they cannot run.

Some virtual machines announce Intel's AMX but hide the table that describes its tiles (CPUID leaf 0x1D).
oneDNN, inside torch and OpenVINO, then sets up no tiles, and its first 8-bit or 16-bit product ends the
process with an illegal instruction.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
LIMIT = "ONEDNN_MAX_CPU_ISA"
WITHOUT_TILES = "AVX512_CORE_FP16"
# push rbx; mov eax, 0x1d; xor ecx, ecx; cpuid; pop rbx; ret
READ_TILE_TABLE = bytes.fromhex("53 b81d000000 31c9 0fa2 5b c3")


def avoid_broken_tiles() -> None:
    """Keep oneDNN from AMX where its tiles are not described. To be called before oneDNN is used."""
    if LIMIT not in os.environ and _announces_tiles() and _tile_tables() == 0:
        os.environ[LIMIT] = WITHOUT_TILES


def without_tiles() -> bool:
    """Whether oneDNN is kept from AMX. The decoder then takes longer in 16 bits than in 32."""
    return os.environ.get(LIMIT) == WITHOUT_TILES


def _announces_tiles() -> bool:
    try:
        return platform.machine() == "x86_64" and "amx_tile" in CPUINFO.read_text().split()
    except OSError:  # not Linux
        return False


def _tile_tables() -> int | None:
    """How many tables of tiles the processor describes; None where the system lets no program ask."""
    try:
        with mmap.mmap(
            -1, len(READ_TILE_TABLE), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        ) as page:
            page.write(READ_TILE_TABLE)
            start = ctypes.c_char.from_buffer(page)
            tables = ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(start))()
            del start  # the page cannot close while it is held
            return int(tables)
    except (OSError, ValueError):
        return None
