"""One run of one job, step by step: what the handler gets, what its end makes of the job, what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_jobqueue import JobContext, current_job, get_job, signals
from django_jobqueue.drivers import Driver
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.listening import Heard

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


def test_a_job_runs_with_its_arguments_and_leaves_the_queue(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    seen = []

    @register()
    def add(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))

    job_id = add.dispatch(1, (2, 3), key={"a": None}).id
    assert worker.work_once(now=clock.now)
    assert seen == [((1, (2, 3)), {"key": {"a": None}})]
    assert get_job(job_id) is None
    assert not worker.work_once(now=clock.now)


def test_a_completed_job_is_announced_from_start_to_end(
    driver: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    @register(queue="mail", max_attempts=4)
    def add() -> None: ...

    job_id = add.dispatch().id
    worker.work_once(now=clock.now)
    assert heard.names() == ["job_dispatched", "job_starting", "job_processed"]
    common = {"id": job_id, "name": "tests.add", "queue": "mail", "connection": "default"}
    common |= {"driver": driver.name, "sender": type(driver)}
    assert heard.one("job_dispatched") == common
    common |= {"attempt": 1, "max_attempts": 4}
    starting, processed = heard.one("job_starting"), heard.one("job_processed")
    assert 50 < starting.pop("waited") < 70  # the clock is a minute ahead
    assert starting == common
    assert 50 < processed.pop("waited") < 70
    assert 0 <= processed.pop("elapsed") < 10
    assert processed == common


def test_a_job_that_was_given_no_limit_has_that_of_the_worker(
    driver: Driver, make_worker: Callable[..., Worker], clock: Clock, register: Register, heard: Heard
) -> None:
    @register()
    def add() -> None: ...

    add.dispatch()
    make_worker(max_attempts=7).work_once(now=clock.now)
    assert heard.one("job_starting")["max_attempts"] == 7


def test_a_handler_that_takes_the_context_gets_it_first(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    seen = []

    @register(takes_context=True, queue="mail", max_attempts=2, timeout=60)
    def add(context: JobContext, number: int) -> None:
        seen.append(context)
        assert number == 7

    job_id = add.using(metadata={"user": 3}).dispatch(7).id
    worker.work_once(now=clock.now)
    (context,) = seen
    assert (context.id, context.name, context.queue) == (job_id, "tests.add", "mail")
    assert (context.attempt, context.max_attempts, context.connection) == (1, 2, "default")
    assert context.payload == {"args": [7], "kwargs": {}}
    assert context.metadata == {"user": 3}
    assert timedelta(0) <= context.started_at - clock.now < timedelta(seconds=10)
    assert context.deadline == context.started_at + timedelta(seconds=60)
    remaining = context.remaining()
    assert remaining is not None
    assert 50 < remaining <= 60
    assert not context.should_stop()


def test_a_job_without_a_time_limit_has_no_deadline(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    seen = []

    @register(timeout=None)
    def add() -> None:
        seen.append(current_job())

    add.dispatch()
    worker.work_once(now=clock.now)
    (context,) = seen
    assert context.deadline is None
    assert context.remaining() is None


def test_the_payload_and_metadata_of_a_context_are_copies(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(takes_context=True, max_attempts=1)
    def add(context: JobContext, items: list[int]) -> None:
        context.payload["args"].append(1)
        context.metadata["a"].append(1)
        items.append(1)
        assert context.payload == {"args": [[0]], "kwargs": {}}
        assert context.metadata == {"a": []}

    add.using(metadata={"a": []}).dispatch([0])
    worker.work_once(now=clock.now)
    assert worker.stats.processed == 1


def test_the_current_job_is_known_below_the_handler_and_nowhere_else(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    seen = []

    def helper() -> None:
        seen.append(current_job())

    @register()
    def add() -> None:
        helper()

    job_id = add.dispatch().id
    worker.work_once(now=clock.now)
    assert [context.id for context in seen] == [job_id]
    assert current_job() is None


def test_a_failed_attempt_runs_again_after_its_backoff(
    driver: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    @register(max_attempts=2, backoff=60)
    def boom(number: int) -> None:
        raise ValueError("no stock")

    job_id = boom.dispatch(123456).id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("scheduled", 1)
    assert [(error.exception_class, error.message, error.number) for error in job.errors] == [
        ("ValueError", "no stock", 1)
    ]
    sent = heard.one("job_failed")
    assert (sent["exception_class"], sent["exception_message"]) == ("ValueError", "no stock")
    assert (sent["dead_lettered"], sent["delay"], sent["attempt"], sent["max_attempts"]) == (False, 60, 1, 2)
    assert sent["traceback"].startswith("Traceback (most recent call last):\n")
    assert "raise ValueError" in sent["traceback"]
    assert not worker.work_once(now=clock.tick(59))
    assert worker.work_once(now=clock.tick(2))


def test_the_last_attempt_makes_a_dead_letter_with_every_attempt(
    driver: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    @register(max_attempts=2, backoff=0)
    def boom() -> None:
        raise ValueError(f"no stock at {current_job().attempt}")  # type: ignore[union-attr]

    job_id = boom.dispatch().id
    while worker.work_once(now=clock.tick()):
        pass
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("failed", 2)
    assert [(error.number, error.message) for error in job.errors] == [(1, "no stock at 1"), (2, "no stock at 2")]
    assert heard.names() == ["job_dispatched", *["job_starting", "job_failed"] * 2]
    last = heard.all("job_failed")[-1]
    assert (last["dead_lettered"], last["delay"]) == (True, None)
    assert (worker.stats.processed, worker.stats.released, worker.stats.failed) == (0, 1, 1)


def test_an_attempt_record_says_who_ran_it_when_and_for_how_long(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(max_attempts=1)
    def boom() -> None:
        raise ValueError

    job_id = boom.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    (record,) = job.errors
    assert record.worker == worker.identity
    assert record.started[:16] == clock.now.isoformat()[:16]
    assert record.started.endswith("+00:00")
    assert 50 < record.waited < 70
    assert 0 <= record.ran < 10
    assert "test_execution.py" in record.traceback
    assert "django_jobqueue/running" not in record.traceback


def test_a_handler_can_release_its_own_job_without_spending_an_attempt(
    driver: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    @register(takes_context=True, max_attempts=1)
    def later(context: JobContext) -> None:
        try:
            context.release(timedelta(minutes=1))
        except Exception:
            raise AssertionError from None

    job_id = later.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts, job.errors) == ("scheduled", 0, ())
    assert heard.names() == ["job_dispatched", "job_starting", "job_released"]
    sent = heard.one("job_released")
    assert (sent["delay"], sent["attempt"], sent["max_attempts"]) == (60, 1, 1)
    assert worker.stats.released == 1
    assert not worker.work_once(now=clock.tick(59))
    assert worker.work_once(now=clock.tick(2))


def test_a_release_without_a_delay_puts_the_job_behind_the_others(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    seen = []

    @register(takes_context=True)
    def later(context: JobContext, name: str) -> None:
        seen.append(name)
        if seen.count(name) == 1:
            context.release()

    for name in ("a", "b"):
        later.dispatch(name)
    while worker.work_once(now=clock.tick()):
        pass
    assert seen == ["a", "b", "a", "b"]


def test_a_handler_can_fail_its_own_job_whatever_attempts_are_left(
    driver: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    @register(takes_context=True, max_attempts=9)
    def hopeless(context: JobContext) -> None:
        try:
            context.fail("no such customer")
        except Exception:
            raise AssertionError from None

    job_id = hopeless.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("failed", 1)
    assert job.errors[0].message == "no such customer"
    assert heard.one("job_failed")["dead_lettered"] is True


def test_current_job_releases_from_below_the_handler(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    def helper() -> None:
        current_job().release(5)  # type: ignore[union-attr]

    @register()
    def later() -> None:
        helper()

    job_id = later.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("scheduled", 0)


def test_a_release_with_an_impossible_delay_is_a_failed_attempt(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(takes_context=True, max_attempts=1)
    def later(context: JobContext) -> None:
        context.release(-1)

    job_id = later.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert job.errors[0].exception_class == "django_jobqueue.exceptions.InvalidOption"


def test_an_async_handler_runs_to_its_end(driver: Driver, worker: Worker, clock: Clock, register: Register) -> None:
    """F81"""
    seen = []

    @register()
    async def fetch(url: str) -> str:
        seen.append((url, current_job().name))  # type: ignore[union-attr]
        return "page"

    fetch.dispatch("x")
    worker.work_once(now=clock.now)
    assert seen == [("x", "tests.fetch")]
    assert worker.stats.processed == 1


def test_a_plain_function_that_returns_a_coroutine_is_awaited(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F81"""
    seen = []

    async def fetch() -> None:
        seen.append("fetched")

    @register()
    def start() -> Any:
        return fetch()

    start.dispatch()
    worker.work_once(now=clock.now)
    assert seen == ["fetched"]


