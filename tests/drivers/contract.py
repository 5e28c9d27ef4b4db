"""The words of the contract suite: a clock that the test owns, and short forms of every move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any, TypeVar
from uuid import UUID

import pytest
from django.db import connections

from django_jobqueue.drivers.base import Driver
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import (
    AttemptRecord,
    Complete,
    Fail,
    FailedSummary,
    JobRecord,
    NewJob,
    Position,
    Release,
    Rescued,
    Reservation,
    Reserved,
    ReserveLimit,
)

RETRY_AFTER = 90
# Real transactions, since only of those is true what the contract promises to other workers.
DATABASE = pytest.param("database", marks=pytest.mark.django_db(transaction=True))
PORTABLE = pytest.param("portable", marks=pytest.mark.django_db(transaction=True))
T = TypeVar("T")


class Clock:
    """The store's time, which moves only when the test says so."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, 12, tzinfo=UTC)

    def tick(self, seconds: float = 1) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now

    def after(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)


def new(name: str = "shop.work", **changes: Any) -> NewJob:
    """A job of the queue "default" that is ready at once; the ids ascend in the order of calls."""
    given = {"id": new_job_id(), "queue": "default", "payload": '{"args":[],"kwargs":{}}'}
    return NewJob(**{**given, "name": name, "format": 1, **changes})


def attempt(number: int = 1, message: str = "boom") -> AttemptRecord:
    return AttemptRecord(
        number=number,
        worker="w1",
        started="2030-01-01T12:00:00+00:00",
        waited=0.5,
        ran=0.25,
        exception_class="ValueError",
        message=message,
        traceback="Traceback (most recent call last):\nValueError: boom",
    )


class Store:
    """A driver at the clock's time, with the defaults of a small worker."""

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self.driver = driver
        self.clock = clock

    def push(self, *jobs: NewJob) -> set[UUID]:
        return self.driver.push(jobs, now=self.clock.now)

    def dispatch(self, name: str = "shop.work", **changes: Any) -> NewJob:
        job = new(name, **changes)
        assert self.push(job) == {job.id}
        return job

    def stage(self, queue: str = "default", **changes: Any) -> int:
        return self.driver.stage(queue, now=self.clock.now, **changes)

    def reserve(
        self,
        queue: str = "default",
        *,
        rows: int = 10,
        worker: str = "w1",
        max_attempts: int = 3,
        seconds: float = float("inf"),
        averages: Mapping[str, float] | None = None,
        retry_after: float = RETRY_AFTER,
        after: Position | None = None,
    ) -> Reserved:
        limit = ReserveLimit(rows=rows, max_attempts=max_attempts, seconds=seconds, averages=averages or {})
        return self.driver.reserve(queue, worker, limit, retry_after=retry_after, after=after, now=self.clock.now)

    def take(self, queue: str = "default", **changes: Any) -> list[Reservation]:
        return self.reserve(queue, **changes).jobs

    def take_one(self, queue: str = "default", **changes: Any) -> Reservation:
        (reservation,) = self.take(queue, rows=1, **changes)
        return reservation

    def renew(self, *reservations: Reservation) -> set[UUID]:
        return self.driver.renew(reservations, retry_after=RETRY_AFTER, now=self.clock.now)

    def hand_back(self, *reservations: Reservation) -> set[UUID]:
        return self.driver.hand_back(reservations)

    def settle(self, *settlements: Complete | Release | Fail) -> set[UUID]:
        return self.driver.settle(settlements, now=self.clock.now)

    def complete(self, reservation: Reservation, *then: NewJob) -> set[UUID]:
        return self.settle(Complete(reservation, then))

    def release(self, reservation: Reservation, delay: float = 0, record: AttemptRecord | None = None) -> set[UUID]:
        return self.settle(Release(reservation, delay, record))

    def fail(self, reservation: Reservation, record: AttemptRecord | None = None) -> set[UUID]:
        return self.settle(Fail(reservation, record or attempt(reservation.attempt)))

    def rescue(self, *, max_attempts: int = 3, **changes: Any) -> list[Rescued]:
        return self.driver.rescue(max_attempts=max_attempts, now=self.clock.now, **changes)

    def lose(self, **changes: Any) -> list[Rescued]:
        """Let every reservation expire, and rescue."""
        self.clock.tick(RETRY_AFTER + 1)
        return self.rescue(**changes)

    def retry(self, *numbers: int, retry_for: float | None = None) -> set[int]:
        return self.driver.retry(dict.fromkeys(numbers, retry_for), now=self.clock.now)

    def bury(self, *jobs: NewJob) -> list[FailedSummary]:
        """Make dead letters, numbered in this order."""
        found = []
        for job in jobs:
            self.push(job)
            reservation = self.take_one(job.queue)
            assert self.fail(reservation) == {job.id}
            found += self.driver.failed(job_id=job.id)
        return found

    def get(self, job: NewJob | Reservation) -> JobRecord:
        record = self.driver.get(job.id)
        assert record is not None
        return record

    def gone(self, job: NewJob | Reservation) -> bool:
        return self.driver.get(job.id) is None

    def order(self, queue: str = "default") -> list[str]:
        """The names of the ready jobs, in the order of running."""
        return [record.name for record in self.driver.peek(queue, limit=100)]


def superseded(store: Store) -> tuple[Reservation, Reservation]:
    """A reservation that expired, and the one that another worker holds of the same job now."""
    store.dispatch(max_attempts=5)
    old = store.take_one(worker="paused")
    store.lose()
    current = store.take_one(worker="current")
    assert current.id == old.id
    return old, current


def ids(jobs: list[NewJob] | list[Reservation] | list[Rescued]) -> set[UUID]:
    return {job.id for job in jobs}


def at_once(count: int, action: Callable[[], T]) -> list[T]:
    """What ``action`` returns in each of ``count`` threads, which start together."""
    barrier = Barrier(count)

    def run() -> T:
        barrier.wait()
        try:
            return action()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(run) for _ in range(count)]]
