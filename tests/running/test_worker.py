"""The loop: what it looks at, in which order, when it waits and why it ends."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection

from django_jobqueue import current_job, dispatch, dispatch_many, get_job
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.exceptions import InvalidConnection
from django_jobqueue.running.options import WorkerOptions, WorkerStats
from django_jobqueue.running.stopping import Stopping
from django_jobqueue.running.worker import Worker, new_identity, shared_drivers_of
from tests.drivers.contract import Clock
from tests.helpers.fixtures import FLAKY
from tests.helpers.listening import Heard
from tests.helpers.notes import note
from tests.helpers.simulation import Simulation
from tests.helpers.waiting import DEADLINE, wait_until

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]


# run: why it ends


def test_it_ends_when_everything_is_empty(
    driver: Driver, make_worker: Make, simulation: Simulation, done: list[Any], heard: Heard
) -> None:
    note(*range(20))
    note(*range(20), queue="other")
    stats = simulation.run(make_worker(stop_when_empty=True))
    assert (stats.processed, len(done), simulation.pauses) == (40, 40, [])
    assert heard.one("worker_stopped")["reason"] == "empty"


def test_what_is_not_due_does_not_keep_it_from_ending(
    driver: Driver, make_worker: Make, simulation: Simulation, done: list[Any]
) -> None:
    note("later", delay=3600)
    assert simulation.run(make_worker(stop_when_empty=True)).runs == 0


def test_what_a_job_dispatches_is_run_before_it_ends(
    driver: Driver, make_worker: Make, simulation: Simulation, register: Register
) -> None:
    seen = []

    @register()
    def again(left: int) -> None:
        seen.append(left)
        if left:
            again.dispatch(left - 1)

    again.dispatch(5)
    simulation.run(make_worker(stop_when_empty=True))
    assert seen == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("most", [1, 5, 20])
def test_it_ends_after_max_jobs_and_leaves_the_others_untouched(
    driver: Driver, make_worker: Make, simulation: Simulation, done: list[Any], heard: Heard, most: int
) -> None:
    ids = note(*range(25))
    stats = simulation.run(make_worker(max_jobs=most))
    assert (stats.processed, done) == (most, list(range(most)))
    left = [get_job(job_id) for job_id in ids[most:]]
    assert {(job.state, job.attempts) for job in left if job is not None} == {("ready", 0)}
    assert heard.one("worker_stopped")["reason"] == "max_jobs"


def test_max_jobs_counts_attempts_whatever_their_outcome(
    driver: Driver, make_worker: Make, simulation: Simulation, register: Register
) -> None:
    @register(max_attempts=10, backoff=0)
    def boom() -> None:
        raise ValueError

    job_id = boom.dispatch().id
    assert simulation.run(make_worker(max_jobs=3)) == WorkerStats(released=3)
    job = get_job(job_id)
    assert job is not None
    assert job.attempts == 3


def test_it_ends_after_max_time(driver: Driver, make_worker: Make, simulation: Simulation, heard: Heard) -> None:
    began = simulation.monotonic()
    simulation.run(make_worker(max_time=100, sleep=7))
    assert 100 <= simulation.monotonic() - began < 110
    assert heard.one("worker_stopped")["reason"] == "max_time"


def test_it_ends_when_it_is_asked_to(driver: Driver, make_worker: Make, simulation: Simulation, heard: Heard) -> None:
    simulation.run(make_worker(), waits=3)
    assert heard.one("worker_stopped")["reason"] == "the test has seen enough"
    assert len(simulation.pauses) == 3


def test_a_worker_says_when_it_starts_and_stops(
    driver: Driver, make_worker: Make, simulation: Simulation, done: list[Any], heard: Heard
) -> None:
    note("a")
    worker = make_worker(stop_when_empty=True, queues=("default", "mail"))
    simulation.run(worker)
    assert heard.names("") == [
        "job_dispatched",
        "worker_started",
        "job_starting",
        "job_processed",
        "worker_stopping",
        "worker_stopped",
    ]
    common = {"sender": Worker, "worker": worker.identity}
    assert heard.one("worker_started") == {**common, "queues": ["default", "mail"]}
    assert heard.one("worker_stopping") == {**common, "reason": "empty"}
    assert heard.one("worker_stopped") == {**common, "reason": "empty", "stats": WorkerStats(processed=1)}


def test_a_stop_lets_the_job_in_hand_finish_and_hands_the_others_back(
    driver: Driver, make_worker: Make, simulation: Simulation, register: Register
) -> None:
    stopping = Stopping()
    seen: list[int] = []

    @register()
    def work(number: int) -> None:
        seen.append(number)
        if number == 4:
            stopping.ask("now")

    ids = [work.dispatch(number).id for number in range(10)]
    stats = simulation.run(make_worker(stopping=stopping))
    assert stats == WorkerStats(processed=5)
    assert seen == [0, 1, 2, 3, 4]
    left = [get_job(job_id) for job_id in ids[5:]]
    assert [(job.state, job.attempts) for job in left if job is not None] == [("ready", 0)] * 5


def test_a_job_hears_of_a_stop(driver: Driver, make_worker: Make, simulation: Simulation, register: Register) -> None:
    from django_jobqueue import current_job

    stopping = Stopping()
    heard = []

    @register()
    def work() -> None:
        context = current_job()
        assert context is not None
        heard.append(context.should_stop())
        stopping.ask("now")
        heard.append(context.should_stop())
        context.release()

    job_id = work.dispatch().id
    assert simulation.run(make_worker(stopping=stopping)) == WorkerStats(released=1)
    assert heard == [False, True]
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("ready", 0)


def test_a_worker_that_was_asked_before_reserves_nothing(
    driver: Driver, make_worker: Make, simulation: Simulation, done: list[Any]
) -> None:
    note("a")
    stopping = Stopping()
    stopping.ask("before")
    assert simulation.run(make_worker(stopping=stopping)).runs == 0
    assert done == []


# run: waiting


def test_an_idle_worker_waits_about_its_poll_interval(
    driver: Driver, make_worker: Make, simulation: Simulation
) -> None:
    simulation.run(make_worker(sleep=10), waits=20)
    pauses = [pause for pause in simulation.pauses if pause is not None]
    assert len(set(pauses)) > 1  # jittered, so that workers do not look in step
    assert all(6.9 <= pause <= 10 for pause in pauses)


def test_a_worker_that_polling_gave_a_job_looks_again_soon_and_backs_off(
    driver: Driver, make_worker: Make, simulation: Simulation, done: list[Any]
) -> None:
    def dispatch_late(number: int) -> None:
        if number == 3:
            note("a")

    simulation.run(make_worker(sleep=1), waits=12, on_wait=dispatch_late)
    pauses = [pause for pause in simulation.pauses if pause is not None]
    assert done == ["a"]
    assert all(0.69 <= pause <= 1 for pause in pauses[:3])
    for pause, longest in zip(pauses[3:], (0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1, 1), strict=True):
        assert 0.69 * longest <= pause <= longest


def test_it_keeps_nothing_of_the_jobs_that_have_ended(
    driver: Driver, make_worker: Make, simulation: Simulation, register: Register
) -> None:
    """Counted where it waits, with nothing in hand."""
    jobs, blocks = 500, []

    @register()
    def work() -> None: ...

    def count(number: int) -> None:
        gc.collect()
        blocks.append(sys.getallocatedblocks())
        dispatch_many(work.s() for _ in range(jobs))

    assert simulation.run(make_worker(sleep=1), waits=8, on_wait=count).processed == 7 * jobs
    assert blocks[-1] - blocks[3] < jobs, "four rounds: less than a quarter of an object for each job"


@pytest.mark.parametrize(("queues", "each"), [(("*",), 1), (("a", "b"), 6)])
def test_an_idle_worker_asks_little(
    database: Driver, make_worker: Make, simulation: Simulation, queues: tuple[str, ...], each: int
) -> None:
    """F60: the looks of one poll interval, and a rescue a second."""
    counted = []

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().startswith(("SELECT", "WITH", "UPDATE", "DELETE", "INSERT")):
            counted.append(sql)
        return execute(sql, params, many, context)

    polls = 40
    with connection.execute_wrapper(count):
        simulation.run(make_worker(sleep=0.5, queues=queues), waits=polls)
    rescues = [sql for sql in counted if '"reserved_until" <=' in sql or "`reserved_until` <=" in sql]
    assert len(counted) <= polls * (each + 1) + 5
    assert len(rescues) <= polls


def test_what_is_due_while_the_worker_is_busy_is_not_left_waiting(
    driver: Driver, make_worker: Make, simulation: Simulation, register: Register, clock: Clock
) -> None:
    """Staging has its own clock: a queue that is never empty does not keep scheduled jobs from becoming ready."""
    staged = []
    stage = driver.stage

    def count(queue: str, **given: Any) -> int:
        staged.append(simulation.monotonic())
        return stage(queue, **given)

    driver.stage = count  # type: ignore[method-assign]

    @register()
    def work(left: int) -> None:
        simulation.advance(0.05)
        if left:
            work.dispatch(left - 1)
            work.dispatch(0)

    work.dispatch(40)
    simulation.run(make_worker(stop_when_empty=True, sleep=0.5, queues=("default",)))
    gaps = [later - earlier for earlier, later in pairwise(staged)]
    assert len(staged) >= 5
    assert max(gaps) < 1.5


def test_a_jump_of_the_systems_clock_moves_nothing(
    driver: Driver, make_worker: Make, simulation: Simulation, done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F49"""
    real = time.time

    def jump(number: int) -> None:
        by = -3600 if number == 1 else 3600
        monkeypatch.setattr(time, "time", lambda: real() + by)
        if number == 3:
            note("a")

    simulation.run(make_worker(sleep=5), waits=5, on_wait=jump)
    assert all(pause is not None and pause <= 5 for pause in simulation.pauses)
    assert done == ["a"]


