"""Who works."""

from __future__ import annotations

from ..drivers import Driver, connections, ledgers_of
from ..jobs.workers import WorkerRecord


def workers(*, connection: str | None = None) -> list[WorkerRecord]:
    """Every worker process that is known to the databases of all connections, or of one, each once."""
    found = {worker.id: worker for ledger in ledgers_of(_drivers(connection)) for worker in ledger.workers()}
    return list(found.values())


def _drivers(connection: str | None) -> list[Driver]:
    return connections.all() if connection is None else [connections[connection]]
