"""Deleting what is old, in small transactions: one that deletes a million rows would block, and fail, as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..drivers import connections, ledgers_of

CHUNK = 1000
# No end is in sight where rows become old as fast as they are deleted; the next time goes on.
MOST_CHUNKS = 1_000_000


def count_old(ages: Mapping[str, float]) -> dict[str, int]:
    """How many rows of each kind are older than its age in seconds."""
    ledgers = ledgers_of(connections.all())
    return {what: sum(ledger.count_old(what, age) for ledger in ledgers) for what, age in ages.items()}


def prune(what: str, age: float, *, chunk: int = CHUNK) -> Iterator[int]:
    """Delete the rows of one kind that are older than ``age`` seconds, in every database; yield how many at a time."""
    for ledger in ledgers_of(connections.all()):
        for _ in range(MOST_CHUNKS):
            deleted = ledger.prune(what, age, limit=chunk)
            if deleted:
                yield deleted
            if deleted < chunk:
                break
