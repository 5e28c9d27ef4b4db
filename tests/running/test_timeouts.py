"""A handler that takes too long is told so, in the main thread by an alarm and in others by their keeper."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from django_jobqueue import InvalidOption, JobTimeout, get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.definition import check_timeout
from django_jobqueue.running import timeouts
from django_jobqueue.running.options import WorkerStats
from django_jobqueue.running.worker import Worker
from tests.helpers.gates import Started
from tests.helpers.listening import Heard
from tests.helpers.waiting import DEADLINE, wait_until

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]
TIMEOUT = "django_jobqueue.exceptions.JobTimeout"
AT_ONCE = 5.0  # what takes a fraction of a second when it works


@pytest.fixture(params=["main thread", "other thread"])
def run(request: pytest.FixtureRequest, make_worker: Make, start: Callable[..., Started]) -> Callable[..., WorkerStats]:
    """Run what is there, in the main thread or in another."""

    def run(**options: Any) -> WorkerStats:
        worker = make_worker(stop_when_empty=True, sleep=0.01, **options)
        return worker.run() if request.param == "main thread" else start(worker).end()

    return run


def pause(seconds: float = DEADLINE) -> None:
    """Be busy for so long, in short waits."""
    ends = time.monotonic() + seconds
    event = threading.Event()
    while time.monotonic() < ends:
        event.wait(0.01)


def failed(heard: Heard) -> dict[str, Any]:
    (sent,) = heard.all("job_failed")
    return sent


def test_a_handler_is_stopped_at_its_timeout(memory: Driver, register: Register, run: Any, heard: Heard) -> None:
    """F54"""

    @register(timeout=0.3, max_attempts=1)
    def slow() -> None:
        pause()

    slow.dispatch()
    assert run() == WorkerStats(failed=1)
    sent = failed(heard)
    assert sent["exception_class"] == TIMEOUT
    assert sent["exception_message"] == "The job 'tests.slow' ran longer than its timeout of 0.3 s."
    assert 0.3 <= sent["elapsed"] < AT_ONCE
    assert "in pause" in sent["traceback"]
    assert "running/worker.py" not in sent["traceback"]


def test_a_handler_cannot_swallow_it_as_an_exception(
    memory: Driver, register: Register, run: Any, heard: Heard
) -> None:
    """F53: it comes again in a ``finally`` that takes long, too."""

    @register(timeout=0.2, max_attempts=1)
    def stubborn() -> None:
        try:
            while True:
                try:
                    pause(0.05)
                except Exception:  # noqa: S112
                    continue
        finally:
            pause()

    stubborn.dispatch()
    assert run() == WorkerStats(failed=1)
    assert failed(heard)["exception_class"] == TIMEOUT
    assert failed(heard)["elapsed"] < AT_ONCE


def test_a_handler_that_swallows_everything_is_told_again_and_never_counts_as_done(
    memory: Driver, register: Register, run: Any, heard: Heard
) -> None:
    told = []

    @register(timeout=0.1, max_attempts=1)
    def deaf() -> None:
        while len(told) < 2:
            try:
                pause()
            except BaseException as error:
                told.append(type(error))

    deaf.dispatch()
    assert run() == WorkerStats(failed=1)
    assert told == [timeouts.TimedOut, timeouts.TimedOut]
    assert failed(heard)["exception_class"] == TIMEOUT


def test_another_error_of_a_handler_that_was_told_is_the_cause(
    memory: Driver, register: Register, run: Any, heard: Heard
) -> None:
    @register(timeout=0.1, max_attempts=1)
    def wrapping() -> None:
        try:
            pause()
        except BaseException as error:
            raise ValueError("wrapped") from error

    wrapping.dispatch()
    run()
    assert failed(heard)["exception_class"] == TIMEOUT
    assert "ValueError: wrapped" in failed(heard)["traceback"]


def test_a_job_that_timed_out_runs_again(memory: Driver, register: Register, run: Any) -> None:
    attempts = []

    @register(timeout=0.1, max_attempts=2, backoff=0)
    def slow_once() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            pause()

    slow_once.dispatch()
    assert run() == WorkerStats(processed=1, released=1)


def test_a_handler_may_say_what_a_timeout_makes_of_its_job(memory: Driver, register: Register, run: Any) -> None:
    @register(timeout=0.1, max_attempts=3, give_up_on=(JobTimeout,))
    def slow() -> None:
        pause()

    slow.dispatch()
    assert run() == WorkerStats(failed=1)


@pytest.mark.parametrize("error", [TimeoutError, socket.timeout, asyncio.TimeoutError])
def test_an_error_of_that_name_is_the_handlers_own(
    memory: Driver, register: Register, run: Any, heard: Heard, error: type[Exception]
) -> None:
    """F55"""

    @register(timeout=60, max_attempts=1)
    def upstream() -> None:
        raise error("upstream")

    upstream.dispatch()
    run()
    assert (failed(heard)["exception_class"], failed(heard)["exception_message"]) == ("TimeoutError", "upstream")


def test_a_coroutine_is_cancelled(memory: Driver, register: Register, run: Any, heard: Heard) -> None:
    left = []

    @register(timeout=0.2, max_attempts=1)
    async def slow() -> None:
        try:
            await asyncio.sleep(DEADLINE)
        finally:
            left.append(True)

    slow.dispatch()
    assert run() == WorkerStats(failed=1)
    assert failed(heard)["exception_class"] == TIMEOUT
    assert failed(heard)["elapsed"] < AT_ONCE
    assert left == [True]


def test_a_coroutine_that_swallows_it_is_cancelled_again(
    memory: Driver, register: Register, run: Any, heard: Heard
) -> None:
    @register(timeout=0.1, max_attempts=1)
    async def deaf() -> None:
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(DEADLINE)

    deaf.dispatch()
    assert run() == WorkerStats(failed=1)
    assert failed(heard)["exception_class"] == TIMEOUT


def test_a_timeout_of_a_coroutine_is_its_own(memory: Driver, register: Register, run: Any, heard: Heard) -> None:
    """F55"""

    @register(timeout=60, max_attempts=1)
    async def upstream() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(DEADLINE)

    upstream.dispatch()
    run()
    assert failed(heard)["exception_class"] == "TimeoutError"


def test_no_limit_of_a_job_overrides_that_of_the_settings(memory: Driver, register: Register, run: Any) -> None:
    """F56"""

    @register(timeout=None)
    def unlimited() -> None:
        pause(0.3)

    unlimited.dispatch()
    assert run(timeout=0.1) == WorkerStats(processed=1)


def test_the_limit_of_the_settings_is_that_of_a_job_without(memory: Driver, register: Register, run: Any) -> None:
    @register(max_attempts=1)
    def plain() -> None:
        pause()

    plain.dispatch()
    assert run(timeout=0.1) == WorkerStats(failed=1)


def test_a_job_after_one_that_timed_out_has_its_whole_time(memory: Driver, register: Register, run: Any) -> None:
    """F54: neither what was left of the first's time, nor its repetition, hits the second."""

    @register(timeout=0.2, max_attempts=1)
    def slow() -> None:
        pause()

    @register(timeout=5)
    def next_one() -> None:
        pause(0.5)

    @register(timeout=None)
    def unlimited() -> None:
        pause(0.5)

    slow.dispatch()
    next_one.dispatch()
    unlimited.dispatch()
    assert run() == WorkerStats(processed=2, failed=1)


