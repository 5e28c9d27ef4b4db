"""What the members of a batch cost in a database: few statements, which read who is there and not who has left."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from django_jobqueue.drivers.database import DatabaseDriver
from django_jobqueue.jobs.flows import Flow
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import Complete, NewBatch, Reservation, ReserveLimit
from tests.drivers.contract import new
from tests.helpers.aliases import database_alias
from tests.helpers.rows import pages_read, statements

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def driver() -> DatabaseDriver:
    return DatabaseDriver("default", {"DATABASE": "default"})


@pytest.fixture(params=["own", "portable"])
def form(request: pytest.FixtureRequest, driver: DatabaseDriver) -> Any:
    if request.param == "own" and connection.vendor != "postgresql":
        pytest.skip("the portable form is the only one")
    driver.uses_vendor_forms = request.param == "own"
    return request.param


def held_members(driver: DatabaseDriver, count: int) -> tuple[UUID, list[Reservation]]:
    """A batch, and reservations of its members."""
    batch = NewBatch(id=new_job_id(), name="", metadata="", allow_failures=False, callbacks="{}")
    jobs = [new(flow=Flow(batch=batch.id).write()) for _ in range(count)]
    driver.create_batch(batch, [job.id for job in jobs])
    driver.push(jobs)
    limit = ReserveLimit(rows=count, max_attempts=3, averages={"shop.work": 0.0})
    return batch.id, driver.reserve("default", "w1", limit, retry_after=90).jobs


def test_members_of_one_reserve_end_in_few_statements(driver: DatabaseDriver, form: str) -> None:
    batch, held = held_members(driver, 1200)
    assert len(held) == 1200
    sent = statements(lambda: driver.settle([Complete(one, batch=batch) for one in held]))
    assert len(sent) <= (1 if form == "own" else 8)
    record = driver.get_batch(batch)
    assert record is not None
    assert (record.pending, record.done) == (0, 1200)


def test_a_look_for_pending_members_passes_none_who_left_while_a_long_reader_keeps_them(driver: DatabaseDriver) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only on PostgreSQL does the index keep those who have left")
    batch, held = held_members(driver, 2000)
    with database_alias("reader") as reader, reader.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT COUNT(*) FROM django_jobqueue_batchmember")
        driver.settle([Complete(one, batch=batch) for one in held[:1900]])
        (look, *_) = statements(lambda: driver.close_batch(batch))
        assert "LIMIT 1" in look
        assert pages_read(look) <= 6
        cursor.execute("ROLLBACK")
