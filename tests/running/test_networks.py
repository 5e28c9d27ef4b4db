"""What lies between a worker and its server: a network that falls silent, a pooler that shares backends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import pytest
from django.db import connections as databases

from django_jobqueue.drivers import Driver, connections, listening
from django_jobqueue.models import FailedJob, Job
from django_jobqueue.running.options import WorkerOptions
from django_jobqueue.running.worker import Worker
from tests.helpers.aliases import database_alias
from tests.helpers.proxies import proxy
from tests.helpers.threads import in_threads
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.postgres

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
BACKENDS = 3


def test_a_connection_that_listens_and_falls_silent_stops_neither_work_nor_a_stop(
    transactional_db: None, settings: Any, register: Register, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F31: news is a hint. Polling goes on over the other connection, and nobody waits for the silent one."""
    monkeypatch.setattr(listening, "LAST_SECONDS", 0.1)
    ran = threading.Event()

    @register()
    def work() -> None:
        ran.set()

    known = databases["default"].settings_dict
    with (
        proxy(known["HOST"], int(known["PORT"]), b"LISTEN") as network,
        database_alias("proxied", HOST="127.0.0.1", PORT=str(network.port)),
    ):
        settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database", "DATABASE": "proxied"}}}
        worker = Worker(WorkerOptions.from_settings(sleep=0.05))
        running = start(worker)
        wait_until(lambda: network.marked, "it listens")
        network.silence()
        work.dispatch()
        wait_until(ran.is_set, "the job is found by polling")
        worker.stopping.ask("the end")
        assert running.end().processed == 1
        connections["default"].close()


# A pooler


@contextmanager
def another_backend_for_each_transaction() -> Iterator[set[int]]:
    """What pgbouncer does with ``pool_mode = transaction``, to this thread's connection; yields the backends used."""
    connection = databases["default"]
    connection.ensure_connection()
    others = [connection.copy() for _ in range(BACKENDS)]
    for other in others:
        other.ensure_connection()
    own = connection.connection
    backends = cycle([other.connection for other in others])
    used: set[int] = set()
    cursor = connection._cursor

    def on_the_next(name: str | None = None) -> Any:
        if not connection.in_atomic_block:
            connection.connection = next(backends)
        used.add(connection.connection.info.backend_pid)
        return cursor(name)

    connection._cursor = on_the_next
    try:
        yield used
    finally:
        del connection._cursor
        connection.connection = own
        for other in others:
            other.close()


def test_behind_a_pooler_that_shares_backends_between_transactions_every_job_runs_once(
    database: Driver, register: Register
) -> None:
    """F71: nothing of ours is kept in a session: no prepared statements, no locks, no settings."""
    ran: Counter[Any] = Counter()

    @register(max_attempts=2, backoff=0)
    def work(number: int) -> None:
        ran[number] += 1
        if number % 10 == 0 and ran[number] == 1:
            raise ValueError("once")

    @register(atomic=True)
    def write(number: int) -> None:
        FailedJob.objects.filter(pk=number).update(queue="never")
        ran["atomic", number] += 1

    for number in range(100):
        work.dispatch(number)
        write.dispatch(number)

    def run(_: int) -> set[int]:
        with another_backend_for_each_transaction() as used:
            Worker(WorkerOptions.from_settings(stop_when_empty=True)).run()
        return used

    for used in in_threads(2, run):
        assert len(used) == BACKENDS
    assert not Job.objects.exists()
    assert not FailedJob.objects.exists()
    assert all(ran[number] == (2 if number % 10 == 0 else 1) for number in range(100))
    assert all(ran["atomic", number] == 1 for number in range(100))


def test_no_statement_of_ours_is_prepared_on_the_server(database: Driver, register: Register) -> None:
    """F71"""

    @register()
    def work() -> None: ...

    for _ in range(20):
        work.dispatch()
        Worker(WorkerOptions.from_settings(stop_when_empty=True)).run()
    with databases["default"].cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        assert cursor.fetchall() == []