def test_an_atomic_job_loses_its_writes(database: Driver, register: Register, run: Any) -> None:
    from django.contrib.auth.models import Group

    @register(timeout=0.3, max_attempts=1, atomic=True)
    def slow() -> None:
        Group.objects.create(name="written")
        pause()

    job_id = slow.dispatch().id
    assert run() == WorkerStats(failed=1)
    assert not Group.objects.exists()
    job = get_job(job_id)
    assert job is not None
    assert job.state == "failed"


@pytest.mark.parametrize(("given", "seconds"), [(0.3, 0.3), (10**9, 1e9), (None, None), (float("inf"), None), (1, 1.0)])
def test_timeouts_that_work(given: Any, seconds: float | None) -> None:
    """F54"""
    assert check_timeout("timeout", given) == seconds


@pytest.mark.parametrize("given", [0, -1, -0.1, float("nan"), float("-inf"), "1", True])
def test_timeouts_that_cannot_work_are_refused(given: Any, register: Register) -> None:
    """F54"""

    def work() -> None: ...

    with pytest.raises(InvalidOption):
        register(timeout=given)(work)


def test_a_timeout_of_many_years_is_none_in_practice(memory: Driver, register: Register, run: Any) -> None:
    @register(timeout=10**9)
    def quick() -> None: ...

    quick.dispatch()
    assert run() == WorkerStats(processed=1)


# The alarm


