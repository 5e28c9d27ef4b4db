"""How the database reads the hot table: by the named index, in its order, whatever lies beside and whatever died."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from django_jobqueue.drivers.database import DatabaseDriver
from django_jobqueue.jobs.records import Complete, Position, ReserveLimit
from tests.helpers.aliases import database_alias
from tests.helpers.rows import TABLE, analyze, fill, pages_read, plan, statements
from tests.helpers.waiting import DEADLINE, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

RESERVE, STAGE, RESCUE = "jobqueue_job_reserve", "jobqueue_job_stage", "jobqueue_job_rescue"
SORTS = re.compile(r"Sort|filesort|TEMP B-TREE|temporary_table", re.IGNORECASE)
WHOLE_TABLE = re.compile(rf"Seq Scan|\"access_type\": \"ALL\"|SCAN {TABLE}(?! USING)")


@pytest.fixture(params=["own", "portable"])
def driver(request: pytest.FixtureRequest) -> DatabaseDriver:
    """PostgreSQL has a form of its own for some statements."""
    if request.param == "own" and connection.vendor != "postgresql":
        pytest.skip("the portable form is the only one")
    driver = DatabaseDriver("default", {"DATABASE": "default"})
    driver.uses_vendor_forms = request.param == "own"
    return driver


@pytest.fixture(params=["never analyzed", "analyzed", "analyzed when empty", "analyzed with few scheduled"])
def _full_table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Few ready jobs among many others, and statistics that are missing, right, or of another time."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {TABLE} SET (autovacuum_enabled = off)")
            cursor.execute(f"DELETE FROM pg_statistic WHERE starelid = '{TABLE}'::regclass")
    if request.param == "analyzed with few scheduled":
        fill(20, state="scheduled")
    if request.param.startswith("analyzed w"):
        analyze()
    fill(2000)
    fill(10_000, state="scheduled", rank=-100)
    fill(1000, state="scheduled", due_in=-60_000_000)
    fill(10_000, queue="other")
    fill(2000, state="reserved")
    if request.param == "analyzed":
        analyze()
    yield
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {TABLE} RESET (autovacuum_enabled)")


def limit(rows: int) -> ReserveLimit:
    return ReserveLimit(rows=rows, max_attempts=3)


def reads(action: Callable[[], Any]) -> list[str]:
    """The statements of an action that look for rows, not those that name them by their ids."""
    found = [sql for sql in statements(action) if "FROM" in sql and not re.search(r" (IN|ANY) \(['(]", sql)]
    return [sql for sql in found if "queue" in sql or "reserved_until" in sql]


def assert_read_by(index: str, found: list[str]) -> None:
    assert found
    for sql in found:
        said = plan(sql)
        assert index in said, f"{sql}\n{said}"
        assert not WHOLE_TABLE.search(said), f"{sql}\n{said}"
        if "row_number" not in sql:  # which weighs the rows that it has locked
            assert not SORTS.search(said), f"{sql}\n{said}"


@pytest.mark.usefixtures("_full_table")
def test_a_reserve_reads_by_its_index_and_sorts_nothing(driver: DatabaseDriver) -> None:
    assert_read_by(RESERVE, reads(lambda: driver.reserve("default", "w1", limit(100), retry_after=90))[:1])


@pytest.mark.usefixtures("_full_table")
def test_a_reserve_behind_a_mark_reads_by_a_range_of_its_index(driver: DatabaseDriver) -> None:
    mark = driver.reserve("default", "w1", limit(100), retry_after=90).jobs[-1].position
    found = reads(lambda: driver.reserve("default", "w1", limit(100), retry_after=90, after=mark))[:1]
    assert_read_by(RESERVE, found)
    if connection.vendor == "mysql":
        assert '"access_type": "range"' in plan(found[0])
    elif connection.vendor == "postgresql":
        assert "ROW(rank, ready_at, id) > " in plan(found[0])
    else:
        assert "(queue=? AND state=? AND (rank,ready_at,id)>(?,?,?))" in plan(found[0])


@pytest.mark.usefixtures("_full_table")
def test_staging_reads_by_its_index_and_sorts_nothing(driver: DatabaseDriver) -> None:
    assert_read_by(STAGE, reads(lambda: driver.stage("default")))


@pytest.mark.usefixtures("_full_table")
def test_a_rescue_reads_by_its_index_and_sorts_nothing(driver: DatabaseDriver) -> None:
    assert_read_by(RESCUE, reads(lambda: driver.rescue(max_attempts=3)))


@pytest.mark.usefixtures("_full_table")
def test_a_look_that_finds_nothing_reads_next_to_nothing(driver: DatabaseDriver) -> None:
    fill(10_000, queue="later", state="scheduled")
    if connection.vendor == "sqlite":
        pytest.skip("counts no pages")
    # At once on PostgreSQL; MariaDB makes better statistics by itself, and takes a moment.
    seconds = 0 if connection.vendor == "postgresql" else DEADLINE
    for look in (lambda: driver.stage("later"), lambda: driver.rescue(max_attempts=3)):
        wait_until(lambda look=look: pages_of(look) < 20, "few pages are read", seconds=seconds, between=0.5)


def test_the_names_of_the_queues_cost_as_much_as_there_are_queues(driver: DatabaseDriver) -> None:
    for queue in "abc":
        fill(5000, queue=queue)
    assert driver.queues() == ["a", "b", "c"]
    found = statements(driver.queues)
    if connection.vendor == "sqlite":
        assert all("SCAN job" not in plan(sql) for sql in found)
    else:
        assert sum(map(pages_read, found)) < 60


# Prepared statements


@pytest.mark.postgres
def test_no_plan_made_for_an_empty_table_is_used_for_a_full_one() -> None:
    """A plan that PostgreSQL keeps for all parameters was made when a scan of the table cost nothing."""
    options = {"server_side_binding": True, "prepare_threshold": 0}
    with database_alias("bound", OPTIONS=options) as bound, _without_autovacuum():
        analyze()
        driver = DatabaseDriver("default", {"DATABASE": "bound"})

        def poll() -> int:
            driver.rescue(max_attempts=3)
            driver.queues()
            return driver.stage("default") + len(driver.reserve("default", "w1", limit(10), retry_after=90).jobs)

        for _ in range(20):
            assert poll() == 0
        fill(2000)
        fill(30_000, state="scheduled", rank=-100)
        before = _rows_scanned(bound)
        assert poll() == 10
        assert _rows_scanned(bound) == before


@contextmanager
def _without_autovacuum() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} SET (autovacuum_enabled = off)")
        yield
        cursor.execute(f"ALTER TABLE {TABLE} RESET (autovacuum_enabled)")


def _rows_scanned(alias: Any) -> int:
    """How many rows were read by scans of the whole table, by this session too."""
    with alias.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()" if alias.pg_version >= 150000 else "SELECT pg_sleep(1)")
        cursor.execute("SELECT 1")
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(f"SELECT seq_tup_read FROM pg_stat_all_tables WHERE relid = '{TABLE}'::regclass")
        return int(cursor.fetchone()[0])


# What died


@contextmanager
def long_reader() -> Iterator[None]:
    """Another connection whose transaction may still see everything that there is now."""
    with database_alias("reader") as reader, reader.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        else:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute(f"SELECT COUNT(*) FROM {TABLE}")
        cursor.fetchall()
        yield
        cursor.execute("ROLLBACK")


def pages_of(action: Callable[[], Any]) -> int:
    """Pages touched by the first look for rows of an action, all of which is undone."""
    with transaction.atomic():
        (sql, *_) = reads(action)
        transaction.set_rollback(True)
    return pages_read(sql)


def pages_of_a_reserve(driver: DatabaseDriver, after: Position | None = None) -> int:
    return pages_of(lambda: driver.reserve("default", "w1", limit(100), retry_after=90, after=after))


def drain(driver: DatabaseDriver, batches: int, mark: Position | None = None) -> Position:
    for _ in range(batches):
        taken = driver.reserve("default", "w1", limit(100), retry_after=90, after=mark)
        driver.settle([Complete(job) for job in taken.jobs])
        assert len(taken.jobs) == 100
        mark = taken.jobs[-1].position
    assert mark is not None
    return mark


def test_behind_its_mark_a_reserve_costs_the_same_while_a_long_reader_keeps_dead_rows(driver: DatabaseDriver) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("keeps no dead rows in the table")
    fill(12_000)
    analyze()
    with long_reader():
        mark = drain(driver, 2)
        at_first = pages_of_a_reserve(driver, mark)
        mark = drain(driver, 80, mark)
        behind, from_the_start = pages_of_a_reserve(driver, mark), pages_of_a_reserve(driver)
    assert behind < 2 * at_first + 20
    assert from_the_start > 3 * behind, "no dead rows were in the way, so that nothing was shown"


# What lies beside


def cost_of_a_poll(driver: DatabaseDriver) -> dict[str, int]:
    """Pages touched by each look for rows of a worker's turn."""
    return {
        "reserve": pages_of_a_reserve(driver),
        "stage": pages_of(lambda: driver.stage("default")),
        "rescue": pages_of(lambda: driver.rescue(max_attempts=3)),
        "queues": sum(map(pages_read, statements(driver.queues))),
    }


@pytest.mark.slow
def test_a_reserve_costs_the_same_beside_millions_of_other_jobs(driver: DatabaseDriver) -> None:
    """F59"""
    if connection.vendor == "sqlite":
        pytest.skip("counts no pages")
    fill(100)
    analyze()
    alone = cost_of_a_poll(driver)
    fill(1_000_000, state="scheduled", rank=-100)
    beside_scheduled = cost_of_a_poll(driver)
    fill(1_000_000, queue="other")
    beside_both = cost_of_a_poll(driver)
    analyze()
    analyzed = cost_of_a_poll(driver)
    for found in (beside_scheduled, beside_both, analyzed):
        for look, pages in found.items():
            assert pages <= 3 * alone[look] + 20, (look, alone, beside_scheduled, beside_both, analyzed)
