"""Worker processes on a Redis of the test's own, which is killed, comes back, and ends their connections."""

from __future__ import annotations

import re
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
from tests.helpers.redis import wipe
from tests.helpers.servers import private_redis, running
from tests.helpers.waiting import wait_until
from tests.helpers.work.jobs import act, hold, mark

pytestmark = [
    pytest.mark.process,
    pytest.mark.django_db(transaction=True),
    pytest.mark.xdist_group("private server"),
]

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
    module_server.kill()
    wait_for_line(worker, "is not reachable")
    module_server.start()
    driver.close()
    wait_for_runs(processes.marks, len(ids))
    wait_for_line(worker, "is back")
    assert worker.stop() == 0
    assert len(re.findall("is not reachable", worker.output)) == 1


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
