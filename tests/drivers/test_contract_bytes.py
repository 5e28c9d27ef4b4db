"""The contract of acts on many large jobs, on every driver: MariaDB takes 16 MiB in one statement.

The sizes are real, since that limit cannot be lowered for a session.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError

from django_jobqueue.drivers.base import Driver
from django_jobqueue.jobs.records import Complete, Fail, NewJob, NewResult
from tests.drivers.contract import Clock, Store, attempt, ids, new

LARGE = '{"args":["' + "x" * 950_000 + '"],"kwargs":{}}'
# More than 16 MiB of them.
MANY = 18


def large(**changes: Any) -> list[NewJob]:
    return [new(payload=LARGE, **changes) for _ in range(MANY)]


def test_many_large_jobs_are_pushed(store: Store) -> None:
    jobs = large()
    assert store.push(*jobs) == ids(jobs)
    assert store.driver.sizes(now=store.clock.now)["default"].ready == MANY
    assert store.get(jobs[-1]).payload == LARGE


def test_large_jobs_that_are_there_already_are_left_alone(store: Store) -> None:
    jobs = large()
    store.push(jobs[0], jobs[-1])
    assert store.push(*jobs) == ids(jobs[1:-1])


def test_of_many_large_jobs_all_are_pushed_or_none(store: Store, driver: Driver) -> None:
    if not driver.supports_transactions:
        pytest.skip("has no transactions")
    with pytest.raises(IntegrityError):
        store.push(*large(), new(name=None))  # type: ignore[arg-type]
    assert driver.queues() == []


def test_many_large_results_are_kept(store: Store, clock: Clock) -> None:
    store.push(*(new() for _ in range(MANY)))
    result = NewResult(value=LARGE, error="", started_at=clock.now, finished_at=clock.now, keep_for=60)
    held = store.take(rows=MANY)
    assert store.settle(*(Complete(job, (), result) for job in held)) == ids(held)
    for job in held[0], held[-1]:
        record = store.driver.get_result(job.id, now=clock.now)
        assert record is not None
        assert record.value == LARGE


def test_many_large_jobs_follow_those_that_end(store: Store) -> None:
    jobs = large()
    store.push(*(new() for _ in range(MANY)))
    held = store.take(rows=MANY)
    assert store.settle(*(Complete(job, (then,)) for job, then in zip(held, jobs, strict=True))) == ids(held)
    assert {record.id for record in store.driver.peek("default", limit=MANY + 1)} == ids(jobs)


def test_many_large_jobs_die_and_are_retried(store: Store, driver: Driver) -> None:
    store.push(*large(max_attempts=2))
    for job in store.take(rows=MANY):
        store.release(job, record=attempt())
    for _ in range(MANY):
        store.settle(Fail(store.take_one(), attempt(2, "x" * 400)))
    letters = driver.failed(limit=MANY + 1)
    assert len(letters) == MANY
    assert store.retry(*(letter.number for letter in letters)) == {letter.number for letter in letters}
    assert driver.failed_count() == 0
    back = driver.peek("default", limit=MANY + 1)
    assert [(job.payload, job.errors.total, job.retries) for job in back] == [(LARGE, 2, 1)] * MANY


def test_many_large_jobs_whose_worker_was_lost_become_dead_letters(store: Store, driver: Driver) -> None:
    jobs = large(max_attempts=1)
    store.push(*jobs)
    for _ in jobs:
        store.take_one()
    assert {rescued.id for rescued in store.lose() if rescued.dead_lettered} == ids(jobs)
    assert driver.failed_count() == MANY
