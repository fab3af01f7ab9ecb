"""A Ray cluster to work on: the one at an address, or a new one on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from egohieraloc.children import SAFE_PATH, safe_start
from egohieraloc.errors import MissingExtraError


@contextmanager
def ray_cluster(address: str) -> Iterator[Any]:
    """The module `ray`, connected to an address; "local" starts a cluster. Its workers import nothing from
    the current folder. A connection that is there already is used and stays."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "scale") from error
    started = not ray.is_initialized()
    if started:
        with safe_start():
            ray.init(
                address=None if address == "local" else address, log_to_driver=False, job_config=_job(ray)
            )
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()


def _job(ray: Any) -> Any:
    class Job(ray.job_config.JobConfig):  # type: ignore[misc]
        def _runtime_env_has_working_dir(self) -> bool:
            return True  # otherwise Ray puts the current folder first where workers look for modules

    return Job(runtime_env={"env_vars": {SAFE_PATH: "1"}})
