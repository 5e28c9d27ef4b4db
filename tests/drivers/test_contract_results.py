"""The contract of results, on every driver: kept with the end of their job, for those that are still ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_jobqueue.jobs.records import Complete, Fail, NewResult, Release, Reservation, ResultRecord
from tests.drivers.contract import Clock, Store, attempt, new, superseded


def kept(store: Store, value: str = '{"a":1}', *, error: str = "", keep_for: float = 60) -> NewResult:
    now = store.clock.now
    return NewResult(
        value=value, error=error, started_at=now - timedelta(seconds=2), finished_at=now, keep_for=keep_for
    )


def complete(store: Store, reservation: Reservation, **changes: Any) -> set[Any]:
    return store.settle(Complete(reservation, (), kept(store, **changes)))


def result_of(store: Store, reservation: Reservation) -> ResultRecord | None:
    return store.driver.get_result(reservation.id, now=store.clock.now)


def test_a_result_is_kept_with_all_that_is_known_of_its_job(store: Store, clock: Clock) -> None:
    job = store.dispatch(
        "shop.add ☃",
        queue="mail",
        max_attempts=5,
        metadata='{"user":7}',
        payload='{"args":[7]}',
        rank=-3,
        masked="[[]]",
    )
    created_at = clock.now
    clock.tick(10)
    reservation = store.take_one("mail")
    assert complete(store, reservation, value='["\\u2603"]') == {job.id}
    assert store.gone(job)
    record = result_of(store, reservation)
    assert record is not None
    assert (record.id, record.name, record.queue) == (job.id, "shop.add ☃", "mail")
    assert (record.value, record.error, record.connection) == ('["\\u2603"]', "", store.driver.alias)
    assert (record.attempts, record.max_attempts, record.metadata) == (1, 5, '{"user":7}')
    assert (record.payload, record.format, record.priority, record.masked) == ('{"args":[7]}', job.format, 3, "[[]]")
    assert record.worker == reservation.worker
    assert record.created_at == created_at
    assert (record.started_at, record.finished_at) == (clock.after(-2), clock.now)
    assert record.errors.total == 0


def test_a_job_that_keeps_nothing_has_no_result(store: Store) -> None:
    store.dispatch()
    reservation = store.take_one()
    store.complete(reservation)
    assert result_of(store, reservation) is None


def test_a_result_has_the_errors_of_the_attempts_before(store: Store) -> None:
    job = store.dispatch()
    store.release(store.take_one(), record=attempt(1, "first"))
    store.release(store.take_one(), record=attempt(2, "second"))
    reservation = store.take_one()
    complete(store, reservation)
    record = result_of(store, reservation)
    assert record is not None
    assert record.attempts == 3
    assert [error.message for error in record.errors.last] == ["first", "second"]
    assert store.gone(job)


def test_a_result_that_could_not_be_kept_says_why(store: Store) -> None:
    store.dispatch()
    reservation = store.take_one()
    complete(store, reservation, value="", error="result: a set is not JSON")
    record = result_of(store, reservation)
    assert record is not None
    assert (record.value, record.error) == ("", "result: a set is not JSON")


def test_of_several_jobs_each_has_its_own_result_or_none(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.dispatch(name)
    first, second, third = store.take()
    ended = (
        Complete(first, (), kept(store, "1")),
        Complete(second),
        Complete(third, (), kept(store, "3")),
    )
    assert store.settle(*ended) == {first.id, second.id, third.id}
    records = [result_of(store, reservation) for reservation in (first, second, third)]
    assert [record and record.value for record in records] == ["1", None, "3"]


def test_a_lost_reservation_leaves_no_result(store: Store) -> None:
    old, current = superseded(store)
    assert complete(store, old, value='"stale"') == set()
    assert result_of(store, old) is None
    complete(store, current, value='"valid"')
    record = result_of(store, current)
    assert record is not None
    assert record.value == '"valid"'


def test_a_stale_end_that_comes_with_the_valid_one_leaves_no_result(store: Store) -> None:
    old, current = superseded(store)
    ended = Complete(current, (), kept(store, '"valid"')), Complete(old, (), kept(store, '"stale"'))
    assert store.settle(*ended) == {current.id}
    record = result_of(store, current)
    assert record is not None
    assert record.value == '"valid"'


def test_what_follows_a_job_is_stored_beside_its_result(store: Store) -> None:
    store.dispatch()
    reservation = store.take_one()
    following = new("next")
    store.settle(Complete(reservation, (following,), kept(store)))
    assert result_of(store, reservation) is not None
    assert store.get(following).state == "ready"


def test_jobs_that_fail_or_run_again_are_settled_beside_a_result(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.dispatch(name)
    first, second, third = store.take()
    ended = Complete(first, (), kept(store)), Release(second, 0, attempt()), Fail(third, attempt())
    assert store.settle(*ended) == {first.id, second.id, third.id}
    assert [store.get(held).state for held in (second, third)] == ["ready", "failed"]
    assert [result_of(store, held) is not None for held in (first, second, third)] == [True, False, False]


def test_the_last_end_of_an_id_that_was_stored_again_is_kept(store: Store) -> None:
    job = store.dispatch()
    complete(store, store.take_one(), value="1")
    store.push(job)
    reservation = store.take_one()
    complete(store, reservation, value="2")
    record = result_of(store, reservation)
    assert record is not None
    assert record.value == "2"


@pytest.mark.parametrize(("seconds", "is_found"), [(59, True), (60, False)])
def test_a_result_is_found_until_its_time_is_over(store: Store, clock: Clock, seconds: float, is_found: bool) -> None:
    store.dispatch()
    reservation = store.take_one()
    complete(store, reservation, keep_for=60)
    clock.tick(seconds)
    assert (result_of(store, reservation) is not None) is is_found


def test_pruning_deletes_the_oldest_expired_results_in_bounded_steps(store: Store, clock: Clock) -> None:
    held = []
    for seconds in (30, 10, 20, 1000):
        store.dispatch()
        held.append(store.take_one())
        complete(store, held[-1], keep_for=seconds)
    assert store.driver.prune_results(now=clock.now) == 0
    clock.tick(100)
    assert store.driver.prune_results(limit=2, now=clock.now) == 2
    assert store.driver.prune_results(limit=2, now=clock.now) == 1
    assert store.driver.prune_results(limit=2, now=clock.now) == 0
    assert result_of(store, held[3]) is not None


def test_pruning_touches_no_job(store: Store, clock: Clock) -> None:
    """F09"""
    job = store.dispatch(delay=400 * 86_400.0)
    (letter,) = store.bury(new())
    clock.tick(300 * 86_400)
    assert store.driver.prune_results(now=clock.now) == 0
    assert store.get(job).state == "scheduled"
    assert store.driver.get(letter.id) is not None
