"""Workers whose database server stops, dies, comes back, or ends their connections; the server is the test's own."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import OperationalError, connections

from django_jobqueue import dispatch_many
from django_jobqueue.models import FailedJob, Job
from tests.helpers.aliases import database_alias
from tests.helpers.marks import Marks
from tests.helpers.processes import Process, Processes
from tests.helpers.servers import DATABASE, Server, private_mariadb, private_postgresql
from tests.helpers.waiting import wait_until
from tests.helpers.work.jobs import hold, mark

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("private server")]

PRIVATE = "private"
VENDOR = django_settings.DATABASES["default"]["ENGINE"].rpartition(".")[2]


CALLS = 8


@pytest.fixture(scope="module")
def module_server() -> Iterator[Server]:
    if VENDOR == "sqlite3":
        pytest.skip("SQLite has no server")
    server: Server = private_postgresql() if VENDOR == "postgresql" else private_mariadb()
    try:
        server.prepare()
        server.start()
        server.execute(f"CREATE DATABASE {DATABASE}")
        yield server
    finally:
        server.remove()


@pytest.fixture
def server(module_server: Server, django_db_blocker: Any, settings: Any) -> Iterator[Server]:
    """A server that runs, with empty tables, which are the default connection's."""
    if not module_server.is_running:  # a test that failed has left it so
        module_server.start()
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database", "DATABASE": PRIVATE}}}
    with django_db_blocker.unblock(), database_alias(PRIVATE, **module_server.settings(TEST={})):
        call_command("migrate", "django_jobqueue", database=PRIVATE, verbosity=0)
        yield module_server
        Job.objects.using(PRIVATE).all().delete()
        FailedJob.objects.using(PRIVATE).all().delete()


@pytest.fixture
def processes(server: Server, tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path, {"default": server.settings()})
    yield processes
    processes.end_all()


@pytest.fixture
def marks(processes: Processes) -> Marks:
    return processes.marks


@contextmanager
def nobody_home(port: int) -> Iterator[list[float]]:
    """In the place of a stopped server, hang up on everybody; yields the moments at which somebody called."""
    calls: list[float] = []
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()

    def hang_up() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            calls.append(time.monotonic())
            caller.close()

    thread = Thread(target=hang_up)
    thread.start()
    try:
        yield calls
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def log_says(worker: Process, text: str) -> bool:
    assert worker.is_running, worker.output
    return text in worker.output


def wait_for_line(worker: Process, text: str) -> None:
    wait_until(lambda: log_says(worker, text), lambda: f"the log says {text!r}:\n{worker.output}")


def wait_for_runs(marks: Marks, count: int) -> None:
    wait_until(lambda: marks.count("ran") >= count, lambda: f"{count} jobs ran, of {marks.count('ran')}")


def wait_for_empty_queue() -> None:
    wait_until(lambda: not Job.objects.using(PRIVATE).exists(), "no job is left")


def restart(server: Server, worker: Process) -> None:
    server.stop()
    wait_for_line(worker, "is not reachable")
    server.start()
    connections[PRIVATE].close()


def test_a_worker_outlives_a_restart_of_its_server(server: Server, processes: Processes, marks: Marks) -> None:
    (worker,) = processes.workers(1)
    mark.dispatch("before")
    wait_for_runs(marks, 1)
    restart(server, worker)
    mark.dispatch("after")
    wait_for_runs(marks, 2)
    assert worker.stop() == 0
    lost, back = worker.complaints
    assert lost.startswith("ERROR store 'default' is not reachable: ")
    assert back.startswith("WARNING store 'default' is back after ")
    assert [run.pid for run in marks.read()] == [worker.pid] * 2


