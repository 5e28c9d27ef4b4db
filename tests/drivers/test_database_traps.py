"""Habits of databases and projects: names, clocks, routers, large ids, several aliases."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections, transaction

from django_jobqueue import InvalidOption, dispatch_many, get_job
from django_jobqueue.drivers import connections as queue_connections
from django_jobqueue.drivers.database import DatabaseDriver
from django_jobqueue.jobs.records import Complete, Fail, NewResult, Release, Reservation, ReserveLimit
from django_jobqueue.models import FailedJob, Job, Result
from django_jobqueue.operations import failed_jobs
from django_jobqueue.running.options import WorkerOptions
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import attempt, new
from tests.helpers.aliases import database_alias
from tests.helpers.databases import replica as replica
from tests.helpers.databases import second_database as second_database
from tests.helpers.work.jobs import fail, mark

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = ["Email", "email", "EMAIL", "émail", "ёmail", "ema\u0131l", "email_", "e-mail"]
NEAR = timedelta(seconds=30)


@pytest.fixture
def driver() -> DatabaseDriver:
    return DatabaseDriver("default", {"DATABASE": "default"})


@pytest.fixture(autouse=True)
def _marks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of handlers that run in this process."""
    monkeypatch.setenv("JOBQUEUE_TEST_MARKS", str(tmp_path / "marks"))


def take(driver: DatabaseDriver, queue: str = "default", rows: int = 10) -> list[Reservation]:
    return driver.reserve(queue, "w1", ReserveLimit(rows=rows, max_attempts=3), retry_after=90).jobs


def work(**given: Any) -> None:
    """Run what is due, in this thread."""
    worker = Worker(WorkerOptions.from_settings(**given))
    while worker.work_once():
        pass


# Names


def test_queues_are_told_apart_exactly(driver: DatabaseDriver) -> None:
    """F79"""
    driver.push([new(name, queue=name) for name in NAMES])
    assert set(driver.queues()) == set(NAMES)
    assert [job.name for job in take(driver, "email")] == ["email"]
    assert driver.sizes()["email"].reserved == 1
    assert driver.clear("Email", limit=10) == 1
    assert set(driver.queues()) == set(NAMES) - {"Email"}
    assert driver.stage("émail") == 0


def test_scheduled_jobs_of_queues_are_told_apart_exactly(driver: DatabaseDriver) -> None:
    driver.push([new(name, queue=name, delay=0.000001) for name in NAMES])
    assert driver.stage("email") == 1
    assert Job.objects.get(state="ready").queue == "email"


def test_dead_letters_of_queues_are_told_apart_exactly(driver: DatabaseDriver) -> None:
    for name in NAMES:
        driver.push([new(name, queue=name)])
        driver.settle([Fail(job, attempt()) for job in take(driver, name)])
    assert [letter.name for letter in driver.failed(queue="email")] == ["email"]
    assert driver.failed_count(queue="Email") == 1


def test_a_name_with_a_space_at_its_end_is_refused() -> None:
    """MySQL and MariaDB would take it for the name without."""
    with pytest.raises(InvalidOption):
        mark.using(queue="email ")


# Clocks


def set_session_clock(alias: str) -> None:
    """Let a session be five hours and more from UTC."""
    with connections[alias].cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET TIME ZONE 'Asia/Kathmandu'")
        elif connection.vendor == "mysql":
            cursor.execute("SET SESSION time_zone = '+05:45'")


@pytest.fixture(params=[True, False], ids=["USE_TZ", "no USE_TZ"])
def elsewhere(
    request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DatabaseDriver]:
    """A driver of a project and of sessions that are not in UTC, on a host that is not either."""
    monkeypatch.setenv("TZ", "America/New_York")
    settings.USE_TZ, settings.TIME_ZONE = request.param, "Asia/Kathmandu"
    time.tzset()
    with database_alias("elsewhere"):
        set_session_clock("elsewhere")
        yield DatabaseDriver("default", {"DATABASE": "elsewhere"})
    monkeypatch.undo()
    time.tzset()


def test_moments_of_the_store_are_in_utc(elsewhere: DatabaseDriver) -> None:
    moment = datetime.now(UTC)
    elsewhere.push([new("one")])
    elsewhere.push([new("a"), new("b")])
    for job in take(elsewhere):
        for stamp in (job.created_at, job.ready_at, job.reserved_at):
            assert abs(stamp - moment) < NEAR
        assert abs(job.reserved_until - moment - timedelta(seconds=90)) < NEAR


def test_a_delay_is_as_long_as_it_says(elsewhere: DatabaseDriver) -> None:
    moment = datetime.now(UTC)
    elsewhere.push([new("hour", delay=3600)])
    elsewhere.push([new("hours", delay=7200), new("over", available_at=moment - timedelta(seconds=1))])
    assert elsewhere.stage("default") == 0
    assert [job.name for job in take(elsewhere)] == ["over"]
    due = dict(Job.objects.using("elsewhere").filter(state="scheduled").values_list("name", "available_at"))
    assert abs(due["hour"] - moment - timedelta(hours=1)) < NEAR
    assert abs(due["hours"] - moment - timedelta(hours=2)) < NEAR


def test_what_is_settled_is_stamped_in_utc(elsewhere: DatabaseDriver) -> None:
    moment = datetime.now(UTC)
    elsewhere.push([new(), new()])
    first, second = take(elsewhere)
    elsewhere.settle([Release(first, 600, attempt()), Fail(second, attempt())])
    assert abs(Job.objects.using("elsewhere").get().available_at - moment - timedelta(minutes=10)) < NEAR
    assert abs(FailedJob.objects.using("elsewhere").get().failed_at - moment) < NEAR
    assert elsewhere.rescue(max_attempts=3) == []


