"""The contract of cancelled jobs, on every driver: those that keep their result keep that they were cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from django_jobqueue.drivers.base import CANCEL_LIMIT
from django_jobqueue.jobs.flows import Flow
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import NewBatch, NewJob, ResultRecord
from tests.drivers.contract import Clock, Store, attempt, new


def keep_for(name: str) -> float:
    return 60 if name.startswith("kept") else 0


def result_of(store: Store, job_id: UUID) -> ResultRecord | None:
    return store.driver.get_result(job_id, now=store.clock.now)


def in_a_batch(store: Store, *names: str, **changes: Any) -> tuple[UUID, list[NewJob]]:
    batch = NewBatch(id=new_job_id(), name="", metadata="", allow_failures=False, callbacks="{}")
    jobs = [new(name, flow=Flow(batch=batch.id).write(), **changes) for name in names]
    store.driver.create_batch(batch, [job.id for job in jobs], now=store.clock.now)
    store.push(*jobs)
    return batch.id, jobs


def cancelled(store: Store, *names: str, **changes: Any) -> list[NewJob]:
    jobs = [store.dispatch(name, **changes) for name in names]
    for job in jobs:
        assert store.driver.cancel(job.id, keep_for=keep_for, now=store.clock.now) is not None
    return jobs


def cleared(store: Store, *names: str, **changes: Any) -> list[NewJob]:
    jobs = [store.dispatch(name, **changes) for name in names]
    assert store.driver.clear("default", limit=500, keep_for=keep_for, now=store.clock.now) == len(jobs)
    return jobs


def cancelled_with_their_batch(store: Store, *names: str, **changes: Any) -> list[NewJob]:
    batch_id, jobs = in_a_batch(store, *names, **changes)
    assert store.driver.cancel_batch(batch_id, keep_for=keep_for, now=store.clock.now) == len(jobs)
    return jobs


def swept(store: Store, *names: str, **changes: Any) -> list[NewJob]:
    """Left waiting in a batch that was cancelled while they ran."""
    delay = changes.pop("delay", 0)
    batch_id, jobs = in_a_batch(store, *names, **changes)
    held = store.take(rows=500)
    assert store.driver.cancel_batch(batch_id, keep_for=keep_for, now=store.clock.now) == 0
    for reservation in held:
        store.release(reservation, delay)
    store.driver.sweep_batches(keep_for=keep_for, now=store.clock.now)
    return jobs


Cancel = Callable[..., list[NewJob]]
every_way = pytest.mark.parametrize("cancel", [cancelled, cleared, cancelled_with_their_batch, swept])


@every_way
@pytest.mark.parametrize("delay", [0, 60])
def test_a_job_that_keeps_its_result_is_kept_as_cancelled(
    store: Store, clock: Clock, cancel: Cancel, delay: float
) -> None:
    created_at = clock.now
    (job,) = cancel(
        store,
        "kept ☃",
        delay=delay,
        max_attempts=5,
        metadata='{"user":"\\u2603"}',
        payload='{"args":["\\u2603 \\""]}',
        rank=-3,
        masked="[[]]",
    )
    assert store.gone(job)
    record = result_of(store, job.id)
    assert record is not None
    assert (record.state, record.value, record.error) == ("cancelled", "", "")
    assert (record.id, record.connection, record.queue, record.name) == (
        job.id,
        store.driver.alias,
        "default",
        "kept ☃",
    )
    assert (record.attempts, record.max_attempts, record.worker) == (0, 5, "")
    assert (record.payload, record.format, record.priority) == (job.payload, job.format, 3)
    assert (record.metadata, record.masked) == (job.metadata, job.masked)
    assert (record.created_at, record.started_at, record.finished_at) == (created_at, None, clock.now)
    assert record.errors.total == 0


@every_way
def test_only_jobs_that_keep_their_result_are_kept(store: Store, cancel: Cancel) -> None:
    jobs = cancel(store, "kept", "lost", "kept", "lost")
    assert [result_of(store, job.id) is not None for job in jobs] == [True, False, True, False]
    assert all(store.gone(job) for job in jobs)


@every_way
def test_of_many_jobs_each_is_kept_with_what_is_its_own(store: Store, cancel: Cancel) -> None:
    jobs = cancel(store, *(f"kept {number}" for number in range(45)))
    records = [result_of(store, job.id) for job in jobs]
    assert [record and record.name for record in records] == [job.name for job in jobs]


@every_way
def test_a_cancelled_job_is_kept_until_its_time_is_over(store: Store, clock: Clock, cancel: Cancel) -> None:
    (job,) = cancel(store, "kept")
    clock.tick(59)
    assert store.driver.prune_results(now=clock.now) == 0
    assert result_of(store, job.id) is not None
    clock.tick(1)
    assert result_of(store, job.id) is None
    assert store.driver.prune_results(now=clock.now) == 1


@pytest.mark.parametrize("act", ["cancel", "clear"])
def test_a_cancelled_job_has_the_attempts_and_errors_that_it_had(store: Store, clock: Clock, act: str) -> None:
    job = store.dispatch("kept")
    store.release(store.take_one(), record=attempt(1, "first"))
    store.release(store.take_one(), record=attempt(2, "second"))
    if act == "cancel":
        store.driver.cancel(job.id, keep_for=keep_for, now=clock.now)
    else:
        store.driver.clear("default", limit=10, keep_for=keep_for, now=clock.now)
    record = result_of(store, job.id)
    assert record is not None
    assert record.attempts == 2
    assert [error.message for error in record.errors.last] == ["first", "second"]


def test_a_job_that_is_not_cancelled_is_not_kept(store: Store) -> None:
    job = store.dispatch("kept")
    store.take_one()
    assert store.driver.cancel(job.id, keep_for=keep_for) is None
    assert store.driver.clear("default", limit=10, keep_for=keep_for) == 0
    assert result_of(store, job.id) is None


def test_a_cancel_that_only_moves_a_job_keeps_nothing(store: Store) -> None:
    job = store.dispatch("kept")
    assert store.driver.cancel(job.id) is not None
    assert result_of(store, job.id) is None


@pytest.mark.parametrize("limit", [1, 30])
def test_a_clear_of_jobs_that_are_kept_is_bounded(store: Store, clock: Clock, limit: int) -> None:
    jobs = [store.dispatch("kept") for _ in range(limit + 1)]
    assert store.driver.clear("default", limit=limit, keep_for=keep_for, now=clock.now) == limit
    assert sum(result_of(store, job.id) is not None for job in jobs) == limit
    assert store.driver.clear("default", limit=limit, keep_for=keep_for, now=clock.now) == 1


def test_a_job_that_was_cancelled_and_stored_again_is_found_as_it_ended_last(store: Store, clock: Clock) -> None:
    (job,) = cancelled(store, "kept")
    store.push(job)
    assert store.get(job).state == "ready"
    store.driver.cancel(job.id, keep_for=keep_for, now=clock.tick(10))
    record = result_of(store, job.id)
    assert record is not None
    assert record.finished_at == clock.now


def test_a_cancel_that_is_rolled_back_leaves_the_job_and_no_result(store: Store) -> None:
    if not store.driver.supports_transactions:
        pytest.skip("has no transactions")
    job = store.dispatch("kept")

    def cancel_and_fail() -> None:
        with transaction.atomic():
            store.driver.cancel(job.id, keep_for=keep_for, now=store.clock.now)
            raise LookupError

    with pytest.raises(LookupError):
        cancel_and_fail()
    assert store.get(job).state == "ready"
    assert result_of(store, job.id) is None


def test_a_whole_page_of_a_batch_is_kept(store: Store, clock: Clock) -> None:
    batch_id, jobs = in_a_batch(store, *["kept"] * (CANCEL_LIMIT + 1))
    steps = [store.driver.cancel_batch(batch_id, keep_for=keep_for, now=clock.now) for _ in range(3)]
    assert steps == [CANCEL_LIMIT, 1, 0]
    assert all(result_of(store, job.id) is not None for job in jobs[::100])
