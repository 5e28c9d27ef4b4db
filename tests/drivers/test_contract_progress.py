"""The contract of progress, on every driver: the last report of whoever holds the job."""

from __future__ import annotations

from django_jobqueue.jobs.records import ProgressRecord, Report, Reservation
from tests.drivers.contract import Clock, Store, superseded

DAY = 86_400.0


def said(held: Reservation, percent: int | None, stage: str = "") -> Report:
    return Report(held.id, held.token, percent, stage)


def write(store: Store, *reports: Report) -> None:
    store.driver.write_progress(reports, now=store.clock.now)


def test_the_last_report_of_each_job_is_stored(store: Store, clock: Clock) -> None:
    store.dispatch()
    store.dispatch()
    first, second = store.take()
    write(store, said(first, 10, "pushing ☃"), said(second, None))
    clock.tick()
    write(store, said(first, 40, "pulling"))
    assert store.driver.get_progress(first.id) == ProgressRecord(40, "pulling", clock.now)
    assert store.driver.get_progress(second.id) == ProgressRecord(None, "", clock.after(-1))


def test_a_job_that_said_nothing_has_none(store: Store) -> None:
    job = store.dispatch()
    assert store.driver.get_progress(job.id) is None
    write(store)


def test_what_is_said_under_a_lost_reservation_is_left_out(store: Store, clock: Clock) -> None:
    old, current = superseded(store)
    write(store, said(current, 20))
    write(store, said(old, 90))
    record = store.driver.get_progress(current.id)
    assert record is not None
    assert record.percent == 20


def test_the_report_of_a_job_that_has_ended_is_stored(store: Store) -> None:
    store.dispatch()
    held = store.take_one()
    store.complete(held)
    write(store, said(held, 90))
    assert store.driver.get_progress(held.id) is None
    write(store, said(held, 100)._replace(token=None))
    record = store.driver.get_progress(held.id)
    assert record is not None
    assert record.percent == 100


def test_pruning_deletes_old_reports_in_bounded_steps(store: Store, clock: Clock) -> None:
    for _ in range(4):
        store.dispatch()
    held = store.take()
    for reservation in held:
        write(store, said(reservation, 1))
        clock.tick()
    clock.tick(DAY - 2)
    prune = store.driver.prune_progress
    assert [prune(older_than=DAY, limit=2, now=clock.now) for _ in range(3)] == [2, 1, 0]
    assert [store.driver.get_progress(one.id) is None for one in held] == [True, True, True, False]
