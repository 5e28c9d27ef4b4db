"""Jobs in the memory of one process: for tests and trials, and the contract written out plainly.

No transaction, no other process, nothing kept when the process ends. One lock makes every method
atomic.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from threading import Lock
from typing import Any, ClassVar
from uuid import UUID

from ..exceptions import InvalidConnection
from ..jobs.flows import batch_of, caught, read_callbacks, uncaught
from ..jobs.ids import new_token
from ..jobs.records import (
    CANCELLED,
    FAILED,
    READY,
    RESERVED,
    SCHEDULED,
    AttemptHistory,
    AttemptRecord,
    BatchRecord,
    Candidate,
    Cause,
    ClosedBatch,
    Complete,
    FailedSummary,
    JobRecord,
    NewBatch,
    NewJob,
    NewResult,
    Position,
    ProgressRecord,
    QueueSize,
    Release,
    Report,
    Rescued,
    Reservation,
    Reserved,
    ReserveLimit,
    ResultRecord,
    Settlement,
)
from ..jobs.rescue import Verdict, unfinished, verdict, verdict_in_hand
from ..jobs.times import from_microseconds, microseconds, to_microseconds
from .base import (
    CANCEL_LIMIT,
    PRUNE_LIMIT,
    RESCUE_LIMIT,
    STAGE_LIMIT,
    SWEEP_LIMIT,
    Driver,
    KeepFor,
    is_ready_at_once,
    keep_nothing,
    ready_queues,
)
from .progress import ProgressStore, said_by_holders


@dataclass(slots=True, kw_only=True)
class _Job:
    """A waiting or running job; ``new`` is what was dispatched."""

    new: NewJob
    created_at: datetime
    available_at: datetime
    ready_at: datetime
    state: str
    retry_until: datetime | None
    attempts: int = 0
    exceptions: int = 0
    crashes: int = 0
    retries: int = 0
    errors: AttemptHistory = field(default_factory=AttemptHistory)
    held: Reservation | None = None

    @property
    def position(self) -> Position:
        return Position(self.new.rank, self.ready_at, self.new.id)

    def put_back(self, moment: datetime, state: str = READY) -> None:
        self.state, self.held = state, None
        self.available_at = self.ready_at = moment


@dataclass(frozen=True, slots=True)
class _DeadLetter:
    job: _Job
    number: int
    record: AttemptRecord
    failed_at: datetime


PENDING = "pending"  # with FAILED and CANCELLED the states of a member


@dataclass(slots=True)
class _Batch:
    """``members`` are those that have not succeeded, with their states."""

    new: NewBatch
    created_at: datetime
    members: dict[UUID, str]
    total: int
    finished_at: datetime | None = None
    cancelled_at: datetime | None = None

    @property
    def is_pending(self) -> bool:
        return PENDING in self.members.values()


class MemoryDriver(Driver):
    name: ClassVar[str] = "memory"
    is_shared: ClassVar[bool] = False
    supports_batches: ClassVar[bool] = True

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        if options:
            raise InvalidConnection(
                f"The queue connection {alias!r} has the option {next(iter(options))!r}; "
                'the driver "memory" takes none.'
            )
        self._lock = Lock()
        self._jobs: dict[UUID, _Job] = {}
        self._dead: dict[int, _DeadLetter] = {}
        self._results: dict[UUID, tuple[datetime, ResultRecord]] = {}  # with the time until which it is kept
        self._batches: dict[UUID, _Batch] = {}
        self.progress = _MemoryProgress(self)
        self._numbers = itertools.count(1)

    @property
    def database(self) -> None:
        return None

    # Dispatch

    def push(self, jobs: Sequence[NewJob], *, now: datetime | None = None) -> set[UUID]:
        with self._lock:
            stored = self._push(jobs, _moment(now))
        self._wake(job.queue for job in jobs if job.id in stored)
        return stored

    def _push(self, jobs: Iterable[NewJob], now: datetime) -> set[UUID]:
        stored = set()
        for new in jobs:
            if new.id in self._jobs:
                continue
            available_at = new.available_at or now + timedelta(seconds=new.delay or 0)
            self._jobs[new.id] = _Job(
                new=new,
                created_at=now,
                available_at=available_at,
                ready_at=max(available_at, now),
                state=SCHEDULED if available_at > now else READY,
                retry_until=_after(available_at, new.retry_for),
            )
            stored.add(new.id)
        return stored

    # A worker's turn

    def queues(self) -> list[str]:
        with self._lock:
            return sorted({job.new.queue for job in self._jobs.values()})

    def stage(self, queue: str, *, limit: int = STAGE_LIMIT, now: datetime | None = None) -> int:
        moment = _moment(now)
        with self._lock:
            due = (job for job in self._in(queue, SCHEDULED) if job.available_at <= moment)
            staged = nsmallest(limit, due, key=lambda job: (job.available_at, job.new.id))
            for job in staged:
                # Not the due time, or a late job would overtake those that waited in the queue.
                job.state, job.ready_at = READY, moment
        self._wake(job.new.queue for job in staged)
        return len(staged)

    def reserve(
        self,
        queue: str,
        worker: str,
        limit: ReserveLimit,
        *,
        retry_after: float,
        after: Position | None = None,
        now: datetime | None = None,
    ) -> Reserved:
        moment = _moment(now)
        with self._lock:
            found = nsmallest(limit.rows, self._in(queue, READY), key=lambda job: job.position)
            count = limit.leading(
                [Candidate(job.new.name, job.attempts, job.new.max_attempts, job.crashes) for job in found]
            )
            taken = found[:count]
            held = []
            for job in taken:
                job.state = RESERVED
                job.attempts += 1
                job.held = self._reservation(job, worker, count == 1, moment, retry_after)
                held.append(job.held)
        return Reserved(held, more=count == limit.rows or count < len(found))

    def _reservation(self, job: _Job, worker: str, alone: bool, now: datetime, retry_after: float) -> Reservation:
        return Reservation(
            id=job.new.id,
            token=new_token(),
            worker=worker,
            connection=self.alias,
            queue=job.new.queue,
            name=job.new.name,
            payload=job.new.payload,
            format=job.new.format,
            rank=job.new.rank,
            attempt=job.attempts,
            max_attempts=job.new.max_attempts,
            exceptions=job.exceptions,
            crashes=job.crashes,
            alone=alone,
            ready_at=job.ready_at,
            created_at=job.created_at,
            reserved_at=now,
            reserved_until=now + timedelta(seconds=retry_after),
            retry_until=job.retry_until,
            metadata=job.new.metadata,
            masked=job.new.masked,
            flow=job.new.flow,
        )

    def renew(
        self,
        reservations: Collection[Reservation],
        *,
        retry_after: float,
        now: datetime | None = None,
    ) -> set[UUID]:
        moment = _moment(now)
        lost = set()
        with self._lock:
            for reservation in reservations:
                job = self._ours(reservation)
                if job is None or job.held is None:
                    lost.add(reservation.id)
                else:
                    until = moment + timedelta(seconds=retry_after)
                    job.held = job.held._replace(reserved_until=until)
        return lost

    def still_held(self, reservations: Collection[tuple[UUID, UUID]]) -> set[tuple[UUID, UUID]]:
        with self._lock:
            jobs = [(token, self._jobs.get(job_id)) for job_id, token in reservations]
            return {(job.held.id, token) for token, job in jobs if job and job.held and job.held.token == token}

    def hand_back(self, reservations: Collection[Reservation]) -> set[UUID]:
        with self._lock:
            held = [job for job in map(self._ours, reservations) if job is not None]
            self._hand_back(held)
        self._wake(job.new.queue for job in held)
        return {job.new.id for job in held}

    def release_worker(self, worker: str, *, but: Collection[UUID] = (), now: datetime | None = None) -> int:
        with self._lock:
            held = [job for job in self._jobs.values() if job.held and job.held.worker == worker]
            held = [job for job in held if job.new.id not in but]
            self._hand_back(held)
        self._wake(job.new.queue for job in held)
        return len(held)

    def _hand_back(self, jobs: Iterable[_Job]) -> None:
        for job in jobs:
            job.attempts -= 1
            job.state, job.held = READY, None

    def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> set[UUID]:
        moment = _moment(now)
        ours = set()
        with self._lock:
            for settlement in settlements:
                job = self._ours(settlement.reservation)
                if job is not None:
                    ours.add(job.new.id)
                    self._settle(job, settlement, moment)
        self._wake(ready_queues(item for item in settlements if item.reservation.id in ours))
        return ours

    def _settle(self, job: _Job, settlement: Settlement, now: datetime) -> None:
        if isinstance(settlement, Complete):
            del self._jobs[job.new.id]
            self._push(settlement.then, now)
            self._leave(job, settlement)
            if settlement.result is not None:
                kept_until = now + timedelta(seconds=settlement.result.keep_for)
                self._results[job.new.id] = (
                    kept_until,
                    _result(job, settlement.result, self.alias, settlement.reservation.worker),
                )
        elif isinstance(settlement, Release):
            if settlement.record is None:
                job.attempts -= 1
            else:
                job.exceptions += 1
                job.errors = job.errors.plus(settlement.record)
            moment = now + timedelta(seconds=settlement.delay)
            job.put_back(moment, SCHEDULED if moment > now else READY)
        else:
            self._bury(job, settlement.record, now)
            self._push(settlement.then, now)

    def _leave(self, job: _Job, completed: Complete) -> None:
        batch = None if completed.batch is None else self._batches.get(completed.batch)
        state = None if batch is None else batch.members.pop(job.new.id, None)
        if batch is not None and state is not None and completed.then:
            batch.members[completed.then[0].id] = state

    def _mark(self, job: _Job, state: str) -> UUID | None:
        """Change the state of a member; return its batch."""
        batch_id = batch_of(job.new.flow)
        batch = None if batch_id is None else self._batches.get(batch_id)
        if batch is not None and job.new.id in batch.members:
            batch.members[job.new.id] = state
        return batch_id

    def rescue(self, *, max_attempts: int, limit: int = RESCUE_LIMIT, now: datetime | None = None) -> list[Rescued]:
        moment = _moment(now)
        with self._lock:
            held = (job.held for job in self._jobs.values() if job.held)
            expired = nsmallest(
                limit,
                (reservation for reservation in held if reservation.reserved_until <= moment),
                key=lambda reservation: (reservation.reserved_until, reservation.id),
            )
            rescued = [self._rescue(lost, max_attempts, moment) for lost in expired]
        self._wake(queue for job in rescued for queue in (job.queue, *(new.queue for new in job.then)))
        return rescued

    def _rescue(self, lost: Reservation, max_attempts: int, now: datetime) -> Rescued:
        limit = max_attempts if lost.max_attempts is None else lost.max_attempts
        decision = verdict(
            alone=lost.alone,
            attempts=lost.attempt,
            max_attempts=limit,
            retry_until=lost.retry_until,
            now=now,
        )
        return self._recover(lost, decision, limit, now)

    def rescue_in_hand(
        self,
        job_id: UUID,
        token: UUID,
        *,
        max_attempts: int,
        spends: bool = True,
        cause: Cause | None = None,
        now: datetime | None = None,
    ) -> Rescued | None:
        moment = _moment(now)
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.held is None or job.held.token != token:
                return None
            lost = job.held
            limit = max_attempts if lost.max_attempts is None else lost.max_attempts
            decision = verdict_in_hand(
                spends=spends, attempts=lost.attempt, max_attempts=limit, retry_until=lost.retry_until, now=moment
            )
            rescued = self._recover(lost, decision, limit, moment, cause, counts=spends)
        self._wake([rescued.queue, *(new.queue for new in rescued.then)])
        return rescued

    def _recover(
        self,
        lost: Reservation,
        decision: Verdict,
        limit: int,
        now: datetime,
        cause: Cause | None = None,
        *,
        counts: bool = True,
    ) -> Rescued:
        job = self._jobs[lost.id]
        record = unfinished(lost.attempt, lost.worker, lost.ready_at, lost.reserved_at, now, cause)
        then: tuple[NewJob, ...] = ()
        batch: UUID | None = None
        if decision == "dead_letter":
            batch = batch_of(lost.flow)
            then = caught(lost.flow, lost.id, lost.name, lost.queue, lost.rank, self.alias, record)
            self._bury(job, record, now)
            self._push(then, now)
        else:
            if decision == "give_back":
                job.attempts -= 1
            else:
                job.errors = job.errors.plus(record)
            job.crashes += int(counts)
            job.state, job.held, job.ready_at = READY, None, now
        return Rescued(
            id=lost.id,
            name=lost.name,
            queue=lost.queue,
            attempt=lost.attempt,
            max_attempts=limit,
            worker=lost.worker,
            record=None if decision == "give_back" else record,
            dead_lettered=decision == "dead_letter",
            then=then,
            batch=batch,
        )

    def _bury(self, job: _Job, record: AttemptRecord, now: datetime) -> None:
        del self._jobs[job.new.id]
        self._mark(job, FAILED)
        job.new = job.new._replace(flow=uncaught(job.new.flow))
        job.state, job.held = FAILED, None
        job.errors = job.errors.plus(record)
        number = next(self._numbers)
        self._dead[number] = _DeadLetter(job, number, record, now)

    def _ours(self, reservation: Reservation) -> _Job | None:
        job = self._jobs.get(reservation.id)
        ours = job is not None and job.held is not None and job.held.token == reservation.token
        return job if ours else None

    def _in(self, queue: str, state: str) -> Iterable[_Job]:
        return (job for job in self._jobs.values() if job.state == state and job.new.queue == queue)

    # What people do

    def cancel(
        self, job_id: UUID, *, keep_for: KeepFor = keep_nothing, now: datetime | None = None
    ) -> JobRecord | None:
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.held:
                return None
            self._cancel_job(job, keep_for, _moment(now))
            return _record(job, self.alias)

    def clear(self, queue: str, *, limit: int, keep_for: KeepFor = keep_nothing, now: datetime | None = None) -> int:
        with self._lock:
            idle = (job for job in self._jobs.values() if job.new.queue == queue and not job.held)
            cleared = list(itertools.islice(idle, limit))
            for job in cleared:
                self._cancel_job(job, keep_for, _moment(now))
        return len(cleared)

    def _cancel_job(self, job: _Job, keep_for: KeepFor, now: datetime) -> None:
        """Remove a job that is not reserved, as cancelled."""
        del self._jobs[job.new.id]
        self._mark(job, CANCELLED)
        if seconds := keep_for(job.new.name):
            self._results[job.new.id] = now + timedelta(seconds=seconds), _cancelled(job, self.alias, now)

    def get(self, job_id: UUID) -> JobRecord | None:
        with self._lock:
            job = self._jobs.get(job_id)
            if job is not None:
                return _record(job, self.alias)
            for dead in self._dead.values():
                if dead.job.new.id == job_id:
                    return _failed_record(dead, self.alias)
        return None

    def peek(self, queue: str, *, limit: int) -> list[JobRecord]:
        with self._lock:
            first = nsmallest(limit, self._in(queue, READY), key=lambda job: job.position)
            return [_record(job, self.alias) for job in first]

    def waiting(self, queue: str, *, limit: int) -> list[JobRecord]:
        with self._lock:
            ready = sorted(self._in(queue, READY), key=lambda job: job.position)
            scheduled = sorted(self._in(queue, SCHEDULED), key=lambda job: (job.available_at, job.new.id))
            return [_record(job, self.alias) for job in [*ready, *scheduled][:limit]]

    def sizes(self, *, now: datetime | None = None) -> dict[str, QueueSize]:
        moment = _moment(now)
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        oldest: dict[str, float] = {}
        with self._lock:
            for job in (*self._jobs.values(), *(dead.job for dead in self._dead.values())):
                queue = job.new.queue
                counts[queue][job.state] += 1
                if job.state == READY:
                    waited = (moment - job.ready_at).total_seconds()
                    oldest[queue] = max(waited, oldest.get(queue, 0.0))
        return {queue: QueueSize(**states, oldest=oldest.get(queue)) for queue, states in counts.items()}

    # Dead letters

    def failed(
        self,
        *,
        numbers: Collection[int] | None = None,
        job_id: UUID | None = None,
        ending: str | None = None,
        queue: str | None = None,
        up_to: int | None = None,
        after: int = 0,
        newest_first: bool = False,
        limit: int = 500,
    ) -> list[FailedSummary]:
        with self._lock:
            found = [
                dead
                for number, dead in self._dead.items()
                if number > after
                and (up_to is None or number <= up_to)
                and (numbers is None or number in numbers)
                and (job_id is None or dead.job.new.id == job_id)
                and (ending is None or str(dead.job.new.id).endswith(ending.lower()))
                and (queue is None or dead.job.new.queue == queue)
            ]
            found.sort(key=lambda dead: dead.number, reverse=newest_first)
            return [_summary(dead, self.alias) for dead in found[:limit]]

    def failed_count(self, *, queue: str | None = None) -> int:
        with self._lock:
            return sum(queue in {None, dead.job.new.queue} for dead in self._dead.values())

    def last_failed_number(self) -> int:
        with self._lock:
            return max(self._dead, default=0)

    def retry(self, retry_for: Mapping[int, float | None], *, now: datetime | None = None) -> set[int]:
        moment = _moment(now)
        with self._lock:
            found = self._dead.keys() & retry_for.keys()
            jobs = [self._dead.pop(number).job for number in found]
            for number, job in zip(found, jobs, strict=True):
                job.attempts = job.exceptions = job.crashes = 0
                job.retries += 1
                job.retry_until = _after(moment, retry_for[number])
                job.put_back(moment)
                self._jobs[job.new.id] = job
                self._mark(job, PENDING)
        self._wake(job.new.queue for job in jobs)
        return found

    def forget(self, numbers: Iterable[int]) -> set[int]:
        with self._lock:
            found = self._dead.keys() & set(numbers)
            for number in found:
                del self._dead[number]
        return found

    # Results

    def get_result(self, job_id: UUID, *, now: datetime | None = None) -> ResultRecord | None:
        with self._lock:
            kept_until, record = self._results.get(job_id, (None, None))
        return record if kept_until is not None and kept_until > _moment(now) else None

    def prune_results(self, *, limit: int = PRUNE_LIMIT, now: datetime | None = None) -> int:
        moment = _moment(now)
        with self._lock:
            expired = [(until, job_id) for job_id, (until, _record) in self._results.items() if until <= moment]
            pruned = nsmallest(limit, expired)
            for _until, job_id in pruned:
                del self._results[job_id]
        return len(pruned)

    # Batches

    def create_batch(self, batch: NewBatch, job_ids: Sequence[UUID], *, now: datetime | None = None) -> None:
        with self._lock:
            self._batches[batch.id] = _Batch(batch, _moment(now), dict.fromkeys(job_ids, PENDING), len(job_ids))

    def join_batch(self, batch_id: UUID, job_ids: Sequence[UUID]) -> bool:
        with self._lock:
            batch = self._batches.get(batch_id)
            if batch is None or batch.finished_at or batch.cancelled_at:
                return False
            batch.members |= dict.fromkeys(job_ids, PENDING)
            batch.total += len(job_ids)
            return True

    def close_batch(self, batch_id: UUID, *, now: datetime | None = None) -> ClosedBatch | None:
        moment = _moment(now)
        with self._lock:
            batch = self._batches.get(batch_id)
            if batch is None or batch.finished_at or batch.is_pending:
                return None
            batch.finished_at = moment
            record = _batch_record(batch, self.alias)
            then = read_callbacks(batch.new.callbacks).at_the_end(record)
            self._push(then, moment)
        self._wake(job.queue for job in then if is_ready_at_once(job))
        return ClosedBatch(record, then)

    def sweep_batches(
        self, *, limit: int = SWEEP_LIMIT, keep_for: KeepFor = keep_nothing, now: datetime | None = None
    ) -> list[ClosedBatch]:
        with self._lock:
            still_open = [batch for batch in self._batches.values() if not batch.finished_at]
            cancelled = [batch.new.id for batch in still_open if batch.cancelled_at][:limit]
        for batch_id in cancelled:
            self.cancel_batch(batch_id, keep_for=keep_for, now=now)
        with self._lock:
            over = [batch.new.id for batch in still_open if not batch.is_pending][:limit]
        closed = [self.close_batch(batch_id, now=now) for batch_id in over]
        return [batch for batch in closed if batch is not None]

    def get_batch(self, batch_id: UUID) -> BatchRecord | None:
        with self._lock:
            batch = self._batches.get(batch_id)
            return None if batch is None else _batch_record(batch, self.alias)

    def cancel_batch(
        self,
        batch_id: UUID,
        *,
        limit: int = CANCEL_LIMIT,
        keep_for: KeepFor = keep_nothing,
        now: datetime | None = None,
    ) -> int:
        with self._lock:
            batch = self._batches.get(batch_id)
            if batch is None or batch.finished_at:
                return 0
            batch.cancelled_at = batch.cancelled_at or _moment(now)
            pending = [job_id for job_id, state in batch.members.items() if state == PENDING]
            waiting = [self._jobs[job_id] for job_id in pending if job_id in self._jobs]
            cancelled = [job for job in waiting if not job.held][:limit]
            for job in cancelled:
                self._cancel_job(job, keep_for, _moment(now))
        return len(cancelled)

    def prune_batches(self, *, older_than: float, limit: int = PRUNE_LIMIT, now: datetime | None = None) -> int:
        before = _moment(now) - timedelta(seconds=older_than)
        with self._lock:
            ended = [
                (batch.finished_at, batch_id)
                for batch_id, batch in self._batches.items()
                if batch.finished_at is not None and batch.finished_at <= before
            ]
            pruned = nsmallest(limit, ended)
            for _finished_at, batch_id in pruned:
                del self._batches[batch_id]
        return len(pruned)

    # Waiting

    def _wake(self, queues: Iterable[str]) -> None:
        """Called without the lock, which a waiter that wakes up wants at once."""
        for queue in set(queues):
            self.wake_listeners(queue)

    def problems(self) -> list[str]:
        return [
            f"The queue connection {self.alias!r} keeps its jobs in the memory of the process "
            "that dispatched them, where a worker of another process does not see them; use the "
            'driver "database".'
        ]


class _MemoryProgress(ProgressStore):
    """The reports of the jobs of ``driver``."""

    def __init__(self, driver: MemoryDriver) -> None:
        self._driver = driver
        self._lock = Lock()
        self._last: dict[UUID, ProgressRecord] = {}

    def write(self, reports: Sequence[Report], *, now: datetime | None = None) -> None:
        valid = said_by_holders(reports, self._driver.still_held)
        moment = _moment(now)
        with self._lock:
            for one in valid:
                self._last[one.id] = ProgressRecord(one.percent, one.stage, moment, one.state)

    def get_many(self, job_ids: Sequence[UUID]) -> dict[UUID, ProgressRecord]:
        with self._lock:
            return {job_id: self._last[job_id] for job_id in job_ids if job_id in self._last}

    def prune(self, *, older_than: float, limit: int, now: datetime | None = None) -> int:
        before = _moment(now) - timedelta(seconds=older_than)
        with self._lock:
            old = [(last.updated_at, job_id) for job_id, last in self._last.items() if last.updated_at <= before]
            pruned = nsmallest(limit, old)
            for _updated_at, job_id in pruned:
                del self._last[job_id]
        return len(pruned)


def _moment(now: datetime | None) -> datetime:
    return datetime.now(UTC) if now is None else now


def _after(moment: datetime, seconds: float | None) -> datetime | None:
    """Clamped to what a datetime can hold."""
    return None if seconds is None else from_microseconds(to_microseconds(moment) + microseconds(seconds))


def _record(job: _Job, connection: str) -> JobRecord:
    return JobRecord(
        id=job.new.id,
        connection=connection,
        queue=job.new.queue,
        name=job.new.name,
        state=job.state,
        payload=job.new.payload,
        format=job.new.format,
        priority=-job.new.rank,
        attempts=job.attempts,
        max_attempts=job.new.max_attempts,
        created_at=job.created_at,
        available_at=job.available_at,
        ready_at=job.ready_at,
        reserved_at=job.held.reserved_at if job.held else None,
        reserved_until=job.held.reserved_until if job.held else None,
        worker=job.held.worker if job.held else "",
        errors=job.errors,
        metadata=job.new.metadata,
        masked=job.new.masked,
        flow=job.new.flow,
        retries=job.retries,
        batch=batch_of(job.new.flow),
    )


def _failed_record(dead: _DeadLetter, connection: str) -> JobRecord:
    return replace(
        _record(dead.job, connection),
        available_at=dead.job.created_at,
        ready_at=None,
        number=dead.number,
        exception_class=dead.record.exception_class,
        exception_message=dead.record.message,
        failed_at=dead.failed_at,
        batch=None,
    )


def _batch_record(batch: _Batch, connection: str) -> BatchRecord:
    counts = Counter(batch.members.values())
    return BatchRecord(
        id=batch.new.id,
        connection=connection,
        name=batch.new.name,
        metadata=batch.new.metadata,
        allow_failures=batch.new.allow_failures,
        total=batch.total,
        pending=counts[PENDING],
        failed=counts[FAILED],
        cancelled=counts[CANCELLED],
        created_at=batch.created_at,
        finished_at=batch.finished_at,
        cancelled_at=batch.cancelled_at,
    )


def _result(job: _Job, result: NewResult, connection: str, worker: str) -> ResultRecord:
    return ResultRecord(
        id=job.new.id,
        connection=connection,
        queue=job.new.queue,
        name=job.new.name,
        value=result.value,
        error=result.error,
        attempts=job.attempts,
        max_attempts=job.new.max_attempts,
        created_at=job.created_at,
        started_at=result.started_at,
        finished_at=result.finished_at,
        errors=job.errors,
        metadata=job.new.metadata,
        worker=worker,
        payload=job.new.payload,
        format=job.new.format,
        priority=-job.new.rank,
        masked=job.new.masked,
    )


def _cancelled(job: _Job, connection: str, now: datetime) -> ResultRecord:
    return ResultRecord(
        id=job.new.id,
        connection=connection,
        queue=job.new.queue,
        name=job.new.name,
        value="",
        error="",
        attempts=job.attempts,
        max_attempts=job.new.max_attempts,
        created_at=job.created_at,
        started_at=None,
        finished_at=now,
        errors=job.errors,
        metadata=job.new.metadata,
        worker="",
        payload=job.new.payload,
        format=job.new.format,
        priority=-job.new.rank,
        masked=job.new.masked,
        state=CANCELLED,
    )


def _summary(dead: _DeadLetter, connection: str) -> FailedSummary:
    return FailedSummary(
        number=dead.number,
        id=dead.job.new.id,
        connection=connection,
        queue=dead.job.new.queue,
        name=dead.job.new.name,
        attempts=dead.job.attempts,
        max_attempts=dead.job.new.max_attempts,
        exception_class=dead.record.exception_class,
        exception_message=dead.record.message,
        retries=dead.job.retries,
        failed_at=dead.failed_at,
    )