def test_an_async_handler_that_raises_fails_like_any_other(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(max_attempts=1)
    async def fetch() -> None:
        raise TimeoutError("upstream")

    job_id = fetch.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.errors[0].exception_class, job.errors[0].message) == ("failed", "TimeoutError", "upstream")


def test_no_signal_carries_the_payload(
    driver: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    @register(takes_context=True, backoff=0, max_attempts=2)
    def work(context: JobContext, secret: str, mode: str) -> None:
        if mode == "raise":
            raise ValueError
        if mode == "release" and context.remaining():
            context.release(3600)

    for mode in ("raise", "release", "end"):
        work.dispatch("Rumpelstiltskin", mode)
    while worker.work_once(now=clock.tick()):
        pass
    assert {"job_failed", "job_released", "job_processed"} < set(heard.names())
    assert "Rumpelstiltskin" not in repr(heard.sent)


def test_a_receiver_that_raises_changes_nothing(
    driver: Driver, worker: Worker, clock: Clock, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    @register(max_attempts=1)
    def work(mode: str) -> None:
        if mode == "raise":
            raise ValueError

    def receiver(**sent: Any) -> None:
        raise RuntimeError("a broken receiver")

    told = (signals.job_dispatched, signals.job_starting, signals.job_processed, signals.job_failed)
    for signal in told:
        signal.connect(receiver)
    try:
        good, bad = work.dispatch("end").id, work.dispatch("raise").id
        while worker.work_once(now=clock.now):
            pass
    finally:
        for signal in told:
            signal.disconnect(receiver)
    assert get_job(good) is None
    failed = get_job(bad)
    assert failed is not None
    assert failed.state == "failed"
    assert (worker.stats.processed, worker.stats.failed) == (1, 1)


def test_secrets_are_masked_in_what_is_kept_of_an_error(
    driver: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    @register(max_attempts=1, sensitive=("email",))
    def send(email: str, options: dict[str, str]) -> None:
        raise ValueError(f"refused {email} with {options['password']}")

    job_id = send.dispatch("ann@example.com", {"password": "hunter2"}).id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    shown = repr((job, heard.sent, caplog.text))
    assert "refused" in shown
    assert "ann@example.com" not in shown
    assert "hunter2" not in shown
