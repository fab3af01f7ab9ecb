"""How many cores this process may use, and how its threads wait, settled before NumPy and torch are imported.

Threads of OpenMP spin while they wait for each other. On cores that other work shares, a spinning thread
takes the time of the one it waits for: an answer then takes several times as long as with threads that sleep.
Those of OpenBLAS, below NumPy, spin long after each product, and ours are too small to gain by them.
"""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
PATIENT = {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
    "OPENBLAS_NUM_THREADS": "1",
}


def usable_cores() -> int:
    """Cores that this process may use: OMP_NUM_THREADS where it is set, else what the system allows."""
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        allowed = os.cpu_count() or 1
    return max(1, min(allowed, _quota()))


def settle(share: int = 1) -> None:
    """Threads that sleep while they wait, and for each of `share` processes its part of the cores.

    Sets the environment, for this process if torch is not imported yet and for those it starts. What the user
    has set stays, but for the part.
    """
    for name, value in PATIENT.items():
        os.environ.setdefault(name, value)
    os.environ["OMP_NUM_THREADS"] = str(max(1, usable_cores() // share))


def _quota() -> int:
    """Cores that a container's limit comes to, rounded up; very many without a limit."""
    limits = (("cpu.max", None), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))  # cgroups 2 and 1
    for quota_file, period_file in limits:
        try:
            words = (CGROUP / quota_file).read_text().split()
            period = words[1] if period_file is None else (CGROUP / period_file).read_text()
            if words[0] not in ("max", "-1"):
                return -(-int(words[0]) // int(period))
        except (OSError, ValueError, IndexError):
            continue
    return 1 << 16
