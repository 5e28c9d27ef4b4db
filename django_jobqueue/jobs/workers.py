"""Who works: what a worker process tells of itself, and what its silence means.

A state is never stored: a process that was killed could not take it back. It is the age of the last heartbeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

MAX_WORKER_NAME = 80

# One small write for each process: often enough that a person who looks sees who is there.
BEAT_SECONDS = 10.0
# One beat may be late because the store was busy; three in a row say something, six say it for sure.
LATE_SECONDS = 3 * BEAT_SECONDS
LOST_SECONDS = 6 * BEAT_SECONDS

#: What is asked of all worker processes: to end after their jobs, and be started afresh.
RESTART = "restart"

WorkerState = Literal["alive", "late", "lost"]


def state_after(silence: float) -> WorkerState:
    """The state of a worker process that was last heard of so many seconds ago."""
    if silence < LATE_SECONDS:
        return "alive"
    return "late" if silence < LOST_SECONDS else "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What a worker process says of itself. ``id`` is random for each start: hosts and pids are used again.

    ``ran`` are the seconds since it started, ``memory`` its resident bytes, None where nobody can tell. The counts
    are those of ``WorkerStats``. ``is_embedded`` says that it lives in a web server's process.
    """

    id: UUID
    name: str
    host: str
    pid: int
    queues: tuple[str, ...]
    workers: int
    version: str
    is_embedded: bool
    ran: float
    processed: int
    released: int
    failed: int
    lost: int
    memory: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord(WorkerReport):
    """The last report of a worker process, which the store had ``silence`` seconds ago."""

    started_at: datetime
    heartbeat_at: datetime
    silence: float

    @property
    def state(self) -> WorkerState:
        return state_after(self.silence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """When something was last asked of all worker processes; ``ago`` in seconds of the store's clock."""

    asked_at: datetime
    ago: float
