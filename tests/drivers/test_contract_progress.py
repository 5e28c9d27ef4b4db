"""The contract of progress, on every driver, kept beside its jobs or in a cache: the last of whoever holds the job."""

from __future__ import annotations

import pytest

from django_jobqueue.drivers.base import Driver
from django_jobqueue.drivers.cached_progress import CachedProgress
from django_jobqueue.jobs.records import CANCELLED, ProgressRecord, Report, Reservation
from tests.drivers.contract import Clock, Store, new, superseded
from tests.helpers.caching import ALIAS, OWN, kept_in, patient

__all__ = ["kept_in", "patient"]

DAY = 86_400.0


@pytest.fixture
def store(driver: Driver, clock: Clock, kept_in: str) -> Store:
    if kept_in != OWN:
        driver.progress = CachedProgress(ALIAS, driver, DAY)
    return Store(driver, clock)


def said(held: Reservation, percent: int | None, stage: str = "") -> Report:
    return Report(held.id, held.token, percent, stage)


def write(store: Store, *reports: Report) -> None:
    store.driver.progress.write(reports, now=store.clock.now)


def test_the_last_report_of_each_job_is_stored(store: Store, clock: Clock) -> None:
    store.dispatch()
    store.dispatch()
    first, second = store.take()
    write(store, said(first, 10, "pushing ☃"), said(second, None))
    clock.tick()
    write(store, said(first, 40, "pulling"))
    assert store.driver.progress.get(first.id) == ProgressRecord(40, "pulling", clock.now)
    assert store.driver.progress.get(second.id) == ProgressRecord(None, "", clock.after(-1))


def test_a_job_that_said_nothing_has_none(store: Store) -> None:
    job = store.dispatch()
    assert store.driver.progress.get(job.id) is None
    write(store)


def test_what_is_said_under_a_lost_reservation_is_left_out(store: Store, clock: Clock) -> None:
    old, current = superseded(store)
    write(store, said(current, 20))
    write(store, said(old, 90))
    record = store.driver.progress.get(current.id)
    assert record is not None
    assert record.percent == 20


def test_the_report_of_a_job_that_has_ended_is_stored(store: Store) -> None:
    store.dispatch()
    held = store.take_one()
    store.complete(held)
    write(store, said(held, 90))
    assert store.driver.progress.get(held.id) is None
    write(store, said(held, 100)._replace(token=None))
    record = store.driver.progress.get(held.id)
    assert record is not None
    assert (record.percent, record.state) == (100, "")


def test_what_is_stored_together_leaves_the_end_the_last_word(store: Store, clock: Clock) -> None:
    store.dispatch()
    held = store.take_one()
    store.release(held)
    again = store.take_one()
    store.complete(again)
    end = said(again, 100, "over")._replace(token=None)
    write(store, said(held, 10), end, said(again, 90))
    assert store.driver.progress.get(held.id) == ProgressRecord(100, "over", clock.now)


def test_many_are_read_at_once(store: Store, clock: Clock) -> None:
    jobs = [store.dispatch() for _ in range(3)]
    write(store, *(Report(job.id, None, place, "", CANCELLED) for place, job in enumerate(jobs)))
    found = store.driver.progress.get_many([*(job.id for job in jobs), new().id])
    assert found == {job.id: ProgressRecord(place, "", clock.now, CANCELLED) for place, job in enumerate(jobs)}
    assert store.driver.progress.get_many([]) == {}


def test_only_the_reservation_that_is_valid_is_still_held(store: Store) -> None:
    old, current = superseded(store)
    store.dispatch()
    other = store.take_one()
    pairs = {(held.id, held.token) for held in (old, current, other)}
    assert store.driver.still_held(pairs) == {(current.id, current.token), (other.id, other.token)}
    store.release(current, 60)
    store.complete(other)
    assert store.driver.still_held(pairs) == set()
    assert store.driver.still_held([]) == set()


@pytest.mark.parametrize("kept_in", [OWN], indirect=True)
def test_pruning_deletes_old_reports_in_bounded_steps(store: Store, clock: Clock) -> None:
    for _ in range(4):
        store.dispatch()
    held = store.take()
    for reservation in held:
        write(store, said(reservation, 1))
        clock.tick()
    clock.tick(DAY - 2)
    prune = store.driver.progress.prune
    assert [prune(older_than=DAY, limit=2, now=clock.now) for _ in range(3)] == [2, 1, 0]
    assert [store.driver.progress.get(one.id) is None for one in held] == [True, True, True, False]
