"""What was done: the counts that worker processes store every few seconds."""

from __future__ import annotations

from collections.abc import Collection

from ..drivers import connections, ledgers_of
from ..jobs.counts import Counted


def done(since: float, *, connection: str | None = None, queues: Collection[str] | None = None) -> list[Counted]:
    """What ended in the last ``since`` seconds, by connection, queue and job.

    In whole minutes, and beyond a day in whole hours.
    """
    drivers = connections.all() if connection is None else [connections[connection]]
    found = [counted for ledger in ledgers_of(drivers) for counted in ledger.total(since, connection)]
    return [counted for counted in found if queues is None or counted.queue in queues]