def test_a_worker_whose_clock_is_ahead_steals_nothing(
    database: Driver, make_worker: Make, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F48: only the store's clock counts."""
    found = []
    real = time.time

    @register()
    def work() -> None:
        monkeypatch.setattr(time, "time", lambda: real() + 1000)
        found.append(make_worker().work_once())
        monkeypatch.setattr(time, "time", real)

    work.dispatch()
    assert make_worker().work_once()
    assert found == [False]


def test_a_worker_that_was_stopped_while_it_reserved_starts_nothing_of_it(
    settings: Any, make_worker: Make, simulation: Simulation, register: Register
) -> None:
    """Somebody else may have run it by now, and would be repeated."""
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": FLAKY}}}
    driver: Any = connections["default"]
    ran: list[tuple[int, float]] = []

    @register()
    def work() -> None:
        ran.append((current_job().attempt, simulation.passed))  # type: ignore[union-attr]

    work.dispatch()
    stops = [89.0, 91.0]
    driver.before["reserve"] = lambda: simulation.advance(stops.pop() if stops else 0)
    stats = simulation.run(make_worker(retry_after=90, max_jobs=1, stop_when_empty=True))
    assert stats == WorkerStats(processed=1)
    assert [attempt for attempt, _ in ran] == [1]
    assert ran[0][1] >= 180, "it was run by the reserve that took too long"


def test_a_dispatch_wakes_a_worker_of_the_same_process(memory: Driver, make_worker: Make, register: Register) -> None:
    seen = threading.Event()

    @register()
    def work() -> None:
        seen.set()

    worker = make_worker(sleep=10 * DEADLINE)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(lambda: memory.has_listeners, "the worker waits")
        work.dispatch()
        assert seen.wait(DEADLINE)
    finally:
        worker.stopping.ask("end")
        thread.join(DEADLINE)
    assert not thread.is_alive()


def test_an_idle_worker_hears_a_stop_in_its_wait(memory: Driver, make_worker: Make) -> None:
    """F23"""
    worker = make_worker(sleep=10 * DEADLINE)
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_until(lambda: memory.has_listeners, "the worker waits")
    worker.stopping.ask("end")
    thread.join(DEADLINE)
    assert not thread.is_alive()


# What it leaves


def test_a_worker_leaves_no_thread_behind(
    driver: Driver, make_worker: Make, simulation: Simulation, done: list[Any]
) -> None:
    """F90"""
    before = set(threading.enumerate())
    note(*range(5))
    for _ in range(3):
        simulation.run(make_worker(stop_when_empty=True))
    assert set(threading.enumerate()) <= before  # one of another test may have ended meanwhile
    assert len(done) == 5


def test_a_handler_that_is_dispatched_by_name_is_found_by_the_worker(
    driver: Driver, worker: Worker, clock: Clock, done: list[Any]
) -> None:
    dispatch("tests.note", 1)
    worker.work_once(now=clock.now)
    assert done == [1]


def test_two_workers_of_one_process_have_names_of_their_own(memory: Driver, make_worker: Make) -> None:
    assert make_worker().identity != make_worker().identity


def test_the_name_of_a_worker_fits_its_column_whatever_the_host_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """F86"""
    monkeypatch.setattr("socket.gethostname", lambda: "Basecamp\u2019s-Mac\x00\n" * 30)
    identity = new_identity()
    assert len(identity) <= 150
    assert identity.isprintable()


def test_a_worker_in_the_process_of_the_dispatches_serves_memory_too(settings: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "quick": {"DRIVER": "memory"}}}
    assert [driver.alias for driver in Worker().drivers] == ["default", "quick"]
    assert [driver.alias for driver in Worker(WorkerOptions(connections=("quick",))).drivers] == ["quick"]


