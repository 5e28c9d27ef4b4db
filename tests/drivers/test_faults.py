"""Faults of other queues that the database driver must not have, and that no other file is about."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_jobqueue.drivers.database import DatabaseDriver
from django_jobqueue.jobs.records import Fail, NewJob, ReserveLimit
from django_jobqueue.models import Job
from django_jobqueue.running.options import WorkerOptions
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock, attempt, new
from tests.helpers.aliases import database_alias

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def database() -> DatabaseDriver:
    driver = DatabaseDriver("default", {"DATABASE": "default"})
    driver.uses_vendor_forms = False
    return driver


def test_what_another_worker_took_between_the_read_and_the_update_is_not_ours(
    database: DatabaseDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F02: what was taken is read back by the token, so that nobody comes away with another's reservation."""
    monkeypatch.setattr(connection.features, "has_select_for_update_skip_locked", False)
    first, second = new(), new()
    database.push([first, second])
    limit = ReserveLimit(rows=2, max_attempts=3)
    take = database._take

    def overtaken(*given: Any) -> None:
        monkeypatch.setattr(database, "_take", take)
        (theirs,) = database.reserve("default", "theirs", ReserveLimit(rows=1, max_attempts=3), retry_after=90).jobs
        assert theirs.id == first.id
        take(*given)

    monkeypatch.setattr(database, "_take", overtaken)
    ours = database.reserve("default", "ours", limit, retry_after=90)
    assert [job.id for job in ours.jobs] == [second.id]
    assert Job.objects.get(id=first.id).worker == "theirs"


def test_no_housekeeping_touches_a_job_that_is_not_due(database: DatabaseDriver, clock: Clock) -> None:
    """F09: a worker's own chores are rescue and staging; a job may wait for longer than a year."""
    far = new(delay=400 * 86_400.0)
    database.push([far], now=clock.now - timedelta(days=399))
    worker = Worker(WorkerOptions.from_settings(), drivers=[database])
    assert not worker.work_once(now=clock.now)
    assert Job.objects.get(id=far.id).state == "scheduled"


def test_a_database_in_memory_is_refused_to_workers_with_the_cure() -> None:
    """F75: every thread would have an empty one of its own."""
    with database_alias("nowhere", ENGINE="django.db.backends.sqlite3", NAME=":memory:"):
        (problem,) = DatabaseDriver("nowhere", {"DATABASE": "nowhere"}).problems()
    assert "in-memory SQLite" in problem
    assert "file" in problem


@pytest.fixture
def dead_and_queued(database: DatabaseDriver) -> NewJob:
    """A job that died, and was stored again by a dispatch that could not know whether it had been."""
    job = new(max_attempts=1)
    database.push([job])
    (held,) = database.reserve("default", "w", ReserveLimit(rows=1, max_attempts=1), retry_after=90).jobs
    database.settle([Fail(held, attempt())])
    database.push([job])
    return job


def test_a_dead_job_that_was_stored_again_can_die_again(database: DatabaseDriver, dead_and_queued: NewJob) -> None:
    (held,) = database.reserve("default", "w", ReserveLimit(rows=1, max_attempts=1), retry_after=90).jobs
    assert database.settle([Fail(held, attempt())]) == {dead_and_queued.id}
    assert [letter.id for letter in database.failed()] == [dead_and_queued.id]
    assert not Job.objects.exists()


def test_retrying_a_dead_job_that_is_queued_again_makes_no_second(
    database: DatabaseDriver, dead_and_queued: NewJob
) -> None:
    (letter,) = database.failed()
    assert database.retry({letter.number: None}) == {letter.number}
    assert Job.objects.get().id == dead_and_queued.id
    assert database.failed() == []