def test_a_result_is_stamped_in_utc(elsewhere: DatabaseDriver) -> None:
    moment = datetime.now(UTC)
    elsewhere.push([new(), new()])
    started_at, finished_at = moment - timedelta(seconds=2), moment - timedelta(seconds=1)
    result = NewResult(value="1", error="", started_at=started_at, finished_at=finished_at, keep_for=600)
    held = take(elsewhere)
    elsewhere.settle([Complete(job, (), result) for job in held])
    rows = list(Result.objects.using("elsewhere"))
    assert {row.job_id: row.created_at for row in rows} == {job.id: job.created_at for job in held}
    for row in rows:
        assert (row.started_at, row.finished_at) == (started_at, finished_at)
        assert abs(row.expires_at - moment - timedelta(minutes=10)) < NEAR


# Routers and aliases


def test_nothing_of_a_queue_is_read_from_a_replica(replica: None, settings: Any) -> None:
    """F69"""
    settings.JOBQUEUE = {}
    queue_connections.reset()
    good, bad = mark.dispatch().id, fail.dispatch().id
    late = mark.using(delay=0.000001).dispatch().id
    dispatch_many(mark.s(number) for number in range(3))
    assert get_job(late) is not None
    driver = queue_connections["default"]
    assert driver.database == "default"
    driver.sizes()
    driver.peek("default", limit=3)
    work()
    assert get_job(good) is None
    (letters,) = failed_jobs.every()
    assert [letter.id for letter in letters] == [bad]
    assert failed_jobs.find(str(letters[0].number)) == letters[0]
    assert failed_jobs.find(str(bad)[-13:]) == letters[0]
    assert [result.status for result in failed_jobs.retry(letters)] == ["retried"]
    record = get_job(bad)
    assert record is not None
    record.cancel()
    assert not Job.objects.using("default").exists()
    driver.rescue(max_attempts=3)
    driver.release_worker("nobody")
    assert driver.clear("default", limit=1) == 0


def test_everything_of_a_queue_stays_in_the_database_of_its_connection(second_database: str, settings: Any) -> None:
    """F70"""
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database", "DATABASE": second_database}}}
    ids = [fail.dispatch().id, *dispatch_many([mark.s(1), mark.s(2)])]
    assert {job.id for job in Job.objects.using(second_database)} == set(ids)
    work()
    assert not Job.objects.using(second_database).exists()
    (letters,) = failed_jobs.every()
    assert [result.status for result in failed_jobs.retry(letters)] == ["retried"]
    assert Job.objects.using(second_database).get().id == ids[0]
    work()
    (letters,) = failed_jobs.every()
    assert [result.status for result in failed_jobs.forget(letters)] == ["forgotten"]
    assert not Job.objects.exists()
    assert not FailedJob.objects.exists()


def test_a_job_goes_with_the_transaction_of_its_own_database(second_database: str, settings: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database", "DATABASE": second_database}}}
    with transaction.atomic(using=second_database):
        mark.dispatch("rolled back")
        transaction.set_rollback(True, using=second_database)
    with transaction.atomic():
        mark.dispatch("after the commit")
        assert not Job.objects.using(second_database).exists()
    assert Job.objects.using(second_database).count() == 1
    with transaction.atomic():
        mark.dispatch("rolled back")
        transaction.set_rollback(True)
    assert Job.objects.using(second_database).count() == 1


def test_a_worker_serves_two_databases(second_database: str, settings: Any, tmp_path: Path) -> None:
    settings.JOBQUEUE = {
        "CONNECTIONS": {
            "default": {"DRIVER": "database", "DATABASE": "default"},
            "second": {"DRIVER": "database", "DATABASE": second_database},
        }
    }
    mark.dispatch("here")
    mark.using(connection="second").dispatch("there")
    fail.using(connection="second").dispatch()
    assert (Job.objects.count(), Job.objects.using(second_database).count()) == (1, 2)
    Worker(WorkerOptions.from_settings(stop_when_empty=True)).run()
    assert not Job.objects.exists()
    assert not Job.objects.using(second_database).exists()
    assert not FailedJob.objects.exists()
    assert FailedJob.objects.using(second_database).get().connection == "second"
    ran = re.findall(r"ran\t(\w+)", (tmp_path / "marks").read_text())
    assert sorted(ran) == ["here", "there"]


# Large numbers


def begin_numbers_at(number: int) -> None:
    table = FailedJob._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {number}, false)")
        elif connection.vendor == "mysql":
            cursor.execute(f"ALTER TABLE {table} AUTO_INCREMENT = {number}")
        else:
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, number - 1])


@pytest.fixture
def large_numbers(request: pytest.FixtureRequest) -> Iterator[Callable[[int], None]]:
    yield begin_numbers_at
    FailedJob.objects.all().delete()
    begin_numbers_at(1)


@pytest.mark.parametrize("number", [2**31 - 2, 2**33])
def test_numbers_of_dead_letters_outgrow_32_bits(large_numbers: Callable[[int], None], number: int) -> None:
    """F67"""
    large_numbers(number)
    ids = [fail.dispatch().id for _ in range(4)]
    work()
    (letters,) = failed_jobs.every()
    assert [letter.number for letter in letters] == list(range(number, number + 4))
    assert {letter.id for letter in letters} == set(ids)
    found = failed_jobs.find(str(number + 3))
    assert found is not None
    assert [result.status for result in failed_jobs.retry([found])] == ["retried"]
    assert [result.status for result in failed_jobs.forget(letters)] == ["forgotten"] * 3 + ["gone"]
