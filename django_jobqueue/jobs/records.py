"""The values that cross the driver seam: frozen, made of plain data, the same for every driver.

Moments are aware datetimes of the store's clock; durations are seconds as floats. What is made once for each job
or each reserve is a NamedTuple, which is several times as quick to make as a frozen dataclass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

MAX_KEPT_ATTEMPTS = 20

SCHEDULED, READY, RESERVED, BLOCKED = "scheduled", "ready", "reserved", "blocked"
FAILED = "failed"  # of a dead letter; never stored in a job's state
# Of a job that is over: never stored in its row, but in a result and with its progress.
PROCESSED, CANCELLED = "processed", "cancelled"


class NewJob(NamedTuple):
    """A job to store. At most one of ``delay`` and ``available_at`` is given; without both it is ready now."""

    id: UUID
    name: str
    queue: str
    payload: str
    format: int
    rank: int = 0
    max_attempts: int | None = None
    retry_for: float | None = None
    delay: float | None = None
    available_at: datetime | None = None
    metadata: str = ""
    masked: str = ""
    flow: str | None = None  # what follows it: see jobs/flows.py


class Position(NamedTuple):
    """Where a ready job stands in its queue; ascending is the order of running."""

    rank: int
    ready_at: datetime
    id: UUID


class Reservation(NamedTuple):
    """A job that one worker holds: every write to it names its id and this token."""

    id: UUID
    token: UUID
    worker: str
    connection: str
    queue: str
    name: str
    payload: str
    format: int
    rank: int
    attempt: int
    max_attempts: int | None
    exceptions: int
    crashes: int
    alone: bool
    ready_at: datetime
    created_at: datetime
    reserved_at: datetime
    reserved_until: datetime
    retry_until: datetime | None = None
    metadata: str = ""
    masked: str = ""
    flow: str | None = None

    @property
    def position(self) -> Position:
        return Position(self.rank, self.ready_at, self.id)


class ReserveLimit(NamedTuple):
    """How much one reserve may take: rows, and seconds by the average run time of each job's name.

    A name without an average fills the whole time. ``max_attempts`` applies to jobs that were given none.
    """

    rows: int
    max_attempts: int
    seconds: float = float("inf")
    averages: Mapping[str, float] = MappingProxyType({})

    def leading(self, candidates: list[Candidate]) -> int:
        """How many of the candidates, in their order, are taken.

        The first is always taken. A job that has crashed a worker, or is on its last attempt, is taken alone,
        so that what it does to its worker harms no other job.
        """
        spent = 0.0
        for index, candidate in enumerate(candidates[: self.rows]):
            if index and self.must_go_alone(candidate):
                return index
            if index == 0 and self.must_go_alone(candidate):
                return 1
            spent += self.averages.get(candidate.name, self.seconds)
            if index and spent > self.seconds:
                return index
        return min(len(candidates), self.rows)

    def must_go_alone(self, candidate: Candidate) -> bool:
        limit = self.max_attempts if candidate.max_attempts is None else candidate.max_attempts
        return candidate.crashes > 0 or candidate.attempts + 1 >= limit


class Candidate(NamedTuple):
    """The columns of a ready job that decide whether it is taken; ``attempts`` are those already spent."""

    name: str
    attempts: int
    max_attempts: int | None
    crashes: int


class Reserved(NamedTuple):
    """What a reserve took. ``more`` says that others may be waiting behind: reserve again at once."""

    jobs: list[Reservation]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """How one attempt ended, as a person reads it later."""

    number: int
    worker: str
    started: str  # ISO 8601, UTC
    waited: float
    ran: float
    exception_class: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why an attempt did not end, where more is known than that its worker was lost."""

    exception_class: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """The last attempts that failed, and how many there were in all."""

    total: int = 0
    last: tuple[AttemptRecord, ...] = ()

    @classmethod
    def read(cls, text: str) -> AttemptHistory:
        """From stored text; text that is no history reads as an empty one, so that no page or settle dies of it."""
        try:
            body = json.loads(text) if text else {}
            return cls(int(body.get("total", 0)), tuple(AttemptRecord(**record) for record in body.get("last", [])))
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return cls()

    def plus(self, record: AttemptRecord) -> AttemptHistory:
        return AttemptHistory(self.total + 1, (*self.last, record)[-MAX_KEPT_ATTEMPTS:])

    def write(self) -> str:
        return json.dumps({"total": self.total, "last": [asdict(record) for record in self.last]})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewResult:
    """What a job returned, to be kept for ``keep_for`` seconds.

    ``value`` is JSON text; it is empty where ``error`` says why the value could not be kept.
    """

    value: str
    error: str
    started_at: datetime
    finished_at: datetime
    keep_for: float


