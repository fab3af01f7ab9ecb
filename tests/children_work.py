"""Work for the processes of test_children.py; a module, so that it can be sent to them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from egohieraloc.data.base import ClipQueries, QueryKey
from egohieraloc.progress import Progress

UNTIL_INPUT_ENDS = """
from children_work import wait
from egohieraloc.children import end_with_input
end_with_input()
wait(None, None)
"""


def wait(tool: None, progress: Progress) -> None:
    """Say the number of this process, then sleep."""
    print(os.getpid(), flush=True)
    time.sleep(60)


@dataclass(frozen=True)
class Question:
    key: QueryKey


def clips(count: int) -> list[ClipQueries[Any]]:
    return [
        ClipQueries(str(n), "video", str(n), 5.0, (Question(QueryKey(str(n), "a", "1")),))
        for n in range(count)
    ]


@dataclass(frozen=True)
class Clips:
    """A system under evaluation that answers a query with its key, or after a minute."""

    slow: bool = False

    @contextmanager
    def __call__(self, clip: ClipQueries[Any]) -> Iterator[Any]:
        if self.slow:
            wait(None, lambda *_: None)
        yield lambda query: query.key


class Slowly:
    """Clips for training that take a minute each."""

    def __getitem__(self, index: int) -> None:
        wait(None, lambda *_: None)

    def __len__(self) -> int:
        return 1


def load_slowly() -> None:
    """What training does with its loader's workers."""
    import torch

    from egohieraloc.training.footage.loading import LoadedClips

    LoadedClips(Slowly(), [0], workers=1, device=torch.device("cpu"))(0)  # type: ignore[arg-type]