def test_a_connection_in_memory_is_refused_to_other_processes_with_the_cure(settings: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "quick": {"DRIVER": "memory"}}}
    with pytest.raises(InvalidConnection, match="'quick' lives in the memory of one process"):
        shared_drivers_of(WorkerOptions(connections=("quick",)))
    assert [driver.alias for driver in shared_drivers_of(WorkerOptions())] == ["default"]


def test_other_processes_need_a_connection_that_is_shared(settings: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    with pytest.raises(InvalidConnection, match="'default' lives in the memory of one process"):
        shared_drivers_of(WorkerOptions())


def test_an_unknown_connection_is_refused(settings: Any) -> None:
    settings.JOBQUEUE = {}
    with pytest.raises(InvalidConnection, match="'nope'"):
        Worker(WorkerOptions.from_settings(connections=("nope",)))


def test_the_options_of_a_worker_are_those_of_the_settings_unless_given(settings: Any) -> None:
    settings.JOBQUEUE = {
        "POLL_INTERVAL": 2,
        "MAX_ATTEMPTS": 7,
        "BACKOFF": 9,
        "TIMEOUT": 60,
        "RETRY_AFTER": 120,
        "SETTLE": "each",
        "QUEUE_ERROR_BACKOFF_CAP": 11,
    }
    options = WorkerOptions.from_settings(max_attempts=2, sleep=None)
    assert (options.sleep, options.max_attempts, options.backoff, options.fallback_backoff) == (2, 2, 9, 9)
    assert (options.timeout, options.retry_after, options.settle, options.error_backoff_cap) == (60, 120, "each", 11)
