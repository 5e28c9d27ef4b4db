"""The contract of batches, on every driver: who is a member, and that a batch ends exactly once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from django_jobqueue.jobs.flows import RELAY, Callbacks, Flow, Step
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import BatchRecord, ClosedBatch, Complete, Fail, NewBatch, NewJob, Reservation
from tests.drivers.contract import Clock, Store, at_once, attempt, new, superseded

WEEK = 7 * 86_400.0


class Batched:
    """One batch, and its members."""

    def __init__(self, store: Store, count: int = 0, *, callbacks: Callbacks | None = None, **changes: Any) -> None:
        self.store = store
        given: dict[str, Any] = {"name": "", "metadata": "", "allow_failures": False}
        text = (callbacks or Callbacks()).write()
        self.new = NewBatch(**{**given, "id": new_job_id(), "callbacks": text, **changes})
        self.jobs = [self.member() for _ in range(count)]
        store.driver.create_batch(self.new, [job.id for job in self.jobs], now=store.clock.now)
        store.push(*self.jobs)

    def member(self, **changes: Any) -> NewJob:
        return new(flow=Flow(batch=self.new.id).write(), **changes)

    def completed(self, held: Reservation, *then: NewJob) -> Complete:
        return Complete(held, then, batch=self.new.id)

    def failed(self, held: Reservation) -> Fail:
        return Fail(held, attempt(), batch=self.new.id)

    def close(self) -> ClosedBatch | None:
        return self.store.driver.close_batch(self.new.id, now=self.store.clock.now)

    @property
    def record(self) -> BatchRecord:
        record = self.store.driver.get_batch(self.new.id)
        assert record is not None
        return record

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        record = self.record
        return record.total, record.pending, record.done, record.failed, record.cancelled


def test_a_member_tells_of_its_batch(store: Store) -> None:
    batch = Batched(store, 1)
    store.dispatch()
    assert [record.batch for record in store.driver.waiting("default", limit=9)] == [batch.new.id, None]
    assert store.get(batch.jobs[0]).batch == batch.new.id
    assert [record.batch for record in store.driver.peek("default", limit=9)] == [batch.new.id, None]


def test_a_batch_tells_of_itself(store: Store, clock: Clock) -> None:
    batch = Batched(store, 2, name="night ☃", metadata='{"user":7}', allow_failures=True)
    record = batch.record
    assert (record.id, record.name, record.connection) == (batch.new.id, "night ☃", store.driver.alias)
    assert (record.metadata, record.allow_failures) == ('{"user":7}', True)
    assert (record.created_at, record.finished_at, record.cancelled_at) == (clock.now, None, None)
    assert batch.counts == (2, 2, 0, 0, 0)


def test_members_that_succeed_leave_and_those_that_fail_are_counted(store: Store) -> None:
    batch = Batched(store, 3)
    first, second, _third = store.take()
    store.settle(batch.completed(first), batch.failed(second))
    assert batch.counts == (3, 1, 1, 1, 0)
    assert batch.close() is None


def test_a_batch_ends_when_no_member_is_pending_and_only_once(store: Store, clock: Clock) -> None:
    batch = Batched(store, 2)
    first, second = store.take()
    store.settle(batch.completed(first))
    assert batch.close() is None
    store.settle(batch.failed(second))
    clock.tick(5)
    closed = batch.close()
    assert closed is not None
    assert (closed.record.finished_at, closed.record.failed) == (clock.now, 1)
    assert batch.close() is None


def test_a_batch_without_members_ends_at_once(store: Store) -> None:
    assert Batched(store, 0).close() is not None


def test_the_close_of_a_batch_that_never_was_is_none(store: Store) -> None:
    assert store.driver.close_batch(new_job_id()) is None
    assert store.driver.get_batch(new_job_id()) is None


def callbacks_of(store: Store) -> tuple[Callbacks, NewJob, NewJob, NewJob]:
    jobs = [new(name, payload='{"args":[{"$type":"previous"}],"kwargs":{}}') for name in ("then", "catch", "finally")]
    steps = [Step(store.driver.alias, job) for job in jobs]
    return Callbacks(*steps), *jobs  # type: ignore[return-value]


ENDS = [
    ("completed", False, ["then", "finally"]),
    ("failed", False, ["catch", "finally"]),
    ("failed", True, ["then", "catch", "finally"]),
    ("cancelled", False, ["finally"]),
]


@pytest.mark.parametrize(("end", "allow_failures", "called"), ENDS)
def test_the_callbacks_are_stored_with_the_end(store: Store, end: str, allow_failures: bool, called: list[str]) -> None:
    callbacks, *jobs = callbacks_of(store)
    batch = Batched(store, 1, callbacks=callbacks, allow_failures=allow_failures, name="night")
    if end == "cancelled":
        assert store.driver.cancel_batch(batch.new.id) == 1
    else:
        store.settle(getattr(batch, end)(store.take_one()))
    closed = batch.close()
    assert closed is not None
    assert sorted(job.name for job in closed.then) == sorted(called)
    assert sorted(store.order()) == sorted(called)
    assert [store.driver.get(job.id) is not None for job in jobs] == [job.name in called for job in jobs]
    assert all('"name":"night"' in held.payload and '"total":1' in held.payload for held in store.take())


def test_a_callback_of_another_connection_is_relayed(store: Store) -> None:
    batch = Batched(store, 0, callbacks=Callbacks(finally_=Step("elsewhere", new("there", queue="mail"))))
    closed = batch.close()
    assert closed is not None
    assert [(job.name, job.queue) for job in closed.then] == [(RELAY, "mail")]


@pytest.mark.parametrize("text", ["", "{", "7", '{"then":7}', '{"no":{}}'])
def test_callbacks_that_cannot_be_read_keep_no_batch_open(store: Store, text: str) -> None:
    """F64"""
    batch = Batched(store, 0)
    other = NewBatch(id=new_job_id(), name="", metadata="", allow_failures=False, callbacks=text)
    store.driver.create_batch(other, [])
    closed = store.driver.close_batch(other.id)
    assert closed is not None
    assert closed.then == ()
    assert batch.close() is not None


def test_a_lost_reservation_moves_no_batch(store: Store) -> None:
    old, current = superseded(store)
    batch = Batched(store, 0)
    assert store.driver.join_batch(batch.new.id, [old.id])
    assert store.settle(batch.completed(old)) == set()
    assert store.settle(batch.failed(old)) == set()
    assert batch.counts == (1, 1, 0, 0, 0)
    store.settle(batch.completed(current))
    assert batch.counts == (1, 0, 1, 0, 0)


def test_members_leave_with_others_of_their_reserve_and_once(store: Store) -> None:
    batch = Batched(store, 2)
    store.dispatch()
    first, second, other = store.take(rows=3)
    store.settle(batch.completed(first))
    assert batch.counts == (2, 1, 1, 0, 0)
    ended = [batch.completed(first), batch.completed(second), Complete(other)]
    assert store.settle(*ended) == {second.id, other.id}
    assert batch.counts == (2, 0, 2, 0, 0)


def test_a_release_leaves_no_batch(store: Store) -> None:
    batch = Batched(store, 1)
    store.release(store.take_one(), record=attempt())
    assert batch.counts == (1, 1, 0, 0, 0)


def test_the_next_step_of_a_chain_is_the_member_in_the_place_of_the_one_before(store: Store) -> None:
    batch = Batched(store, 1)
    following = batch.member()
    store.settle(batch.completed(store.take_one(), following))
    assert batch.counts == (1, 1, 0, 0, 0)
    assert batch.close() is None
    store.settle(batch.completed(store.take_one()))
    assert batch.counts == (1, 0, 1, 0, 0)


def test_a_rescue_that_makes_a_dead_letter_fails_the_member(store: Store) -> None:
    batch = Batched(store)
    deadly = batch.member(max_attempts=1)
    assert store.driver.join_batch(batch.new.id, [deadly.id])
    store.push(deadly)
    store.take_one()
    (rescued,) = store.lose()
    assert rescued.batch == batch.new.id
    assert batch.counts == (1, 0, 0, 1, 0)


def test_a_retry_makes_a_failed_member_pending_again(store: Store) -> None:
    batch = Batched(store, 1)
    store.settle(batch.failed(store.take_one()))
    store.retry(store.driver.last_failed_number())
    assert batch.counts == (1, 1, 0, 0, 0)
    store.settle(batch.completed(store.take_one()))
    assert batch.counts == (1, 0, 1, 0, 0)


def test_a_forgotten_dead_letter_stays_counted(store: Store) -> None:
    batch = Batched(store, 1)
    store.settle(batch.failed(store.take_one()))
    store.driver.forget([store.driver.last_failed_number()])
    assert batch.counts == (1, 0, 0, 1, 0)


@pytest.mark.parametrize("act", ["cancel", "clear"])
def test_a_member_that_is_removed_is_cancelled(store: Store, act: str) -> None:
    batch = Batched(store, 1)
    if act == "cancel":
        assert store.driver.cancel(batch.jobs[0].id) is not None
    else:
        assert store.driver.clear("default", limit=10) == 1
    assert batch.counts == (1, 0, 0, 0, 1)
    assert [closed.record.id for closed in store.driver.sweep_batches()] == [batch.new.id]


def test_jobs_join_a_batch_that_is_open_and_no_other(store: Store) -> None:
    batch = Batched(store, 1)
    assert store.driver.join_batch(batch.new.id, [new_job_id(), new_job_id()])
    assert batch.counts == (3, 3, 0, 0, 0)
    ended, cancelled = Batched(store), Batched(store, 1)
    ended.close()
    store.driver.cancel_batch(cancelled.new.id)
    for other in (ended.new.id, cancelled.new.id, new_job_id()):
        assert not store.driver.join_batch(other, [new_job_id()])
    assert ended.counts == (0, 0, 0, 0, 0)


def test_a_cancel_removes_what_waits_in_bounded_steps_and_leaves_what_runs(store: Store, clock: Clock) -> None:
    batch = Batched(store, 4)
    other = Batched(store, 1)
    held = store.take_one()
    steps = [store.driver.cancel_batch(batch.new.id, limit=2, now=clock.now) for _ in range(3)]
    assert steps == [2, 1, 0]
    assert batch.counts == (4, 1, 0, 0, 3)
    assert batch.record.cancelled_at == clock.now
    assert other.counts == (1, 1, 0, 0, 0)
    assert batch.close() is None
    store.settle(batch.completed(held))
    assert batch.close() is not None


def test_a_sweep_removes_what_a_running_member_of_a_cancelled_batch_left_waiting(store: Store) -> None:
    batch = Batched(store, 1)
    held = store.take_one()
    store.driver.cancel_batch(batch.new.id)
    store.release(held, delay=60, record=attempt())
    assert [closed.record.id for closed in store.driver.sweep_batches()] == [batch.new.id]
    assert batch.counts == (1, 0, 0, 0, 1)
    assert store.gone(held)


def test_a_sweep_ends_what_a_crash_has_left_open_and_nothing_else(store: Store) -> None:
    callbacks, *_jobs = callbacks_of(store)
    over, running, ended = Batched(store, 1, callbacks=callbacks), Batched(store, 1), Batched(store)
    ended.close()
    first, _second = store.take()
    store.settle(over.completed(first))
    (closed,) = store.driver.sweep_batches(now=store.clock.now)
    assert closed.record.id == over.new.id
    assert sorted(store.order()) == ["finally", "then"]
    assert running.record.finished_at is None
    assert store.driver.sweep_batches() == []


def test_pruning_deletes_batches_that_ended_long_ago(store: Store, clock: Clock) -> None:
    old = [Batched(store), Batched(store, 1)]
    store.settle(old[1].failed(store.take_one()))
    for batch in old:
        batch.close()
    running = Batched(store, 1)
    clock.tick(WEEK)
    young = Batched(store)
    young.close()
    prune = store.driver.prune_batches
    assert [prune(older_than=WEEK, limit=1, now=clock.now) for _ in range(3)] == [1, 1, 0]
    assert [store.driver.get_batch(batch.new.id) for batch in old] == [None, None]
    assert running.record.finished_at is None
    assert young.record.finished_at is not None


def test_of_many_that_close_a_batch_at_once_one_gets_it(store: Store) -> None:
    callbacks, *_jobs = callbacks_of(store)
    batch = Batched(store, 1, callbacks=callbacks)
    store.settle(batch.completed(store.take_one()))
    found = at_once(4, batch.close)
    assert len([closed for closed in found if closed is not None]) == 1
    assert sorted(store.order()) == ["finally", "then"]


def test_when_the_last_members_end_at_once_the_batch_ends(store: Store) -> None:
    """Neither sees the other's end in its own transaction, so that it must be asked after both."""
    batch = Batched(store, 8)
    held = store.take()

    def end() -> UUID | None:
        store.settle(batch.completed(held.pop()))
        closed = batch.close()
        return None if closed is None else closed.record.id

    ended = at_once(4, end) + at_once(4, end)
    assert [batch_id for batch_id in ended if batch_id is not None] == [batch.new.id]
