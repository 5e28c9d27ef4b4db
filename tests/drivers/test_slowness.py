"""What slows a queue down is said, with the cure."""

from __future__ import annotations

import pytest
from django.db import connection

from django_jobqueue.drivers import slowness
from django_jobqueue.drivers.database import DatabaseDriver
from tests.drivers.contract import ids, new
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def database() -> DatabaseDriver:
    return DatabaseDriver("default", {"DATABASE": "default"})


def test_a_queue_that_nothing_slows_down_says_nothing(database: DatabaseDriver) -> None:
    assert database.slowdowns() == []


def test_a_transaction_that_is_held_open_is_named_with_the_cure(
    database: DatabaseDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite keeps no list of its transactions")
    monkeypatch.setattr(slowness, "LONG_TRANSACTION_SECONDS", -1)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            else:
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cursor.execute("SELECT COUNT(*) FROM django_jobqueue_job")
            # MariaDB answers from memory when it was asked within the last tenth of a second.
            (sentence, *_) = wait_until(database.slowdowns, "the transaction is seen", between=0.2)
            cursor.execute("ROLLBACK")
    finally:
        other.close()
    assert "A transaction has been open" in sentence
    assert ("pg_terminate_backend(" if connection.vendor == "postgresql" else "KILL ") in sentence


@pytest.mark.postgres
def test_dead_rows_that_outnumber_the_living_are_told(
    database: DatabaseDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slowness, "MANY_DEAD_ROWS", 10)
    jobs = [new() for _ in range(50)]
    database.push(jobs)
    for job_id in ids(jobs):
        database.cancel(job_id)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()" if connection.pg_version >= 150000 else "SELECT 1")
        cursor.execute("ANALYZE django_jobqueue_job")
    assert [sentence for sentence in database.slowdowns() if "dead rows" in sentence]


@pytest.mark.postgres
def test_the_hot_table_is_vacuumed_by_a_number_of_rows_and_not_by_a_share() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = 'django_jobqueue_job'")
        options = cursor.fetchone()[0]
    assert sorted(options) == ["autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=1000"]
