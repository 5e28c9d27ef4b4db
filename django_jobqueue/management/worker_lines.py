"""What ``queue_work`` prints while it works: the log lines, where the project's LOGGING shows them nowhere.

The lines come from a handler on the logger ``django_jobqueue``, so that a project with LOGGING of its own gets its
own format and no doubles.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any

from django.utils import timezone

from .. import __version__, signals
from ..drivers import Driver
from ..jobs.definition import Definition
from ..jobs.errors import printable
from ..jobs.registry import registry
from ..operations.failed_jobs import SHOWN_ENDING
from ..running.options import EVERY_QUEUE, WorkerOptions, WorkerStats
from ..running.stopping import Stopping
from ..running.worker import new_identity
from .console import Console, counted, cut, duration, event_facts, last_name

logger = logging.getLogger("django_jobqueue")

LEVELS = {0: logging.ERROR, 1: logging.INFO}  # by verbosity; more of it is DEBUG
NAME_WIDTH, WORD_WIDTH, ERROR_WIDTH = 28, 13, 200
LONGEST_FLUSH = 2  # seconds
UNNOTICED_STOP = 0.2  # seconds; an idle worker has stopped before anybody asks what it waits for
# On a terminal the banner and the last line say it for the whole process.
LIFE_OF_A_WORKER = frozenset(("worker_started", "worker_stopping", "worker_stopped"))
_FIRST = ("job", "id", "queue", "connection", "attempt", "max_attempts", "waited", "elapsed", "delay")
_STANDARD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime"))


class Session:
    """What one run of the command shows: a banner, the log, a stop that takes time, and the counts."""

    def __init__(
        self,
        console: Console,
        options: WorkerOptions,
        drivers: Sequence[Driver],
        verbosity: int,
        *,
        processes: int | None = None,
    ) -> None:
        """``processes`` is None when the jobs run in this one."""
        self._console = console
        self._options = options
        self._drivers = drivers
        self._verbosity = verbosity
        self._processes = processes
        self._started = time.monotonic()

    @contextmanager
    def shown(self, stopping: Stopping) -> Iterator[None]:
        if self._verbosity:
            self._begin()
        with log_lines(self._console, self._verbosity), self._telling_of_a_stop(stopping):
            yield

    def _begin(self) -> None:
        console, options = self._console, self._options
        worker = new_identity(options.name).rpartition(":")[0]
        definitions = registry.definitions()
        if not console.is_terminal:
            console.event(
                "pool_started",
                version=__version__,
                worker=worker,
                connections=[driver.alias for driver in self._drivers],
                queues=list(options.queues),
                processes=self._processes,
                workers=options.workers,
                jobs=len(definitions),
                tasks=registry.sources(),
            )
            return
        queues = "every queue" if EVERY_QUEUE in options.queues else ", ".join(options.queues)
        console.write(
            f"django_jobqueue {__version__}   worker {worker}   "
            "Ctrl-C: finish running jobs, then stop.  Twice: stop now."
        )
        console.write(f"  stores   {', '.join(map(_store, self._drivers))}")
        console.write(f"  queues   {queues}")
        processes = "" if self._processes is None else f"{_counted_processes(self._processes)} of "
        console.write(
            f"  pool     {processes}{counted(options.workers, 'thread')}   max_attempts {options.max_attempts}   "
            f"{_served(definitions, registry.sources())}"
        )
        console.write("")

    def end(self, stats: WorkerStats) -> None:
        if not self._verbosity:
            return
        elapsed = time.monotonic() - self._started
        counts = {counter.name: getattr(stats, counter.name) for counter in fields(stats)}
        if self._console.is_terminal:
            done = ", ".join(f"{number:,} {outcome}" for outcome, number in counts.items())
            self._console.write(f"stopped: {done} in {duration(elapsed)}")
        else:
            self._console.event("pool_stopped", **counts, elapsed=round(elapsed, 3))

    @contextmanager
    def _telling_of_a_stop(self, stopping: Stopping) -> Iterator[None]:
        """Say, from a thread of its own, that a stop was asked for, when a running job makes it take time."""
        waiter = stopping.waiter()
        over = Event()

        def watch() -> None:
            waiter.pause(None)
            if not over.is_set():
                waiter.pause(UNNOTICED_STOP)
            if not over.is_set() and not stopping.now:
                self._tell_of_a_stop(stopping)

        thread = Thread(target=watch, name="jobqueue-console", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            waiter.wake()
            thread.join()
            stopping.dismiss(waiter)

    def _tell_of_a_stop(self, stopping: Stopping) -> None:
        grace = f"up to {duration(self._options.grace)}" if self._options.grace else "as long as they take"
        logger.info(
            "stopping (%s): waiting for running jobs, %s   (Ctrl-C again: stop now)",
            stopping.reason,
            grace,
            extra={"event": "pool_stopping", "reason": stopping.reason, "grace": self._options.grace},
        )


def _served(definitions: Sequence[Definition], backends: Sequence[str]) -> str:
    """Jobs are counted; tasks are found when one comes, so that only their backends are known."""
    modules = {definition.func.__module__ for definition in definitions}
    jobs = f"{counted(len(definitions), 'job')} in {counted(len(modules), 'module')}"
    tasks = f"tasks of {', '.join(backends)}"
    if not backends:
        return jobs
    return f"{jobs}   {tasks}" if definitions else tasks


def _counted_processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number:,} processes"


def flush_all() -> None:
    """Write out what is buffered, unless a thread that is stuck in writing holds its lock."""

    def flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        logging.shutdown()

    thread = Thread(target=flush, daemon=True)
    thread.start()
    thread.join(LONGEST_FLUSH)


def _store(driver: Driver) -> str:
    return f"{driver.alias} ({driver.kind})" if driver.kind else driver.alias


@contextmanager
def log_lines(console: Console, verbosity: int) -> Iterator[None]:
    """Print the log while the block runs, unless the project's LOGGING does; then everything is as it was."""
    before = logger.level, logger.propagate, logger.disabled
    shown_elsewhere = bool(logger.handlers) or any(map(_is_console, _inherited_handlers()))
    if shown_elsewhere and not console.is_json:
        yield
        return
    handler = LogLines(console, verbosity)
    logger.addHandler(handler)
    logger.propagate = logger.disabled = False  # disabled: by dictConfig, when settings.py imports this package
    if logger.level == logging.NOTSET:
        logger.setLevel(handler.level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        level, logger.propagate, logger.disabled = before
        logger.setLevel(level)


def _inherited_handlers() -> Iterator[logging.Handler]:
    above: logging.Logger | None = logger
    while above is not None and above.propagate and above.parent is not None:
        above = above.parent
        yield from above.handlers


def _is_console(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream in (
        sys.stdout,
        sys.stderr,
        sys.__stdout__,
        sys.__stderr__,
    )


class LogLines(logging.Handler):
    """Handlers that were inherited, a file's for example, see what they saw before: records from a level on."""

    def __init__(self, console: Console, verbosity: int) -> None:
        super().__init__(LEVELS.get(verbosity, logging.DEBUG))
        self._console = console
        self._shows_tracebacks = verbosity > 1
        self._inherited = list(_inherited_handlers())
        self._pass_on = logger.getEffectiveLevel()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._console.is_terminal:
                self._write_for_people(record)
            else:
                self._console.record(**self._facts(record))
            if record.levelno >= self._pass_on:
                for handler in self._inherited:
                    if record.levelno >= handler.level:
                        handler.handle(record)
        except Exception:
            self.handleError(record)

    def _facts(self, record: logging.LogRecord) -> dict[str, Any]:
        given = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        facts = event_facts(datetime.fromtimestamp(record.created, UTC), record.levelno)
        facts["event"] = given.pop("event", "log")
        traceback = given.pop("traceback", "") or _traceback(record)
        facts |= {key: given.pop(key) for key in _FIRST if key in given} | given
        if facts["event"] not in vars(signals):  # of a signal, the facts say everything
            facts["message"] = record.getMessage()
        if traceback and (self._shows_tracebacks or record.exc_info):
            facts["traceback"] = traceback
        return facts

    def _write_for_people(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", "")
        if event in LIFE_OF_A_WORKER and not self._shows_tracebacks:
            return
        moment = timezone.localtime(datetime.fromtimestamp(record.created, UTC), timezone.get_default_timezone())
        describe = _WORDS.get(event)
        line = _style(self._console, record)(record.getMessage()) if describe is None else self._job_line(record, event)
        self._console.write(f"{moment:%H:%M:%S}  {line}")
        text = getattr(record, "traceback", "") if self._shows_tracebacks else ""
        for row in (text or _traceback(record)).splitlines():
            indent = len(row) - len(row.lstrip(" "))
            self._console.write(" " * (indent + 4) + printable(row))

    def _job_line(self, record: logging.LogRecord, event: str) -> str:
        facts: Any = record
        word = _WORDS[event](facts)
        elapsed = duration(facts.elapsed) if hasattr(facts, "elapsed") else ""
        line = (
            f"{printable(facts.job):<{NAME_WIDTH}} {facts.id[-SHOWN_ENDING:]}  {facts.attempt}/{facts.max_attempts}  "
            f"{elapsed:>7}  {_style(self._console, record)(word)}"
        )
        if event != "job_failed":
            return line
        error = f"{last_name(facts.exception_class)}: {printable(facts.exception_message)}".removesuffix(": ")
        return f"{line}{' ' * (WORD_WIDTH - len(word))} {cut(error, ERROR_WIDTH)}"


# The word on a terminal for what became of a job.
_WORDS: dict[str, Callable[[Any], str]] = {
    "job_starting": lambda facts: "RUNNING",
    "job_processed": lambda facts: "DONE",
    "job_failed": lambda facts: "FAILED" if facts.dead_lettered else f"AGAIN in {duration(facts.delay)}",
    "job_released": lambda facts: f"RELEASED for {duration(facts.delay)}" if facts.delay else "RELEASED",
    "job_lost": lambda facts: "LOST",
}


def _style(console: Console, record: logging.LogRecord) -> Callable[[str], str]:
    if record.levelno >= logging.ERROR:
        return console.style.ERROR
    if record.levelno >= logging.WARNING or getattr(record, "event", "") == "job_released":
        return console.style.WARNING
    return console.style.SUCCESS if getattr(record, "event", "") == "job_processed" else str


def _traceback(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