def test_no_alarm_is_left_armed_and_the_one_before_goes_on(
    memory: Driver, register: Register, make_worker: Make
) -> None:
    """F54"""
    armed = []

    @register(timeout=100)
    def look() -> None:
        armed.append(signal.getitimer(signal.ITIMER_REAL)[0])

    def own(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGALRM, own)
    signal.setitimer(signal.ITIMER_REAL, 1000, 7)
    try:
        for _ in range(3):
            look.dispatch()
        make_worker(stop_when_empty=True).run()
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert signal.getsignal(signal.SIGALRM) is own
        assert 900 < left <= 1000
        assert interval == 7
        assert all(0 < seconds <= 100 for seconds in armed)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_alarm_of_a_job_that_timed_out_does_not_go_on_during_the_next(
    memory: Driver, register: Register, make_worker: Make
) -> None:
    armed = []

    @register(timeout=0.1, max_attempts=1)
    def slow() -> None:
        pause()

    @register(timeout=None, priority=-1)
    def unlimited() -> None:
        pause(0.5)
        armed.append(signal.getitimer(signal.ITIMER_REAL))

    slow.dispatch()
    unlimited.dispatch()
    assert make_worker(stop_when_empty=True).run() == WorkerStats(processed=1, failed=1)
    assert armed == [(0.0, 0.0)]


def test_jobs_without_a_limit_touch_no_alarm(
    memory: Driver, register: Register, make_worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    @register(timeout=None)
    def work() -> None: ...

    monkeypatch.setattr(signal, "setitimer", lambda *given: pytest.fail("an alarm was set"))
    work.dispatch()
    assert make_worker(stop_when_empty=True).run() == WorkerStats(processed=1)


def test_many_jobs_of_a_slice_set_the_alarm_once(
    memory: Driver, register: Register, make_worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    @register(timeout=3600)
    def work() -> None: ...

    calls = []
    real = signal.setitimer
    monkeypatch.setattr(signal, "setitimer", lambda *given: (calls.append(given), real(*given))[1])
    for _ in range(200):
        work.dispatch()
    assert make_worker(stop_when_empty=True).run() == WorkerStats(processed=200)
    assert len(calls) < 100


def test_without_alarms_the_main_thread_is_reached_as_any_other(
    memory: Driver, register: Register, make_worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F87"""
    monkeypatch.setattr(timeouts, "_HAS_ALARM", False)

    @register(timeout=0.2, max_attempts=1)
    def slow() -> None:
        pause()

    slow.dispatch()
    assert make_worker(stop_when_empty=True).run() == WorkerStats(failed=1)


@pytest.mark.parametrize(
    ("alarm", "reaches", "threads", "told"),
    [
        (True, True, False, None),
        (True, True, True, "computes in C"),
        (False, True, False, "computes in C"),
        (True, False, True, "not async"),
    ],
)
def test_what_a_timeout_does_not_end_is_known(
    monkeypatch: pytest.MonkeyPatch, alarm: bool, reaches: bool, threads: bool, told: str | None
) -> None:
    monkeypatch.setattr(timeouts, "_HAS_ALARM", alarm)
    monkeypatch.setattr(timeouts, "_REACHES_THREADS", reaches)
    jobs = timeouts.unreached(in_threads=threads)
    assert jobs is None if told is None else told in str(jobs)


def test_what_nothing_reaches_is_said_once_without_a_supervisor(
    memory: Driver,
    register: Register,
    make_worker: Make,
    start: Callable[..., Started],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(timeouts, "LAST_SECONDS", 0.1)
    looks = []
    real = timeouts.Limit.look
    monkeypatch.setattr(timeouts.Limit, "look", lambda limit: (looks.append(1), real(limit))[1])
    lock = threading.Lock()

    def stuck() -> int:
        return sum(getattr(record, "event", "") == "job_stuck" for record in caplog.records)

    @register(timeout=0.1, max_attempts=1)
    def hang() -> None:
        assert lock.acquire(timeout=DEADLINE)

    with lock:
        hang.dispatch()
        running = start(make_worker(stop_when_empty=True))
        wait_until(stuck, "it is said")
        seen = len(looks)
        wait_until(lambda: len(looks) > seen + 3, "the keeper looks again")
    assert running.end() == WorkerStats(failed=1)
    assert stuck() == 1


def test_nothing_is_raised_in_a_thread_after_its_job(memory: Driver, register: Register, run: Any) -> None:
    """Jobs that end just when their time does."""

    @register(timeout=0.02, max_attempts=1)
    def close() -> None:
        ends = time.monotonic() + 0.02
        while time.monotonic() < ends:
            pass

    for _ in range(40):
        close.dispatch()
    stats = run()
    assert stats.processed + stats.failed == 40
