"""What is promised by drivers whose writes join the caller's transaction."""

from __future__ import annotations

import pytest
from django.db import connections, transaction

from django_jobqueue.jobs.records import Complete, Fail, Release
from tests.drivers.contract import DATABASE, Clock, Store, at_once, attempt, ids, new, superseded

pytestmark = pytest.mark.parametrize("driver", [DATABASE], indirect=True)


@pytest.fixture
def needs_row_locks(store: Store) -> None:
    if not connections["default"].features.has_select_for_update_skip_locked:
        pytest.skip("the only lock of this database is that of everything")


def test_it_joins_the_transactions_of_its_database(store: Store) -> None:
    assert store.driver.supports_transactions
    assert store.driver.database == "default"
    assert store.driver.is_shared
    assert store.driver.problems() == []


def test_it_knows_whether_it_is_in_a_transaction(store: Store) -> None:
    assert not store.driver.in_transaction()
    with transaction.atomic():
        assert store.driver.in_transaction()
    assert not store.driver.in_transaction()


def test_jobs_of_a_transaction_that_rolls_back_never_were(store: Store) -> None:
    job, jobs = new(), [new(), new()]
    with transaction.atomic():
        assert store.push(job) == {job.id}
        assert store.push(*jobs) == ids(jobs)
        transaction.set_rollback(True)
    assert store.driver.queues() == []


def test_a_job_is_seen_by_others_from_the_commit_on(store: Store, needs_row_locks: None) -> None:
    with transaction.atomic():
        store.dispatch()
        assert at_once(1, store.take) == [[]]
    (found,) = at_once(1, store.take)
    assert len(found) == 1


def test_a_job_pushed_again_breaks_no_transaction(store: Store) -> None:
    job = store.dispatch()
    with transaction.atomic():
        assert store.push(job, new()) != set()
        assert store.push(job) == set()
        store.dispatch()
    assert len(store.take()) == 3


def test_everything_works_inside_a_transaction_of_the_caller(store: Store, clock: Clock) -> None:
    with transaction.atomic():
        store.push(new("a"), new("b"), new("c"), new("late", delay=1))
        clock.tick()
        assert store.stage() == 1
        a, b, c, late = store.take()
        assert store.renew(a, b, c, late) == set()
        assert store.hand_back(late) == {late.id}
        assert store.settle(Complete(a), Release(b, 0, attempt()), Fail(c, attempt())) == {
            a.id,
            b.id,
            c.id,
        }
        assert store.retry(store.driver.last_failed_number()) != set()
        assert len(store.take()) == 3
        assert len(store.lose()) == 3
        assert store.driver.clear("default", limit=10) == 3
    assert store.driver.queues() == []


@pytest.mark.parametrize(
    "settlement",
    [
        Complete,
        lambda reservation: Release(reservation, 0, attempt()),
        lambda reservation: Fail(reservation, attempt()),
    ],
    ids=["complete", "release", "fail"],
)
def test_a_settle_rolls_back_with_the_transaction(store: Store, settlement) -> None:
    job = store.dispatch()
    reservation = store.take_one()
    before = store.get(job)
    with transaction.atomic():
        assert store.settle(settlement(reservation)) == {job.id}
        transaction.set_rollback(True)
    assert store.get(job) == before
    assert store.driver.failed_count() == 0
    assert store.complete(reservation) == {job.id}


def test_a_job_is_locked_by_the_worker_that_holds_it_only(store: Store) -> None:
    old, current = superseded(store)
    with transaction.atomic():
        assert not store.driver.lock(old)
        assert store.driver.lock(current)
        assert store.complete(current) == {current.id}
    assert store.gone(current)


def test_a_lock_spends_nothing(store: Store) -> None:
    job = store.dispatch()
    reservation = store.take_one()
    before = store.get(job)
    with transaction.atomic():
        assert store.driver.lock(reservation)
    assert store.get(job) == before


def test_a_locked_job_is_not_rescued(store: Store, clock: Clock, needs_row_locks: None) -> None:
    store.push(new("locked"), new("free"))
    locked, _ = store.take()
    with transaction.atomic():
        assert store.driver.lock(locked)
        (rescued,) = at_once(1, store.lose)
        assert [found.name for found in rescued] == ["free"]
        assert store.complete(locked) == {locked.id}


def test_a_locked_job_is_neither_renewed_nor_lost(store: Store, needs_row_locks: None) -> None:
    store.push(new(), new())
    locked, other = store.take()
    with transaction.atomic():
        assert store.driver.lock(locked)
        assert at_once(1, lambda: store.renew(locked, other)) == [set()]


def test_a_locked_job_cannot_be_cancelled(store: Store, needs_row_locks: None) -> None:
    job = store.dispatch()
    reservation = store.take_one()
    with transaction.atomic():
        assert store.driver.lock(reservation)
        assert at_once(1, lambda: store.driver.cancel(job.id)) == [None]
        assert store.complete(reservation) == {job.id}


def test_a_job_that_its_own_transaction_removed_can_be_buried(store: Store, clock: Clock) -> None:
    job = store.dispatch("shop.sync", queue="mail", rank=-4, max_attempts=2, metadata="{}")
    reservation = store.take_one("mail")
    clock.tick()
    with transaction.atomic():
        store.complete(reservation)
        store.driver.bury(reservation, attempt(1, "late"), now=clock.now)
    record = store.get(job)
    assert (record.state, record.attempts, record.failed_at) == ("failed", 1, clock.now)
    assert (record.name, record.queue, record.priority) == ("shop.sync", "mail", 4)
    assert (record.payload, record.metadata, record.max_attempts) == (job.payload, "{}", 2)
    assert (record.created_at, record.exception_message) == (clock.after(-1), "late")
    assert store.retry(store.driver.last_failed_number()) != set()
    assert store.take_one("mail").id == job.id
