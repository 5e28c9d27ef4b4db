"""What is sent to a store at once is bounded in rows and in bytes, whatever jobs carry.

A longer statement MySQL and MariaDB answer by closing the connection, and a longer script keeps all of Redis waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from .records import Fail, NewJob, Release, Reservation, Settlement

# SQLite bounds the parameters of a statement. MariaDB takes 16 MiB, in which quoting may have doubled a text.
CHUNK_ROWS = 500
CHUNK_BYTES = 4_000_000

T = TypeVar("T")


class Chunks(Generic[T]):
    """Items on their way; ``size`` is how many bytes one takes. Only an item that is alone may take more than fit."""

    def __init__(self, size: Callable[[T], int]) -> None:
        self._size = size
        self._items: list[T] = []
        self._bytes = 0

    def add(self, item: T) -> list[T]:
        """Return the chunk that was full without the item, else nothing."""
        more = self._size(item)
        is_full = len(self._items) == CHUNK_ROWS or self._bytes + more > CHUNK_BYTES
        full = self.rest() if is_full else []
        self._items.append(item)
        self._bytes += more
        return full

    def rest(self) -> list[T]:
        """Return what is there, the last chunk."""
        items, self._items, self._bytes = self._items, [], 0
        return items


def cut(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """All items, in order, in chunks."""
    chunks = Chunks(size)
    for item in items:
        if full := chunks.add(item):
            yield full
    if rest := chunks.rest():
        yield rest


# What is stored of jobs is ASCII, so that a character is a byte; names and numbers are short.


def job_bytes(job: NewJob | Reservation) -> int:
    return len(job.payload) + len(job.metadata) + len(job.masked) + len(job.flow or "")


def settlement_bytes(settlement: Settlement) -> int:
    """Of what is stored because a job has ended: what follows it, and its result or its dead letter."""
    if isinstance(settlement, Release):
        return 0
    size = sum(map(job_bytes, settlement.then))
    if isinstance(settlement, Fail):
        return size + job_bytes(settlement.reservation)
    if settlement.result is None:
        return size
    return size + job_bytes(settlement.reservation) + len(settlement.result.value)
