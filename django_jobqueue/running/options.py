"""What a worker was told, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from ..conf import get_settings
from ..jobs.retry import Backoff

EVERY_QUEUE = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of a worker process; durations are seconds, None means no limit.

    ``queues`` is strict order, ``("*",)`` every queue in turn. ``max_attempts`` and ``backoff`` apply to jobs
    that were given none. ``max_jobs`` counts the attempts of the whole process, and ``memory`` its resident megabytes.
    ``name`` stands in the place of the host's, where people see who works.
    """

    name: str = ""
    queues: tuple[str, ...] = (EVERY_QUEUE,)
    connections: tuple[str, ...] | None = None
    workers: int = 1
    max_jobs: int | None = None
    max_time: float | None = None
    memory: int | None = None
    stop_when_empty: bool = False
    sleep: float = 0.5
    grace: float = 30
    max_attempts: int = 3
    backoff: Backoff | None = None
    fallback_backoff: Backoff = 10
    timeout: float | None = None
    retry_after: float = 90
    settle: Literal["each", "batch"] = "batch"
    error_backoff_cap: float = 30
    keep_results: float = 0

    @classmethod
    def from_settings(cls, **given: object) -> WorkerOptions:
        """The options that the settings say, with those changed that are given and not None."""
        settings = get_settings()
        values: dict[str, object] = {
            "sleep": settings.poll_interval,
            "max_attempts": settings.max_attempts,
            "backoff": settings.backoff,
            "fallback_backoff": settings.backoff,
            "timeout": settings.timeout,
            "retry_after": settings.retry_after,
            "settle": settings.settle,
            "error_backoff_cap": settings.queue_error_backoff_cap,
            "keep_results": settings.keep_results,
        }
        values |= {key: value for key, value in given.items() if value is not None}
        return cls(**values)  # type: ignore[arg-type]


@dataclass(slots=True)
class WorkerStats:
    """Runs, by what became of the job: it succeeded; it went back; it became a dead letter; it was no longer ours."""

    processed: int = 0
    released: int = 0
    failed: int = 0
    lost: int = 0

    @property
    def runs(self) -> int:
        return self.processed + self.released + self.failed + self.lost

    def __add__(self, other: WorkerStats) -> WorkerStats:
        return WorkerStats(
            *(getattr(self, counter.name) + getattr(other, counter.name) for counter in fields(WorkerStats))
        )
