"""How much waits where."""

from __future__ import annotations

from dataclasses import dataclass

from ..drivers import connections
from ..jobs.records import QueueSize


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue of one connection."""

    connection: str
    queue: str
    size: QueueSize


def slowdowns(*, connection: str | None = None) -> list[str]:
    """What slows the stores down, such as a transaction that somebody holds open, each with the cure."""
    drivers = connections.all() if connection is None else [connections[connection]]
    return [sentence for driver in drivers for sentence in driver.slowdowns()]


def stats(*, connection: str | None = None, queues: list[str] | None = None) -> list[QueueStats]:
    """The sizes of all queues that hold a job or a dead letter, and of those that are named, in order."""
    drivers = connections.all() if connection is None else [connections[connection]]
    found = []
    for driver in drivers:
        sizes = driver.sizes()
        names = list(sizes) if queues is None else queues
        found += [QueueStats(driver.alias, name, sizes.get(name, QueueSize())) for name in names]
    return found
