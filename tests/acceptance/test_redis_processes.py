"""Worker processes on a Redis of the test's own, which is killed, comes back, and ends their connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("django_redis", reason="django-redis is not installed")

import redis
from django.core.cache import caches

from django_jobqueue import batch, dispatch_many
from django_jobqueue.drivers import Driver, connections
from lab.servers import Redis
from tests.helpers.marks import Marks
from tests.helpers.processes import Process, Processes, database_settings
from tests.helpers.proxies import Proxy, proxy
from tests.helpers.redis import wipe
from tests.helpers.servers import private_redis, running
from tests.helpers.waiting import wait_until
from tests.helpers.work.jobs import act, hold, mark

pytestmark = [
    pytest.mark.process,
    pytest.mark.django_db(transaction=True),
    pytest.mark.xdist_group("private server"),
]

SOCKET_TIMEOUT = 2
ENTRY = {"DRIVER": "redis", "CACHE": "private", "PREFIX": "shop:", "DATABASE": "default"}


@pytest.fixture(scope="module")
def module_server() -> Iterator[Redis]:
    with running(private_redis()) as server:
        yield server


@pytest.fixture
def driver(module_server: Redis, settings: Any) -> Iterator[Any]:
    if not module_server.is_running:  # a test that failed has left it so
        module_server.start()
    settings.CACHES = {**settings.CACHES, "private": module_server.settings()}
    settings.JOBQUEUE = {"CONNECTIONS": {"default": ENTRY}}
    yield connections["default"]
    wipe(connections["default"])
    caches["private"].close()


@pytest.fixture
def processes(driver: Driver, module_server: Redis, settings: Any, tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path, {"default": database_settings()})
    processes.settings["CACHES"] = {**settings.CACHES, "private": module_server.settings()}
    processes.settings["JOBQUEUE"] |= {"CONNECTIONS": {"default": ENTRY}, "RETRY_AFTER": 3}
    yield processes
    processes.end_all()


def wait_for_runs(marks: Marks, count: int) -> None:
    wait_until(lambda: marks.count("ran") >= count, lambda: f"{count} jobs ran, of {marks.count('ran')}")


def wait_for_line(worker: Process, text: str) -> None:
    wait_until(lambda: text in worker.output, lambda: f"the log says {text!r}:\n{worker.output}")


def idle_worker(processes: Processes, driver: Driver) -> Process:
    """It has run a job, so that it is connected, and nothing is left to do."""
    (worker,) = processes.workers(1)
    mark.dispatch("before")
    wait_for_runs(processes.marks, 1)
    wait_until(lambda: driver.queues() == [], "no job is left")
    return worker


@pytest.fixture
def network(processes: Processes, module_server: Redis) -> Iterator[Proxy]:
    """What lies between the workers and the server, which knows them by a password."""
    module_server.execute("ACL SETUSER worker reset on >s3cret ~* &* +@all")
    with proxy("127.0.0.1", module_server.port, b"{shop:}") as network:
        location = f"redis://worker:s3cret@127.0.0.1:{network.port}/0"
        options = {"SOCKET_TIMEOUT": SOCKET_TIMEOUT, "SOCKET_CONNECT_TIMEOUT": 5}
        processes.settings["CACHES"] |= {"private": module_server.settings(LOCATION=location, OPTIONS=options)}
        yield network


def test_a_worker_runs_what_is_on_redis_and_stops_when_it_is_told(processes: Processes, driver: Driver) -> None:
    dispatch_many(mark.s(number) for number in range(300))
    (worker,) = processes.workers(1)
    wait_for_runs(processes.marks, 300)
    act.dispatch("later")
    wait_for_runs(processes.marks, 301)
    assert worker.stop() == 0
    assert driver.queues() == []
    assert worker.complaints == []


def test_what_a_killed_worker_held_runs_again_and_kills_nobody_else(processes: Processes, driver: Any) -> None:
    first, second = processes.workers(2)
    act.using(priority=1).dispatch("deadly", "die once")
    dispatch_many(act.s(number) for number in range(50))
    wait_for_runs(processes.marks, 51)
    wait_until(lambda: driver.queues() == [], "no job is left")
    assert not (first.is_running and second.is_running)
    assert driver.failed_count() == 0


def test_a_batch_one_of_whose_workers_is_killed_ends_once(processes: Processes, driver: Any) -> None:
    processes.workers(2)
    members = [act.s(number, "die once" if number == 0 else "") for number in range(20)]
    dispatched = batch(members).then(mark.s("then")).finally_(mark.s("finally")).dispatch()
    for callback in ("then", "finally"):
        wait_until(lambda key=callback: processes.marks.count("ran", key) > 0, f"{callback} was called")
    wait_until(lambda: driver.queues() == [], "no job is left")
    record = driver.get_batch(dispatched.id)
    assert (record.total, record.done) == (20, 20)
    for callback in ("then", "finally"):
        assert len({run.job_id for run in processes.marks.read("ran") if run.key == callback}) == 1


def test_a_supervisor_gives_back_at_once_what_a_killed_process_held(processes: Processes, driver: Any) -> None:
    processes.settings["JOBQUEUE"]["RETRY_AFTER"] = 3600
    act.using(priority=1).dispatch("deadly", "die once")
    dispatch_many(act.s(number) for number in range(30))
    supervisor = processes.worker("--processes=2")
    wait_for_runs(processes.marks, 31)
    wait_until(lambda: driver.queues() == [], "no job is left")
    assert supervisor.stop() == 0
    assert processes.marks.count("started", "deadly") == 2


def test_a_server_that_is_killed_and_comes_back_has_lost_nothing(
    processes: Processes, driver: Any, module_server: Redis
) -> None:
    (worker,) = processes.workers(1)
    ids = dispatch_many(mark.using(delay=1).s(number) for number in range(200))
    files = len(worker.open_files())
    module_server.kill()
    wait_for_line(worker, "is not reachable")
    module_server.start()
    driver.close()
    wait_for_runs(processes.marks, len(ids))
    wait_for_line(worker, "is back")
    assert len(worker.open_files()) <= files + 2
    assert worker.stop() == 0
    assert len(worker.complaints) == 2


def test_a_stop_waits_for_a_silent_server_no_longer_than_its_timeout(
    processes: Processes, driver: Any, network: Proxy
) -> None:
    """F31: nothing is closed, and nothing answers."""
    worker = idle_worker(processes, driver)
    network.silence()
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < SOCKET_TIMEOUT + 10


def test_a_worker_whose_server_falls_silent_goes_on_with_the_one_that_takes_over(
    processes: Processes, driver: Any, network: Proxy
) -> None:
    """F30, F31"""
    worker = idle_worker(processes, driver)
    files, used, began = len(worker.open_files()), worker.cpu_seconds(), time.monotonic()
    network.silence()
    ids = dispatch_many(mark.s(number) for number in range(100))
    wait_for_line(worker, "is not reachable")
    network.take_over()
    wait_for_line(worker, "is back")
    used = worker.cpu_seconds() - used
    took = time.monotonic() - began
    wait_for_runs(processes.marks, len(ids) + 1)
    wait_until(lambda: driver.queues() == [], "no job is left")
    lost, back = worker.complaints
    assert lost.startswith("ERROR store 'default' is not reachable: ")
    assert back.startswith("WARNING store 'default' is back after ")
    assert "s3cret" not in worker.output
    assert used < took / 2
    assert len(worker.open_files()) <= files + 2
    assert worker.stop() == 0


def test_connections_that_are_ended_cost_a_job_in_hand_nothing(
    processes: Processes, driver: Any, module_server: Redis
) -> None:
    (worker,) = processes.workers(1)
    hold.dispatch("held")
    wait_until(lambda: processes.marks.count("started") == 1, "the job has started")
    with closing(redis.Redis(port=module_server.port)) as other:
        other.client_kill_filter(_type="normal", skipme=True)
        other.client_kill_filter(_type="pubsub")
    driver.close()
    mark.dispatch("waits behind")
    processes.marks.let_go()
    wait_for_runs(processes.marks, 2)
    wait_until(lambda: driver.queues() == [], "no job is left")
    assert worker.stop() == 0
    assert processes.marks.count("started") == 1
