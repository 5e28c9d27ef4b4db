"""Who works, and asking all of them to start afresh."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from ..drivers import Driver, connections, ledgers_of
from ..jobs.workers import RESTART, WorkerRecord


def workers(*, connection: str | None = None) -> list[WorkerRecord]:
    """Every worker process that is known to the databases of all connections, or of one, each once."""
    found = {worker.id: worker for ledger in ledgers_of(_drivers(connection)) for worker in ledger.workers()}
    return list(found.values())


def restart(*, connection: str | None = None) -> list[WorkerRecord]:
    """Ask every worker process to end after its jobs, to be started afresh; return those that are not lost.

    Those that are embedded in a web server do not heed it: nobody would start them again.
    """
    for ledger in ledgers_of(_drivers(connection)):
        ledger.ask(RESTART)
    return [worker for worker in workers(connection=connection) if worker.state != "lost"]


def still_working(ids: Collection[UUID], *, connection: str | None = None) -> list[WorkerRecord]:
    """Those of the named worker processes that have neither ended nor been lost."""
    return [worker for worker in workers(connection=connection) if worker.id in ids and worker.state != "lost"]


def _drivers(connection: str | None) -> list[Driver]:
    return connections.all() if connection is None else [connections[connection]]