class Complete(NamedTuple):
    """It succeeded: the job goes; ``then`` and ``result`` are stored in the same transaction.

    A member of ``batch`` leaves it then too; or, where a job follows it, that one becomes the member in its place.
    """

    reservation: Reservation
    then: tuple[NewJob, ...] = ()
    result: NewResult | None = None
    batch: UUID | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """It runs again after ``delay`` seconds.

    With ``record`` a failed attempt is spent and written down; without, the attempt is given back.
    """

    reservation: Reservation
    delay: float
    record: AttemptRecord | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """It becomes a dead letter, with this attempt as the last of its history; ``then`` is stored with it.

    A member of ``batch`` has failed then.
    """

    reservation: Reservation
    record: AttemptRecord
    then: tuple[NewJob, ...] = ()
    batch: UUID | None = None


Settlement: TypeAlias = Complete | Release | Fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescued:
    """A job whose reservation expired. ``record`` is that of the attempt when it was spent, else None.

    ``then`` is what was stored because it became a dead letter, ``batch`` the batch in which it has failed.
    """

    id: UUID
    name: str
    queue: str
    attempt: int
    max_attempts: int
    worker: str
    record: AttemptRecord | None
    dead_lettered: bool
    then: tuple[NewJob, ...] = ()
    batch: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A stored job as a person sees it. ``state`` is "failed" for a dead letter, which has a ``number``.

    ``batch`` is that of which a job that waits or runs is a member.
    """

    id: UUID
    connection: str
    queue: str
    name: str
    state: str
    payload: str
    format: int
    priority: int
    attempts: int
    max_attempts: int | None
    created_at: datetime
    available_at: datetime
    ready_at: datetime | None = None
    reserved_at: datetime | None = None
    reserved_until: datetime | None = None
    worker: str = ""
    errors: AttemptHistory = AttemptHistory()
    metadata: str = ""
    masked: str = ""
    number: int | None = None
    exception_class: str = ""
    exception_message: str = ""
    retries: int = 0
    failed_at: datetime | None = None
    batch: UUID | None = None
    flow: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRecord:
    """What is kept of a job that succeeded, or was cancelled; ``value`` and ``error`` are those of NewResult.

    ``worker`` ran the attempt that succeeded; that of a cancelled job is empty, and so is when it started.
    """

    id: UUID
    connection: str
    queue: str
    name: str
    value: str
    error: str
    attempts: int
    max_attempts: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime
    errors: AttemptHistory
    metadata: str
    worker: str
    payload: str
    format: int
    priority: int
    masked: str
    state: str = PROCESSED


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSummary:
    """One line of a list of dead letters: no payload, no traceback."""

    number: int
    id: UUID
    connection: str
    queue: str
    name: str
    attempts: int
    max_attempts: int | None
    exception_class: str
    exception_message: str
    retries: int
    failed_at: datetime


class Report(NamedTuple):
    """How far a job is: ``percent`` from 0 to 100, None when nobody knows, and a few words.

    ``token`` is that of the reservation under which it was said; None of a job that has just ended under its own.
    ``state`` is that in which a job ended that a person has removed, FAILED or CANCELLED; otherwise empty.
    """

    id: UUID
    token: UUID | None
    percent: int | None
    stage: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """The last report of a job that was stored."""

    percent: int | None
    stage: str
    updated_at: datetime
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A batch to store. ``callbacks`` is the text of ``flows.Callbacks``, ``metadata`` JSON text."""

    id: UUID
    name: str
    metadata: str
    allow_failures: bool
    callbacks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """A stored batch. ``pending`` members have not ended; whoever is none of the three kinds is done."""

    id: UUID
    connection: str
    name: str
    metadata: str
    allow_failures: bool
    total: int
    pending: int
    failed: int
    cancelled: int
    created_at: datetime
    finished_at: datetime | None
    cancelled_at: datetime | None

    @property
    def done(self) -> int:
        return self.total - self.pending - self.failed - self.cancelled


@dataclass(frozen=True, slots=True)
class ClosedBatch:
    """A batch that has just ended, and the jobs that were stored because of that."""

    record: BatchRecord
    then: tuple[NewJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSize:
    """How many jobs of a queue are in each state; ``oldest`` is how many seconds its oldest ready job waits."""

    ready: int = 0
    scheduled: int = 0
    reserved: int = 0
    blocked: int = 0
    failed: int = 0
    oldest: float | None = None

    @property
    def waiting(self) -> int:
        return self.ready + self.scheduled + self.blocked
