"""One attempt's facts: which job, by which limits, since when; and how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from ..conf import get_settings
from ..jobs.context import JobContext
from ..jobs.definition import Definition, Unset
from ..jobs.errors import class_path, message_of, traceback_of
from ..jobs.flows import NOTHING, Flow, batch_of, caught
from ..jobs.payloads import encode_result
from ..jobs.records import AttemptRecord, Complete, Fail, NewResult, Release, Reservation, Settlement
from ..jobs.retry import GiveUp, Policy, decide
from .options import WorkerOptions


class Listener(Protocol):
    """Who hears what a handler asks and says about its job while it runs."""

    def asks_to_stop(self, job: Reservation) -> bool: ...

    def report(self, job: Reservation, percent: int | None, stage: str) -> None: ...


@dataclass(slots=True)
class Attempt:
    """A reserved job that is being run; ``definition`` is None for an unknown name.

    The store's clock is read off the reservation, and moved on by the monotonic clock since it arrived.
    """

    job: Reservation
    options: WorkerOptions
    definition: Definition | None
    reserved: float
    listener: Listener
    started: float = field(default_factory=time.monotonic)
    secrets: list[str] = field(default_factory=list)
    flow: Flow = NOTHING  # what follows the job; read before it runs
    _context: JobContext | None = None

    @property
    def max_attempts(self) -> int:
        return self.options.max_attempts if self.job.max_attempts is None else self.job.max_attempts

    @property
    def context(self) -> JobContext:
        if self._context is None:
            job = self.job
            self._context = JobContext(
                id=job.id,
                name=job.name,
                queue=job.queue,
                attempt=job.attempt,
                max_attempts=self.max_attempts,
                connection=job.connection,
                started_at=self.started_at,
                timeout=self.timeout,
                reported=lambda percent, stage: self.listener.report(job, percent, stage),
                stop_asked=lambda: self.listener.asks_to_stop(job),
                stored_payload=job.payload,
                stored_metadata=job.metadata,
                batch_id=batch_of(job.flow),
                format=job.format,
            )
        return self._context

    @property
    def is_atomic(self) -> bool:
        return self.definition is not None and self.definition.atomic

    @property
    def timeout(self) -> float | None:
        if self.definition is None or isinstance(self.definition.timeout, Unset):
            return self.options.timeout
        return self.definition.timeout

    @property
    def settles_alone(self) -> bool:
        """Whether a completed job is not to wait for others of its slice."""
        own = self.definition.settle if self.definition is not None else None
        return self.job.alone or (own or self.options.settle) == "each"

    @property
    def started_at(self) -> datetime:
        return self.job.reserved_at + timedelta(seconds=self.started - self.reserved)

    @property
    def waited(self) -> float:
        """Seconds from the time the job became runnable to its start."""
        job = self.job
        return max(0.0, (job.reserved_at - job.ready_at).total_seconds() + (self.started - self.reserved))

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def identity(self) -> dict[str, Any]:
        """The arguments that all signals of a run have in common."""
        job = self.job
        return {
            "id": job.id,
            "name": job.name,
            "queue": job.queue,
            "attempt": job.attempt,
            "max_attempts": self.max_attempts,
        }

    def record(self, error: BaseException) -> AttemptRecord:
        return AttemptRecord(
            number=self.job.attempt,
            worker=self.job.worker,
            started=self.started_at.astimezone(UTC).isoformat(),
            waited=round(self.waited, 6),
            ran=round(self.elapsed, 6),
            exception_class=class_path(error),
            message=message_of(error, self.secrets),
            traceback=traceback_of(error, self.secrets),
        )

    def complete(self, value: Any) -> Complete:
        """What follows the handler's return."""
        keep_for = None if self.definition is None else self.definition.keep_result
        if keep_for is None:
            keep_for = self.options.keep_results
        if keep_for or self.flow.steps:
            return self._complete_with(value, keep_for)
        return Complete(self.job, batch=self.flow.batch)

    def _complete_with(self, value: Any, keep_for: float) -> Complete:
        flow = self.flow
        settings = get_settings()
        limit = settings.payload_limit
        text, error = self._encoded(value, limit) if keep_for or flow.asks_for_result else ("", "")
        then = flow.after(self.job, text, error, limit, settings.is_secret)
        return Complete(self.job, then, self._result(text, error, keep_for) if keep_for else None, flow.batch)

    def _encoded(self, value: Any, limit: int) -> tuple[str, str]:
        """A value as JSON text, or why it is none; that costs the job its result and nothing else."""
        try:
            return encode_result(value, limit), ""
        except BaseException as refused:  # whatever a value of the handler's own class does, its worker goes on
            return "", message_of(refused, self.secrets)

    def _result(self, text: str, error: str, keep_for: float) -> NewResult:
        started_at = self.started_at
        return NewResult(
            value=text,
            error=error,
            started_at=started_at,
            finished_at=started_at + timedelta(seconds=self.elapsed),
            keep_for=keep_for,
        )

    def fail(self, record: AttemptRecord) -> Fail:
        """It becomes a dead letter."""
        job = self.job
        then = caught(job.flow, job.id, job.name, job.queue, job.rank, job.connection, record)
        return Fail(job, record, then, batch_of(job.flow))

    def conclude(self, error: BaseException) -> Release | Fail:
        """What follows this attempt, which failed."""
        decision = decide(
            self._policy(),
            attempt=self.job.attempt,
            exceptions=self.job.exceptions + 1,
            error=error,
            now=self.started_at + timedelta(seconds=self.elapsed),
        )
        record = self.record(error)
        if isinstance(decision, GiveUp):
            return self.fail(record)
        return Release(self.job, decision.delay, record)

    def end(self, settlement: Settlement, *, is_settled: bool = False) -> Ended:
        at_once = self.settles_alone or not isinstance(settlement, Complete)
        return Ended(self, settlement, self.elapsed, is_settled, at_once)

    def _policy(self) -> Policy:
        """Of an unknown name only the settings are known."""
        options, definition = self.options, self.definition
        backoff = options.fallback_backoff if options.backoff is None else options.backoff
        if definition is None:
            return Policy(max_attempts=self.max_attempts, backoff=backoff, retry_until=self.job.retry_until)
        return Policy(
            max_attempts=self.max_attempts,
            backoff=backoff if definition.backoff is None else definition.backoff,
            fallback=options.fallback_backoff,
            retry_on=definition.retry_on,
            give_up_on=definition.give_up_on,
            max_exceptions=definition.max_exceptions,
            retry_until=self.job.retry_until,
        )


class Ended(NamedTuple):
    """An attempt that is over, and what the store is told, unless it ``is_settled`` already."""

    attempt: Attempt
    settlement: Settlement
    elapsed: float
    is_settled: bool
    settle_at_once: bool