def test_a_worker_asks_for_its_server_with_growing_pauses(server: Server, processes: Processes, marks: Marks) -> None:
    processes.settings["JOBQUEUE"]["NOTIFY"] = False  # who listens would call too
    (worker,) = processes.workers(1)
    mark.dispatch()
    wait_for_runs(marks, 1)
    wait_for_empty_queue()
    files, used = len(worker.open_files()), worker.cpu_seconds()
    server.stop()
    with nobody_home(server.port) as calls:
        wait_until(lambda: len(calls) >= CALLS, f"the worker has called {CALLS} times")
    used = worker.cpu_seconds() - used
    # The housekeeper calls as well, every few seconds; without growing pauses the loop alone would need 3.5 s at most.
    took = calls[CALLS - 1] - calls[0]
    assert took > 4.5, calls
    assert used < took / 2
    server.start()
    wait_for_line(worker, "is back")
    connections[PRIVATE].close()
    mark.dispatch()
    wait_for_runs(marks, 2)
    wait_for_empty_queue()
    assert len(worker.open_files()) <= files + 2
    assert len(worker.complaints) == 2
    assert worker.stop() == 0


def test_a_job_that_runs_while_the_server_restarts_ends_by_its_first_attempt(
    server: Server, processes: Processes, marks: Marks
) -> None:
    (worker,) = processes.workers(1)
    held = hold.dispatch()
    wait_until(lambda: marks.count("started") == 1, "the job has started")
    server.kill()
    server.start()
    connections[PRIVATE].close()
    assert Job.objects.using(PRIVATE).get().id == held.id
    marks.let_go()
    wait_for_empty_queue()
    assert worker.stop() == 0
    assert [(run.event, run.attempt) for run in marks.read()] == [("started", 1), ("ran", 1)]
    assert not FailedJob.objects.using(PRIVATE).exists()


def test_a_job_that_ends_while_the_server_is_away_is_settled_when_it_is_back(
    server: Server, processes: Processes, marks: Marks
) -> None:
    (worker,) = processes.workers(1)
    hold.dispatch()
    wait_until(lambda: marks.count("started") == 1, "the job has started")
    server.stop()
    marks.let_go()
    wait_for_line(worker, "is not reachable")
    server.start()
    connections[PRIVATE].close()
    wait_for_empty_queue()
    wait_for_line(worker, "is back")  # the keeper may have settled before the loop looks
    assert worker.stop() == 0
    assert [(run.event, run.attempt) for run in marks.read()] == [("started", 1), ("ran", 1)]
    assert len(worker.complaints) == 2


def test_no_job_is_lost_when_the_server_dies_under_load(server: Server, processes: Processes, marks: Marks) -> None:
    processes.settings["JOBQUEUE"]["RETRY_AFTER"] = 1
    workers = processes.workers(2)
    ids = dispatch_many(mark.s(number) for number in range(3000))
    wait_for_runs(marks, 50)
    server.kill()
    server.start()
    connections[PRIVATE].close()
    wait_for_empty_queue()
    assert [worker.stop() for worker in workers] == [0, 0]
    assert {run.job_id for run in marks.read("ran")} == set(map(str, ids))
    assert not FailedJob.objects.using(PRIVATE).exists()


def sessions_of_workers() -> set[int]:
    """The numbers of all sessions on the database but the test's own."""
    with connections[PRIVATE].cursor() as cursor:
        if VENDOR == "postgresql":
            cursor.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        else:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            )
        return {number for (number,) in cursor.fetchall()}


def end_sessions_of_workers() -> None:
    ended = sessions_of_workers()
    assert ended
    with connections[PRIVATE].cursor() as cursor:
        for number in ended:
            with suppress(OperationalError):  # that of a heartbeat has ended by itself meanwhile
                cursor.execute(f"SELECT pg_terminate_backend({number})" if VENDOR == "postgresql" else f"KILL {number}")
    wait_until(lambda: not ended & sessions_of_workers(), "the sessions have ended")


def test_a_connection_that_was_ended_while_idle_costs_no_attempt(
    server: Server, processes: Processes, marks: Marks
) -> None:
    (worker,) = processes.workers(1, "--sleep", "2")
    mark.dispatch()
    wait_for_runs(marks, 1)
    wait_for_empty_queue()
    end_sessions_of_workers()
    mark.dispatch()
    wait_for_runs(marks, 2)
    wait_for_empty_queue()
    assert worker.stop() == 0
    assert [run.attempt for run in marks.read("ran")] == [1, 1]
    assert worker.complaints == []


