"""Deleting what is old: by the moment at which it ended, in small steps, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_jobqueue.conf import PRUNED_ROWS
from django_jobqueue.drivers.database import DatabaseDriver
from django_jobqueue.drivers.ledger import Ledger
from django_jobqueue.drivers.pruning import PRUNABLE
from django_jobqueue.models import FailedJob, Job, Worker
from tests.drivers.contract import Clock
from tests.edges.commands import dead_letter, dead_letters
from tests.edges.pages import waiting_job, working
from tests.helpers.holding import held_open
from tests.helpers.rows import plan, statements

pytestmark = pytest.mark.django_db(transaction=True)

DAY = 86_400.0


@pytest.fixture
def ledger() -> Ledger:
    return Ledger("default")


def days_ago(clock: Clock, days: float) -> Any:
    return clock.now - timedelta(days=days)


def test_every_kind_that_settings_know_has_a_table_and_an_index() -> None:
    assert PRUNABLE.keys() == PRUNED_ROWS.keys()
    for model, moment in PRUNABLE.values():
        keys = [*model._meta.indexes, *model._meta.constraints]
        assert any(key.fields[0] == moment for key in keys), model  # type: ignore[attr-defined]


def test_what_is_older_goes_and_what_is_younger_stays(ledger: Ledger, clock: Clock) -> None:
    old = dead_letter(failed_at=days_ago(clock, 31))
    young = dead_letter(failed_at=days_ago(clock, 29))
    assert ledger.count_old("FAILED", 30 * DAY, now=clock.now) == 1
    assert ledger.prune("FAILED", 30 * DAY, limit=10, now=clock.now) == 1
    assert list(FailedJob.objects.all()) == [young]
    assert not FailedJob.objects.filter(pk=old.pk).exists()


def test_a_dead_letter_is_as_old_as_its_end_whenever_it_was_dispatched(ledger: Ledger, clock: Clock) -> None:
    dead_letter(created_at=days_ago(clock, 400), failed_at=days_ago(clock, 1))
    assert ledger.prune("FAILED", 30 * DAY, limit=10, now=clock.now) == 0


def test_no_job_that_waits_or_runs_is_ever_old(ledger: Ledger, clock: Clock) -> None:
    long_ago = days_ago(clock, 4000)
    for state in ("ready", "scheduled", "reserved"):
        waiting_job(state=state, created_at=long_ago, ready_at=long_ago, available_at=long_ago)
    for what in PRUNABLE:
        ledger.prune(what, 1, limit=10, now=clock.now)
    assert Job.objects.count() == 3


def test_the_oldest_go_first_and_no_more_than_the_limit(ledger: Ledger, clock: Clock) -> None:
    rows = [dead_letter(failed_at=days_ago(clock, days)) for days in (40, 70, 50, 60)]
    assert ledger.prune("FAILED", 30 * DAY, limit=2, now=clock.now) == 2
    assert set(FailedJob.objects.all()) == {rows[0], rows[2]}


def test_workers_that_were_heard_of_stay(ledger: Ledger, clock: Clock) -> None:
    working(heartbeat_at=clock.after(-3601))
    alive = working(heartbeat_at=clock.after(-3599))
    assert ledger.prune("WORKERS", 3600, limit=10, now=clock.now) == 1
    assert list(Worker.objects.all()) == [alive]


def test_a_row_that_somebody_holds_is_left_alone(ledger: Ledger, clock: Clock) -> None:
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("one connection writes at a time")
    held, other = (dead_letter(failed_at=days_ago(clock, days)) for days in (60, 50))
    letters = DatabaseDriver("default", {"DATABASE": "default"})
    locking = f"SELECT {connection.ops.quote_name(FailedJob._meta.db_table)}"
    with held_open("default", lambda: letters.retry({held.pk: None}), after=locking):
        assert ledger.prune("FAILED", 30 * DAY, limit=10, now=clock.now) == 1
        assert not FailedJob.objects.filter(pk=other.pk).exists()
    assert Job.objects.get().id == held.job_id


def test_pruning_nothing_is_one_read_by_an_index(ledger: Ledger, clock: Clock) -> None:
    dead_letters(50)
    sent = statements(lambda: ledger.prune("FAILED", 30 * DAY, limit=10))
    (sql,) = (sql for sql in sent if FailedJob._meta.db_table in sql)
    if connection.vendor == "sqlite":
        assert "jobqueue_failed_at" in plan(sql)
