"""Atomic jobs at every isolation level: their transaction has the project's, and is right at each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections

from django_jobqueue import get_job
from django_jobqueue.drivers import connections as queue_connections
from django_jobqueue.models import Job
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.aliases import database_alias
from tests.helpers.threads import in_threads

pytestmark = pytest.mark.django_db(transaction=True)

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
STRICT = "strict"
LEVELS: dict[str, dict[str, Any]] = {
    "postgresql": {"repeatable read": 3, "serializable": 4},
    "mysql": {"repeatable read": "repeatable read", "serializable": "serializable"},
    "sqlite": {},
}


@pytest.fixture(params=["repeatable read", "serializable"])
def level(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    """The queue is on connections with this level."""
    if request.param not in LEVELS[connection.vendor]:
        pytest.skip(f"{connection.vendor} has one level")
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database", "DATABASE": STRICT}}}
    with database_alias(STRICT, OPTIONS={"isolation_level": LEVELS[connection.vendor][request.param]}):
        yield request.param
        queue_connections["default"].close()


@pytest.fixture
def worker(level: str, make_worker: Callable[..., Worker]) -> Worker:
    return make_worker()


def groups() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def level_of_this_transaction() -> str:
    question = {"postgresql": "SHOW transaction_isolation", "mysql": "SELECT @@session.tx_isolation"}
    with connections[STRICT].cursor() as cursor:
        cursor.execute(question[connection.vendor])
        return str(cursor.fetchone()[0]).replace("-", " ").lower()


def test_the_effects_and_the_end_are_one_transaction_of_that_level(
    level: str, worker: Worker, clock: Clock, register: Register
) -> None:
    seen = []

    @register(atomic=True)
    def work() -> None:
        seen.append(level_of_this_transaction())
        Group.objects.using(STRICT).create(name="effect")

    work.dispatch()
    worker.work_once(now=clock.now)
    assert seen == [level]
    assert groups() == ["effect"]
    assert not Job.objects.exists()
    assert worker.stats.processed == 1


def test_a_failed_attempt_loses_its_effects_and_is_recorded(
    level: str, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(atomic=True, max_attempts=2, backoff=5)
    def work() -> None:
        Group.objects.using(STRICT).create(name="effect")
        raise ValueError("too bad")

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    assert groups() == []
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts, job.errors[0].message) == ("scheduled", 1, "too bad")


def test_a_transaction_that_could_not_be_serialized_is_one_failed_attempt_and_its_effects_come_once(
    level: str, worker: Worker, clock: Clock, register: Register
) -> None:
    """Nobody else's write is overwritten: the database refuses, and the next attempt sees what is there."""
    if connection.vendor != "postgresql":
        pytest.skip("this database waits, or overwrites, where PostgreSQL refuses")
    group = Group.objects.create(name="0")

    @register(atomic=True, max_attempts=2, backoff=0)
    def count() -> None:
        mine = Group.objects.using(STRICT).get(pk=group.pk)
        if mine.name == "0":
            in_threads(1, lambda _: Group.objects.filter(pk=group.pk).update(name="10"))
        mine.name = str(int(mine.name) + 1)
        mine.save(using=STRICT)

    job_id = count.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert (job.attempts, job.errors[0].exception_class) == (1, "django.db.utils.OperationalError")
    assert "could not serialize" in job.errors[0].message
    assert groups() == ["10"]
    assert worker.work_once(now=clock.tick())
    assert groups() == ["11"]
    assert not Job.objects.exists()


def test_the_row_of_a_running_job_is_neither_rescued_nor_renewed_by_others(
    level: str, worker: Worker, clock: Clock, register: Register
) -> None:
    """Its lock is its lease: the end of its reservation means nothing while it is held."""
    seen = []
    driver = queue_connections["default"]

    @register(atomic=True)
    def work() -> None:
        seen.append(in_threads(1, lambda _: driver.rescue(max_attempts=3, now=clock.after(1000))))
        Group.objects.using(STRICT).create(name="effect")

    work.dispatch()
    worker.work_once(now=clock.now)
    assert seen == [[[]]]
    assert groups() == ["effect"]
    assert worker.stats.processed == 1
