"""The examples of the page of events do what it says, on a worker and a store."""

from __future__ import annotations

import logging.config
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import django
import pytest
from django.dispatch import Signal

from django_jobqueue import signals
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.registry import registry
from django_jobqueue.models import QueueStat
from django_jobqueue.running.worker import Worker
from tests.docs.test_docs import blocks, file_block, page
from tests.drivers.contract import Clock
from tests.helpers.fixtures import clock, make_worker, memory, register, worker

__all__ = ["clock", "make_worker", "memory", "register", "worker"]

Register = Callable[..., Callable[[Callable[..., Any]], Any]]

ADMINS: list[Any] = ["ada@example.com"] if django.VERSION >= (6, 0) else [("Ada", "ada@example.com")]


def registered() -> set[str]:
    return {definition.name for definition in registry.definitions()}


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """A file of the page, as the module of that name; its jobs and receivers are forgotten at the end."""
    names = registered()
    sent = [signal for signal in vars(signals).values() if isinstance(signal, Signal)]
    receivers = [list(signal.receivers) for signal in sent]

    def run(name: str) -> ModuleType:
        module = ModuleType(name.removesuffix(".py").replace("/", "."))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(file_block(page("howto/events.md"), name), name, "exec"), vars(module))  # noqa: S102
        return module

    yield run
    for signal, before in zip(sent, receivers, strict=True):
        signal.receivers = before
        signal.sender_receivers_cache.clear()
    for name in registered() - names:
        registry.unregister(name)


def run_all(worker: Worker, clock: Clock) -> None:
    while worker.work_once(now=clock.now):
        pass


def test_the_team_is_told_of_a_dead_letter_once_and_not_of_the_telling(
    memory: Driver,
    worker: Worker,
    clock: Clock,
    register: Register,
    example: Callable[[str], ModuleType],
    settings: Any,
    mailoutbox: Any,
) -> None:
    settings.ADMINS = ADMINS
    example("shop/jobs.py")
    receivers = example("shop/receivers.py")

    @register(max_attempts=1)
    def break_down() -> None:
        raise ValueError("out of paper")

    job_id = break_down.dispatch().id
    run_all(worker, clock)
    (message,) = mailoutbox
    assert message.subject.endswith("tests.break_down failed for good")
    assert message.body == f"ValueError: out of paper\n\nmanage.py queue_retry {job_id}\n"

    del mailoutbox[:]
    settings.ADMINS = [7]  # so that the telling fails, too
    receivers.tell_the_team.dispatch("", "", "")
    for _ in range(20):
        clock.tick(3600)
        run_all(worker, clock)
    assert memory.failed_count(queue="mail") == 1
    assert memory.queues() == []


def test_a_dead_letter_is_mailed_by_the_handler_of_the_settings(
    memory: Driver, worker: Worker, clock: Clock, register: Register, settings: Any, mailoutbox: Any
) -> None:
    settings.ADMINS = ADMINS

    @register(max_attempts=1)
    def break_down() -> None:
        raise ValueError("out of paper")

    logger = logging.getLogger("django_jobqueue")
    handlers = list(logger.handlers)
    (code,) = [code for code in blocks(page("howto/events.md"), "python") if "LOGGING" in code]
    found: dict[str, Any] = {}
    exec(code, found)  # noqa: S102
    try:
        logging.config.dictConfig(found["LOGGING"])
        break_down.dispatch()
        run_all(worker, clock)
    finally:
        logger.handlers = handlers
    (message,) = mailoutbox
    assert "out of paper" in message.subject


def test_times_and_failures_arrive_at_statsd(
    memory: Driver, worker: Worker, clock: Clock, register: Register, example: Callable[[str], ModuleType]
) -> None:
    @register(name="tests.work:1", max_attempts=2)
    def work(is_bad: bool = False) -> None:
        if is_bad:
            raise ValueError

    metrics = example("shop/metrics.py")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd, metrics.sender_socket:
        statsd.bind(("127.0.0.1", 0))
        statsd.settimeout(10)
        metrics.STATSD = statsd.getsockname()
        work.dispatch()
        work.dispatch(True)
        run_all(worker, clock)
        clock.tick(3600)
        run_all(worker, clock)
        lines = [statsd.recv(1000).decode().partition(":") for _ in range(4)]
    assert [name for name, _, _ in lines] == [
        f"jobs.tests.work_1.{what}" for what in ("waited", "elapsed", "failed", "dead")
    ]
    assert lines[0][2].endswith("|ms")
    assert lines[3][2] == "1|c"


@pytest.mark.django_db
def test_the_report_adds_minutes_and_hours_up(example: Callable[[str], ModuleType]) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    key = {"connection": "default", "queue": "mail", "name": "shop.invite"}
    QueueStat.objects.create(minute=now, processed=2, failed=1, elapsed_max=5, **key)
    QueueStat.objects.create(minute=now - timedelta(days=2), seconds=3600, processed=40, elapsed_max=7, **key)
    QueueStat.objects.create(minute=now - timedelta(days=8), seconds=3600, processed=800, elapsed_max=9, **key)
    assert example("shop/reports.py").done_in_a_week() == [
        {"queue": "mail", "name": "shop.invite", "succeeded": 42, "dead": 1, "slowest": 7}
    ]
