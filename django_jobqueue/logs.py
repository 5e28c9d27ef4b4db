"""Log lines: receivers of the signals that write to the logger ``django_jobqueue``.

Levels: ERROR for a dead letter; WARNING for a failed attempt that will run again, and for a job that was lost;
INFO for jobs that were processed, released, retried or cancelled, for batches and for workers; DEBUG for jobs that were
dispatched or are starting.

Each line carries these attributes (``extra``), which formatters and filters may rely on:

* ``event``: the name of the signal;
* of every job: ``job`` (its name, since ``name`` is the logger's), ``id`` (text), ``queue``, ``connection``;
* of an attempt: ``attempt`` (from 1), ``max_attempts``, ``waited`` and, when it has ended, ``elapsed``, in seconds;
* ``delay``: seconds until the job runs again, None for a dead letter;
* of a failed attempt: ``dead_lettered``, ``exception_class``, ``exception_message``, ``traceback``;
* of a batch: ``batch`` (its name), ``id`` (text), ``connection``, ``total``, ``done``, ``failed``, ``cancelled``;
* of a worker: ``worker``, then ``queues``, or ``reason``, or ``reason`` with ``processed``, ``released``, ``failed``
  and ``lost``.

No line carries a payload. Lines of every job (dispatched, starting, processed) follow the logger's level as it was
when the app, or the last worker, started.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.dispatch import Signal

from . import signals
from .jobs.errors import printable

_NO_EXTRA = frozenset(("signal", "sender", "driver", "name", "id"))  # the connection tells the driver

logger = logging.getLogger("django_jobqueue")


def job_dispatched(**sent: Any) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        _write(logging.DEBUG, "job_dispatched", "job %s %s was dispatched to %s", sent, sent["queue"])


def job_starting(**sent: Any) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        _write(logging.DEBUG, "job_starting", "job %s %s starts", sent)


def job_processed(**sent: Any) -> None:
    if logger.isEnabledFor(logging.INFO):
        _write(logging.INFO, "job_processed", "job %s %s was processed in %.3f s", sent, sent["elapsed"])


def job_failed(**sent: Any) -> None:
    level = logging.ERROR if sent["dead_lettered"] else logging.WARNING
    if not logger.isEnabledFor(level):
        return
    follows = "it will not run again" if sent["dead_lettered"] else f"it runs again in {sent['delay']:.3g} s"
    _write(
        level,
        "job_failed",
        "job %s %s failed at attempt %s of %s, %s: %s: %s",
        sent,
        sent["attempt"],
        sent["max_attempts"],
        follows,
        printable(sent["exception_class"]),
        printable(sent["exception_message"]),
    )


def job_released(**sent: Any) -> None:
    if logger.isEnabledFor(logging.INFO):
        _write(logging.INFO, "job_released", "job %s %s was released for %.3g s", sent, sent["delay"])


def job_retried(**sent: Any) -> None:
    if logger.isEnabledFor(logging.INFO):
        _write(logging.INFO, "job_retried", "job %s %s was retried", sent)


def job_lost(**sent: Any) -> None:
    if logger.isEnabledFor(logging.WARNING):
        _write(
            logging.WARNING,
            "job_lost",
            "job %s %s was lost: its reservation had ended, so its end was not stored, and it runs elsewhere",
            sent,
        )


def job_cancelled(**sent: Any) -> None:
    if logger.isEnabledFor(logging.INFO):
        _write(logging.INFO, "job_cancelled", "job %s %s was cancelled", sent)


def batch_finished(**sent: Any) -> None:
    if logger.isEnabledFor(logging.INFO):
        counts = {key: sent[key] for key in ("total", "done", "failed", "cancelled")}
        logger.info(
            "batch %s %s finished: %s done, %s failed, %s cancelled",
            printable(sent["name"]) or "-",
            sent["id"],
            *(counts[key] for key in ("done", "failed", "cancelled")),
            extra={
                "event": "batch_finished",
                "batch": sent["name"],
                "id": str(sent["id"]),
                "connection": sent["connection"],
                **counts,
            },
        )


def worker_started(*, worker: str, queues: list[str], **sent: Any) -> None:
    connect_enabled()
    _write_worker("worker_started", "worker %s started", worker, queues=queues)


def worker_stopping(*, worker: str, reason: str, **sent: Any) -> None:
    _write_worker("worker_stopping", "worker %s is stopping (%s)", worker, reason, reason=reason)


def worker_stopped(*, worker: str, reason: str, stats: Any, **sent: Any) -> None:
    counts = {count: getattr(stats, count) for count in ("processed", "released", "failed", "lost")}
    _write_worker("worker_stopped", "worker %s stopped (%s)", worker, reason, reason=reason, **counts)


RECEIVERS = (
    job_dispatched,
    job_starting,
    job_processed,
    job_failed,
    job_released,
    job_retried,
    job_lost,
    job_cancelled,
    batch_finished,
    worker_started,
    worker_stopping,
    worker_stopped,
)


# Sent for every job, so connected only where the line would be seen: a signal without receivers costs nothing.
_OF_EVERY_JOB = {job_dispatched: logging.DEBUG, job_starting: logging.DEBUG, job_processed: logging.INFO}


def connect() -> None:
    for receiver in RECEIVERS:
        if receiver not in _OF_EVERY_JOB:
            _signal_of(receiver).connect(receiver, dispatch_uid=_uid_of(receiver))
    connect_enabled()


def connect_enabled() -> None:
    """Follow the logger's level; done when the app starts, and whenever a worker does."""
    for receiver, level in _OF_EVERY_JOB.items():
        if logger.isEnabledFor(level):
            _signal_of(receiver).connect(receiver, dispatch_uid=_uid_of(receiver))
        else:
            _signal_of(receiver).disconnect(dispatch_uid=_uid_of(receiver))


def _signal_of(receiver: Callable[..., None]) -> Signal:
    signal: Signal = getattr(signals, receiver.__name__)
    return signal


def _uid_of(receiver: Callable[..., None]) -> str:
    return f"django_jobqueue.logs.{receiver.__name__}"


def _write(level: int, event: str, text: str, sent: dict[str, Any], *more: object) -> None:
    """``text`` begins with the places of the job's name and id."""
    extra = {key: value for key, value in sent.items() if key not in _NO_EXTRA}
    extra |= {key: round(extra[key], 6) for key in ("waited", "elapsed") if key in extra}
    extra |= {"event": event, "job": sent["name"], "id": str(sent["id"])}
    logger.log(level, text, printable(sent["name"]), sent["id"], *more, extra=extra)


def _write_worker(event: str, text: str, worker: str, *more: object, **facts: Any) -> None:
    if logger.isEnabledFor(logging.INFO):
        logger.info(text, printable(worker), *more, extra={"event": event, "worker": worker, **facts})
