"""The log lines: level, text and attributes of each signal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from django_jobqueue import dispatch, get_job, logs, signals
from django_jobqueue.operations import failed_jobs
from django_jobqueue.running.options import WorkerOptions, WorkerStats
from django_jobqueue.running.worker import Worker
from tests.edges.commands import dead_letter, fail, succeed

LOGGER = logging.getLogger("django_jobqueue")
ID = UUID("01a228e7-f672-747b-a7d4-8563f14f13ef")
JOB = {"id": ID, "name": "shop.pay", "queue": "mail", "connection": "default", "driver": "database"}
ATTEMPT = {**JOB, "attempt": 2, "max_attempts": 3, "waited": 0.1234567}
ENDED = {**ATTEMPT, "elapsed": 1.5}
ERROR = {"exception_class": "shop.Refused", "exception_message": "no\nmoney\x1b", "traceback": "Traceback …"}
SHOWN_JOB = {"job": "shop.pay", "id": str(ID), "queue": "mail", "connection": "default"}
SHOWN_ATTEMPT = {**SHOWN_JOB, "attempt": 2, "max_attempts": 3, "waited": 0.123457}
SHOWN_ENDED = {**SHOWN_ATTEMPT, "elapsed": 1.5}

EVENTS: list[tuple[str, dict[str, Any], int, dict[str, Any], str]] = [
    ("job_dispatched", JOB, logging.DEBUG, SHOWN_JOB, f"job shop.pay {ID} was dispatched to mail"),
    ("job_starting", ATTEMPT, logging.DEBUG, SHOWN_ATTEMPT, f"job shop.pay {ID} starts"),
    ("job_processed", ENDED, logging.INFO, SHOWN_ENDED, f"job shop.pay {ID} was processed in 1.500 s"),
    (
        "job_failed",
        {**ENDED, **ERROR, "dead_lettered": False, "delay": 2.0},
        logging.WARNING,
        {**SHOWN_ENDED, **ERROR, "dead_lettered": False, "delay": 2.0},
        f"job shop.pay {ID} failed at attempt 2 of 3, it runs again in 2 s: shop.Refused: no money\\x1b",
    ),
    (
        "job_failed",
        {**ENDED, **ERROR, "dead_lettered": True, "delay": None},
        logging.ERROR,
        {**SHOWN_ENDED, **ERROR, "dead_lettered": True, "delay": None},
        f"job shop.pay {ID} failed at attempt 2 of 3, it will not run again: shop.Refused: no money\\x1b",
    ),
    (
        "job_released",
        {**ENDED, "delay": 60.0},
        logging.INFO,
        {**SHOWN_ENDED, "delay": 60.0},
        f"job shop.pay {ID} was released for 60 s",
    ),
    ("job_retried", JOB, logging.INFO, SHOWN_JOB, f"job shop.pay {ID} was retried"),
    ("job_lost", ENDED, logging.WARNING, SHOWN_ENDED, f"job shop.pay {ID} was lost: "),
    ("job_cancelled", JOB, logging.INFO, SHOWN_JOB, f"job shop.pay {ID} was cancelled"),
    (
        "batch_finished",
        {
            "id": ID,
            "name": "night\x1b",
            "connection": "default",
            "total": 6,
            "done": 3,
            "failed": 2,
            "cancelled": 1,
        },
        logging.INFO,
        {
            "batch": "night\x1b",
            "id": str(ID),
            "connection": "default",
            "total": 6,
            "done": 3,
            "failed": 2,
            "cancelled": 1,
        },
        f"batch night\\x1b {ID} finished: 3 done, 2 failed, 1 cancelled",
    ),
    (
        "worker_started",
        {"worker": "web:1:ab", "queues": ["*"]},
        logging.INFO,
        {"worker": "web:1:ab", "queues": ["*"]},
        "worker web:1:ab started",
    ),
    (
        "worker_stopping",
        {"worker": "web:1:ab", "reason": "SIGTERM"},
        logging.INFO,
        {"worker": "web:1:ab", "reason": "SIGTERM"},
        "worker web:1:ab is stopping (SIGTERM)",
    ),
    (
        "worker_stopped",
        {"worker": "web:1:ab", "reason": "SIGTERM", "stats": WorkerStats(processed=4, failed=1)},
        logging.INFO,
        {"worker": "web:1:ab", "reason": "SIGTERM", "processed": 4, "released": 0, "failed": 1, "lost": 0},
        "worker web:1:ab stopped (SIGTERM)",
    ),
]


def attributes(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as ``extra``."""
    standard = {*vars(logging.makeLogRecord({})), "message", "asctime"}
    return {key: value for key, value in vars(record).items() if key not in standard}


