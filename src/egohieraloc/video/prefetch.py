"""The next items of an iterator, made by a thread while the present one is used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from queue import Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetched(items: Iterator[T], ahead: int) -> Generator[T]:
    """The same items in the same order, up to `ahead` of them made before they are asked for.

    An error comes where its item would have come. Whoever closes the iterator early also ends the thread.
    """
    ready: Queue[object] = Queue(maxsize=ahead)
    given_up = Event()

    def make() -> None:
        try:
            for item in items:
                ready.put(item)
                if given_up.is_set():
                    return
            ready.put(_END)
        except BaseException as error:
            ready.put(_Failed(error))

    thread = Thread(target=make, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, _Failed):
                raise item.error
            yield item  # type: ignore[misc]
    finally:
        given_up.set()
        while thread.is_alive():  # it may be waiting for room
            while not ready.empty():
                ready.get_nowait()
            thread.join(0.01)


class _Failed:
    """What the thread met instead of an item."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
