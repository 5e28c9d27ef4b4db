"""What a queue is, once more and plainly: the table of the design as Python, to compare drivers with.

Written apart from every driver and none the wiser about storage: no index, no SQL, no lock. Every method takes
``now``. Where the contract leaves a choice to the driver (ties), the method takes what the driver chose, and
says whether it might.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django_jobqueue.jobs.records import (
    AttemptHistory,
    AttemptRecord,
    Cause,
    Complete,
    Fail,
    FailedSummary,
    JobRecord,
    NewJob,
    Position,
    QueueSize,
    Release,
    Rescued,
    Reservation,
    ReserveLimit,
    Settlement,
)

LOST = "django_jobqueue.exceptions.ReservationLost"
KEPT_RECORDS = 20


@dataclass(slots=True, kw_only=True)
class ModelJob:
    new: NewJob
    state: str
    created_at: datetime
    available_at: datetime
    ready_at: datetime
    retry_until: datetime | None
    attempts: int = 0
    exceptions: int = 0
    crashes: int = 0
    retries: int = 0
    errors: AttemptHistory = field(default_factory=AttemptHistory)
    held: Reservation | None = None
    number: int | None = None
    failed_at: datetime | None = None

    @property
    def id(self) -> UUID:
        return self.new.id

    @property
    def position(self) -> Position:
        return Position(self.new.rank, self.ready_at, self.id)

    def write_down(self, record: AttemptRecord) -> None:
        self.errors = AttemptHistory(self.errors.total + 1, (*self.errors.last, record)[-KEPT_RECORDS:])

    def has_only(self, attempts: int, default: int) -> bool:
        """Whether ``attempts`` are all that this job has."""
        return attempts >= (default if self.new.max_attempts is None else self.new.max_attempts)


class ModelQueue:
    def __init__(self, connection: str, *, goes_on_behind: bool) -> None:
        self.connection = connection
        #: ``after`` is a hint: a driver that reads all of a queue anyway need not take it.
        self.goes_on_behind = goes_on_behind
        self.jobs: dict[UUID, ModelJob] = {}
        self.dead: dict[UUID, ModelJob] = {}

    # What is there

    def in_state(self, queue: str, state: str) -> list[ModelJob]:
        """In the order of running."""
        found = [job for job in self.jobs.values() if job.new.queue == queue and job.state == state]
        return sorted(found, key=lambda job: job.position)

    def holds(self, reservation: Reservation) -> ModelJob | None:
        """The job of a reservation that is valid still."""
        job = self.jobs.get(reservation.id)
        is_held = job is not None and job.held is not None and job.held.token == reservation.token
        return job if is_held else None

    def held(self) -> list[Reservation]:
        return [job.held for job in self.jobs.values() if job.held is not None]

    def queues(self) -> list[str]:
        return sorted({job.new.queue for job in self.jobs.values()})

    def sizes(self, now: datetime) -> dict[str, QueueSize]:
        sizes: dict[str, QueueSize] = {}
        for job in (*self.jobs.values(), *self.dead.values()):
            size = sizes.get(job.new.queue, QueueSize())
            size = replace(size, **{job.state: getattr(size, job.state) + 1})
            if job.state == "ready":
                size = replace(size, oldest=max(size.oldest or 0.0, (now - job.ready_at).total_seconds()))
            sizes[job.new.queue] = size
        return sizes

    def get(self, job_id: UUID) -> JobRecord | None:
        job = self.jobs.get(job_id) or self.dead.get(job_id)
        if job is None:
            return None
        record = JobRecord(
            id=job.id,
            connection=self.connection,
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
            errors=job.errors,
            metadata=job.new.metadata,
            masked=job.new.masked,
            retries=job.retries,
        )
        if job.held is not None:
            until = job.held.reserved_until
            record = replace(record, worker=job.held.worker, reserved_at=job.held.reserved_at, reserved_until=until)
        if job.state == "failed":
            cause = job.errors.last[-1]
            record = replace(
                record,
                available_at=job.created_at,  # a dead letter waits for nothing: only its dispatch is kept
                ready_at=None,
                number=job.number,
                exception_class=cause.exception_class,
                exception_message=cause.message,
                failed_at=job.failed_at,
            )
        return record

    def failed(self, **conditions: Any) -> list[FailedSummary]:
        dead = sorted(self.dead.values(), key=lambda job: job.number or 0)
        if conditions.pop("newest_first", False):
            dead.reverse()
        limit = conditions.pop("limit", 500)
        meets = {
            "numbers": lambda job, numbers: job.number in numbers,
            "job_id": lambda job, job_id: job.id == job_id,
            "ending": lambda job, ending: job.id.hex.endswith(ending.replace("-", "").lower()),
            "queue": lambda job, queue: job.new.queue == queue,
            "up_to": lambda job, number: job.number <= number,
            "after": lambda job, number: job.number > number,
        }
        found = [job for job in dead if all(meets[name](job, value) for name, value in conditions.items())]
        return [self._summary(job) for job in found[:limit]]

    def _summary(self, job: ModelJob) -> FailedSummary:
        cause = job.errors.last[-1]
        assert job.number is not None
        assert job.failed_at is not None
        return FailedSummary(
            number=job.number,
            id=job.id,
            connection=self.connection,
            queue=job.new.queue,
            name=job.new.name,
            attempts=job.attempts,
            max_attempts=job.new.max_attempts,
            exception_class=cause.exception_class,
            exception_message=cause.message,
            retries=job.retries,
            failed_at=job.failed_at,
        )

    # Dispatch and staging

    def push(self, jobs: Iterable[NewJob], now: datetime) -> set[UUID]:
        stored = set()
        for new in jobs:
            if new.id in self.jobs:
                continue
            due = new.available_at or now + timedelta(seconds=new.delay or 0)
            self.jobs[new.id] = ModelJob(
                new=new,
                state="ready" if due <= now else "scheduled",
                created_at=now,
                available_at=due,
                ready_at=max(due, now),
                retry_until=None if new.retry_for is None else due + timedelta(seconds=new.retry_for),
            )
            stored.add(new.id)
        return stored

    def due(self, queue: str, now: datetime) -> list[ModelJob]:
        due = [job for job in self.in_state(queue, "scheduled") if job.available_at <= now]
        return sorted(due, key=lambda job: job.available_at)

    def stage(self, chosen: Collection[UUID], now: datetime) -> None:
        for job_id in chosen:
            job = self.jobs[job_id]
            job.state, job.ready_at = "ready", now

    # Reservations

    def reserve(
        self,
        queue: str,
        worker: str,
        limit: ReserveLimit,
        *,
        retry_after: float,
        after: Position | None,
        now: datetime,
    ) -> tuple[list[Reservation], bool]:
        """Take the leading jobs under tokens that the driver will name, and say whether more may wait."""
        ready = self.in_state(queue, "ready")
        if after is not None and self.goes_on_behind:
            ready = [job for job in ready if job.position > after]
        taken = self._leading(ready[: limit.rows], limit)
        for job in taken:
            job.state = "reserved"
            job.attempts += 1
            job.held = Reservation(
                id=job.id,
                token=UUID(int=0),
                worker=worker,
                connection=self.connection,
                queue=queue,
                name=job.new.name,
                payload=job.new.payload,
                format=job.new.format,
                rank=job.new.rank,
                attempt=job.attempts,
                max_attempts=job.new.max_attempts,
                exceptions=job.exceptions,
                crashes=job.crashes,
                alone=len(taken) == 1,
                ready_at=job.ready_at,
                created_at=job.created_at,
                reserved_at=now,
                reserved_until=now + timedelta(seconds=retry_after),
                retry_until=job.retry_until,
                metadata=job.new.metadata,
                masked=job.new.masked,
            )
        more = bool(taken) and (len(taken) == limit.rows or len(taken) < len(ready))
        return [job.held for job in taken if job.held], more

    def _leading(self, ready: list[ModelJob], limit: ReserveLimit) -> list[ModelJob]:
        if not ready or self._goes_alone(ready[0], limit):
            return ready[:1]
        taken, spent = ready[:1], limit.averages.get(ready[0].new.name, limit.seconds)
        for job in ready[1:]:
            spent += limit.averages.get(job.new.name, limit.seconds)
            if self._goes_alone(job, limit) or spent > limit.seconds:
                break
            taken.append(job)
        return taken

    def _goes_alone(self, job: ModelJob, limit: ReserveLimit) -> bool:
        return job.crashes > 0 or job.has_only(job.attempts + 1, limit.max_attempts)

    def adopt(self, reservations: Iterable[Reservation]) -> None:
        """Know the tokens that the driver made."""
        for reservation in reservations:
            self.jobs[reservation.id].held = reservation

    def renew(self, reservations: Collection[Reservation], *, retry_after: float, now: datetime) -> set[UUID]:
        lost = set()
        for reservation in reservations:
            job = self.holds(reservation)
            if job is None or job.held is None:
                lost.add(reservation.id)
            else:
                job.held = job.held._replace(reserved_until=now + timedelta(seconds=retry_after))
        return lost

    def hand_back(self, reservations: Iterable[Reservation]) -> set[UUID]:
        held = [job for job in map(self.holds, reservations) if job is not None]
        for job in held:
            job.state, job.held = "ready", None
            job.attempts -= 1
        return {job.id for job in held}

    def release_worker(self, worker: str, *, but: Collection[UUID]) -> int:
        return len(self.hand_back([held for held in self.held() if held.worker == worker and held.id not in but]))

    def settle(self, settlements: Iterable[Settlement], now: datetime) -> set[UUID]:
        ours = [(job, item) for item in settlements if (job := self.holds(item.reservation)) is not None]
        for job, item in ours:
            if isinstance(item, Complete):
                del self.jobs[job.id]
            elif isinstance(item, Fail):
                self._bury(job, item.record, now)
            else:
                self._release(job, item, now)
        for _, item in ours:
            if isinstance(item, Complete):
                self.push(item.then, now)
        return {job.id for job, _ in ours}

    def _release(self, job: ModelJob, item: Release, now: datetime) -> None:
        job.held = None
        if item.record is None:
            job.attempts -= 1
        else:
            job.exceptions += 1
            job.write_down(item.record)
        job.available_at = job.ready_at = now + timedelta(seconds=item.delay)
        job.state = "scheduled" if job.ready_at > now else "ready"

    def _bury(self, job: ModelJob, record: AttemptRecord, now: datetime) -> None:
        del self.jobs[job.id]
        self.dead[job.id] = job
        job.state, job.held, job.failed_at, job.number = "failed", None, now, None
        job.write_down(record)

    def expired(self, now: datetime) -> list[Reservation]:
        expired = [held for held in self.held() if held.reserved_until <= now]
        return sorted(expired, key=lambda held: held.reserved_until)

    def rescue(self, chosen: Iterable[UUID], *, max_attempts: int, now: datetime) -> list[Rescued]:
        return [self._recover(self.jobs[job_id], max_attempts, now) for job_id in chosen]

    def rescue_in_hand(
        self, reservation: Reservation, *, max_attempts: int, spends: bool, cause: Cause | None, now: datetime
    ) -> Rescued | None:
        job = self.holds(reservation)
        if job is None:
            return None
        is_only = job.has_only(1, max_attempts)  # started once, it is never started again
        return self._recover(job, max_attempts, now, is_spent=spends or is_only, is_crash=spends, cause=cause)

    def _recover(
        self,
        job: ModelJob,
        max_attempts: int,
        now: datetime,
        *,
        is_spent: bool | None = None,
        is_crash: bool = True,
        cause: Cause | None = None,
    ) -> Rescued:
        held = job.held
        assert held is not None
        if is_spent is None:
            is_spent = held.alone
        is_late = job.retry_until is not None and now > job.retry_until
        is_dead = is_spent and (is_late or job.has_only(held.attempt, max_attempts))
        times = "once" if held.attempt == 1 else f"{held.attempt} times"
        record = AttemptRecord(
            number=held.attempt,
            worker=held.worker,
            started=held.reserved_at.isoformat(),
            waited=max(0.0, (held.reserved_at - job.ready_at).total_seconds()),
            ran=max(0.0, (now - held.reserved_at).total_seconds()),
            exception_class=LOST,
            message=f"Reserved {times} without finishing; its worker {held.worker!r} was lost.",
        )
        if cause is not None:
            record = replace(
                record, exception_class=cause.exception_class, message=cause.message, traceback=cause.traceback
            )
        if is_dead:
            self._bury(job, record, now)
        else:
            job.state, job.held, job.ready_at = "ready", None, now
            job.crashes += 1 if is_crash else 0
            if is_spent:
                job.write_down(record)
            else:
                job.attempts -= 1
        return Rescued(
            id=job.id,
            name=job.new.name,
            queue=job.new.queue,
            attempt=held.attempt,
            max_attempts=max_attempts if job.new.max_attempts is None else job.new.max_attempts,
            worker=held.worker,
            record=record if is_spent else None,
            dead_lettered=is_dead,
        )

    # What people do

    def cancel(self, job_id: UUID) -> JobRecord | None:
        job = self.jobs.get(job_id)
        if job is None or job.held is not None:
            return None
        record = self.get(job_id)
        del self.jobs[job_id]
        return record

    def idle(self, queue: str) -> set[UUID]:
        return {job.id for job in self.jobs.values() if job.new.queue == queue and job.held is None}

    def clear(self, chosen: Iterable[UUID]) -> None:
        for job_id in chosen:
            del self.jobs[job_id]

    def _numbered(self, numbers: Iterable[int]) -> list[ModelJob]:
        wanted = set(numbers)
        return [job for job in self.dead.values() if job.number in wanted]

    def retry(self, retry_for: Mapping[int, float | None], now: datetime) -> set[int]:
        found = {job.number: job for job in self._numbered(retry_for) if job.number is not None}
        for number, job in found.items():
            seconds = retry_for[number]
            del self.dead[job.id]
            self.jobs[job.id] = job
            job.state, job.number, job.failed_at = "ready", None, None
            job.attempts = job.exceptions = job.crashes = 0
            job.retries += 1
            job.available_at = job.ready_at = now
            job.retry_until = None if seconds is None else now + timedelta(seconds=seconds)
        return set(found)

    def forget(self, numbers: Iterable[int]) -> set[int]:
        found = self._numbered(numbers)
        for job in found:
            del self.dead[job.id]
        return {job.number for job in found if job.number is not None}