@pytest.fixture(autouse=True)
def _connected_as_before() -> Iterator[None]:
    yield
    logs.connect_enabled()


def seen_from(level: int, caplog: pytest.LogCaptureFixture) -> None:
    """As when a process starts with this level."""
    caplog.set_level(level, "django_jobqueue")
    logs.connect_enabled()


def takes_its_line(event: str) -> bool:
    """Whether the line of a signal has its receiver; others may listen too. It is disconnected."""
    disconnected: bool = getattr(signals, event).disconnect(dispatch_uid=f"django_jobqueue.logs.{event}")
    return disconnected


@pytest.mark.parametrize("event", ["job_dispatched", "job_starting", "job_processed"])
def test_a_signal_of_every_job_has_no_receiver_where_its_line_would_not_be_seen(
    event: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen_from(logging.WARNING, caplog)
    assert not takes_its_line(event)


def test_a_worker_that_starts_follows_the_level_of_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    seen_from(logging.WARNING, caplog)
    caplog.set_level(logging.INFO, "django_jobqueue")
    signals.worker_started.send_robust(object, worker="web1:1:ab", queues=["*"])
    assert takes_its_line("job_processed")
    assert not takes_its_line("job_starting")


@pytest.mark.parametrize(("event", "sent", "level", "extra", "text"), EVENTS)
def test_each_signal_has_its_line(
    event: str, sent: dict[str, Any], level: int, extra: dict[str, Any], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen_from(logging.DEBUG, caplog)
    results = getattr(signals, event).send_robust(sender=object, **sent)
    assert [result for _receiver, result in results if result is not None] == []
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("django_jobqueue", level)
    assert record.getMessage().startswith(text)
    assert attributes(record) == {"event": event, **extra}


@pytest.mark.parametrize(("event", "sent", "level", "extra", "text"), EVENTS)
def test_a_line_that_nobody_would_see_is_not_made(
    event: str,
    sent: dict[str, Any],
    level: int,
    extra: dict[str, Any],
    text: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a line was made")

    caplog.set_level(level + 1, "django_jobqueue")
    monkeypatch.setattr(LOGGER, "log", made)
    monkeypatch.setattr(LOGGER, "info", made)
    monkeypatch.setattr(logs, "printable", made)
    results = getattr(signals, event).send_robust(sender=object, **sent)
    assert [result for _receiver, result in results if result is not None] == []


def test_every_signal_is_logged() -> None:
    sent = {name for name, value in vars(signals).items() if isinstance(value, signals.Signal)}
    assert sent == {receiver.__name__ for receiver in logs.RECEIVERS}


def test_connecting_twice_makes_no_doubles(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "django_jobqueue")
    logs.connect()
    signals.job_retried.send_robust(sender=object, **JOB)
    assert len(caplog.records) == 1


@pytest.mark.django_db(transaction=True)
def test_the_life_of_jobs_is_logged_without_their_payloads(
    caplog: pytest.LogCaptureFixture, register: Callable[..., Any]
) -> None:
    seen_from(logging.DEBUG, caplog)
    dispatch(succeed, card="the card of anna")
    dispatch(fail, "broken")
    Worker(WorkerOptions.from_settings(stop_when_empty=True, sleep=0.05)).run()
    letter = dead_letter()
    failed_jobs.retry([failed_jobs.find(str(letter.pk))])  # type: ignore[list-item]
    assert get_job(letter.job_id).cancel()  # type: ignore[union-attr]
    events = [record.event for record in caplog.records]  # type: ignore[attr-defined]
    assert sorted(events) == sorted(
        ["job_dispatched"] * 2
        + ["worker_started"]
        + ["job_starting"] * 3
        + ["job_processed"]
        + ["job_failed"] * 2
        + ["worker_stopping", "worker_stopped", "job_retried", "job_cancelled"]
    )
    assert not any("the card of anna" in repr(vars(record)) for record in caplog.records)