@pytest.mark.mysql
def test_a_connection_that_timed_out_on_the_server_costs_no_attempt(
    server: Server, processes: Processes, marks: Marks
) -> None:
    processes.databases["default"]["CONN_MAX_AGE"] = None
    processes.databases["default"]["OPTIONS"] = {"init_command": "SET SESSION wait_timeout = 1"}
    (worker,) = processes.workers(1, "--sleep", "4")
    mark.dispatch()
    wait_for_runs(marks, 1)
    wait_for_empty_queue()
    wait_until(lambda: not sessions_of_workers(), "the server has ended the idle connection")
    mark.dispatch()
    wait_for_runs(marks, 2)
    wait_for_empty_queue()
    assert worker.stop() == 0
    assert [run.attempt for run in marks.read("ran")] == [1, 1]
    assert worker.complaints == []


def test_a_job_whose_workers_connections_were_ended_ends_by_its_first_attempt(
    server: Server, processes: Processes, marks: Marks
) -> None:
    (worker,) = processes.workers(1)
    hold.dispatch()
    wait_until(lambda: marks.count("started") == 1, "the job has started")
    end_sessions_of_workers()
    marks.let_go()
    wait_for_empty_queue()
    assert worker.stop() == 0
    assert [(run.event, run.attempt) for run in marks.read()] == [("started", 1), ("ran", 1)]


@pytest.mark.postgres
def test_a_worker_outlives_a_time_in_which_its_database_is_read_only(
    server: Server, processes: Processes, marks: Marks
) -> None:
    """As after a failover to a standby that is not promoted yet."""
    (worker,) = processes.workers(1, "--queue", "default")
    mark.dispatch()
    wait_for_runs(marks, 1)
    server.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    server.execute("SELECT pg_reload_conf()")
    try:
        wait_for_line(worker, "is not reachable")
    finally:
        server.execute("ALTER SYSTEM RESET default_transaction_read_only")
        server.execute("SELECT pg_reload_conf()")
    wait_for_line(worker, "is back")
    connections[PRIVATE].close()
    mark.dispatch()
    wait_for_runs(marks, 2)
    assert worker.stop() == 0
    assert len(worker.complaints) == 2


def test_a_worker_waits_for_tables_that_went_away_and_came_back(
    server: Server, processes: Processes, marks: Marks
) -> None:
    (worker,) = processes.workers(1)
    call_command("migrate", "django_jobqueue", "zero", database=PRIVATE, verbosity=0)
    wait_for_line(worker, "is not reachable")
    call_command("migrate", "django_jobqueue", database=PRIVATE, verbosity=0)
    mark.dispatch()
    wait_for_runs(marks, 1)
    assert worker.stop() == 0
    assert len(worker.complaints) == 2


def test_a_worker_that_cannot_log_in_says_so_in_one_line_and_ends(server: Server, processes: Processes) -> None:
    if VENDOR == "postgresql":
        server.execute("CREATE ROLE stranger LOGIN PASSWORD 'right'")
    else:
        server.execute("CREATE USER stranger IDENTIFIED BY 'right'")
        server.execute(f"GRANT ALL ON {DATABASE}.* TO stranger")
    processes.databases["default"] |= {"USER": "stranger", "PASSWORD": "wrong-one"}
    ended_with_one_line(processes.run("queue_work"))
    assert "wrong-one" not in processes.run("queue_work").output


def test_a_worker_whose_database_does_not_exist_says_so_in_one_line_and_ends(
    server: Server, processes: Processes
) -> None:
    processes.databases["default"]["NAME"] = "nowhere"
    assert "nowhere" in ended_with_one_line(processes.run("queue_work"))


def test_a_worker_that_is_started_before_its_server_says_so_in_one_line_and_ends(
    server: Server, processes: Processes
) -> None:
    server.stop()
    try:
        ended_with_one_line(processes.run("queue_work"))
    finally:
        server.start()
        connections[PRIVATE].close()


def ended_with_one_line(worker: Process) -> str:
    assert worker.wait() == 1
    (line,) = worker.output.splitlines()
    assert "is not reachable" in line
    return line
