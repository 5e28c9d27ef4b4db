"""Deleting what is old, in small transactions: one that deletes a million rows would block, and fail, as a whole.

Before they are old enough for that, counts of minutes are rolled up to hours.

What a database keeps beside its queues is pruned through its ledger, what a connection keeps through its driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ..conf import PRUNED_ROWS
from ..drivers import Driver, connections, ledgers_of

if TYPE_CHECKING:  # at import it would load the models
    from ..drivers.ledger import Ledger

CHUNK = 1000
# No end is in sight where rows become old as fast as they are deleted; the next time goes on.
MOST_CHUNKS = 1_000_000
# They have no age: each says itself how long it is kept.
RESULTS = "RESULTS"

Delete = Callable[[int], int]


def count_old(ages: Mapping[str, float]) -> dict[str, int]:
    """How many rows of each kind of ``conf.PRUNED_ROWS`` are older than its age in seconds."""
    ledgers = ledgers_of(connections.all())
    return {what: sum(ledger.count_old(what, age) for ledger in ledgers) for what, age in ages.items()}


def prune(what: str, age: float | None, *, chunk: int = CHUNK) -> Iterator[int]:
    """Delete what is older than ``age`` seconds, None is never, or expired results; yield how many at a time.

    In every database, or on every connection. On Redis a batch of very many members takes several runs.
    """
    for delete in _deletes(what, age):
        yield from _in_chunks(delete, chunk)


def roll_up(*, chunk: int = CHUNK) -> Iterator[int]:
    """Make the counts of old minutes those of hours, in every database; yield how many minutes at a time."""
    for ledger in ledgers_of(connections.all()):
        yield from _in_chunks(ledger.roll_up, chunk)


def _in_chunks(act: Delete, chunk: int) -> Iterator[int]:
    for _ in range(MOST_CHUNKS):
        number = act(chunk)
        if number:
            yield number
        if number < chunk:
            break


def _deletes(what: str, age: float | None) -> Iterator[Delete]:
    if what not in PRUNED_ROWS:
        for driver in connections.all():
            delete = deletes_of(driver, {what: age}).get(what)
            if delete is not None:
                yield delete
    elif age is not None:
        for ledger in ledgers_of(connections.all()):
            yield partial(_delete_rows, ledger, what, age)


def _delete_rows(ledger: Ledger, what: str, age: float, limit: int) -> int:
    return ledger.prune(what, age, limit=limit)


def deletes_of(driver: Driver, ages: Mapping[str, float | None]) -> dict[str, Delete]:
    """What is deleted of one connection, by kind, each called with how much at most; returns how much it was."""
    deletes: dict[str, Delete] = {RESULTS: lambda limit: driver.prune_results(limit=limit)}
    if (batches := ages.get("BATCHES")) is not None:
        deletes["BATCHES"] = lambda limit: driver.prune_batches(older_than=batches, limit=limit)
    if (progress := ages.get("PROGRESS")) is not None:
        deletes["PROGRESS"] = lambda limit: driver.progress.prune(older_than=progress, limit=limit)
    return deletes
