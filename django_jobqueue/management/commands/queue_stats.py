"""``queue_stats``: how much waits, runs and failed, queue by queue; what was done; and who works."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ...exceptions import InvalidOption
from ...jobs.counts import Counted
from ...jobs.errors import printable
from ...jobs.workers import WorkerRecord
from ...operations import queues
from ...operations.queues import QueueStats
from ...operations.stats import done
from ...operations.workers import workers
from ..console import (
    EVERY_QUEUE,
    Console,
    add_connection,
    add_json,
    age,
    check_store,
    duration,
    iso,
    plain_errors,
    queue_list,
)

COLUMNS = ("queue", "connection", "ready", "oldest", "scheduled", "reserved", "failed")
WORKER_COLUMNS = ("name", "pid", "state", "queues", "workers", "processed", "released", "failed", "lost")
DONE_COLUMNS = (
    *("queue", "name", "connection", "processed", "released", "failed", "lost"),
    *("elapsed_mean", "elapsed_max", "waited_mean", "waited_max", "since"),
)
MEGABYTE = 1024 * 1024
# For programs these follow.
MORE_WORKER_COLUMNS = ("memory", "version", "is_embedded", "host", "id", "started_at", "heartbeat_at")


class Command(BaseCommand):
    help = (
        "Show how many jobs of each queue are ready, scheduled, reserved and failed, and how long the oldest waits; or "
        "what was done lately; or the worker processes."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--queue", "-q", action="append", metavar="NAME[,NAME]", help="only these queues")
        instead = parser.add_mutually_exclusive_group()
        instead.add_argument("--workers", action="store_true", help="show the worker processes instead of the queues")
        instead.add_argument(
            "--since",
            metavar="AGE",
            help="show what was done in the last AGE, such as 90, 10m, 2h or 7d, by queue and job",
        )
        add_connection(parser)
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(self, options)
        with plain_errors():
            names = queue_list(options["queue"])
            since = age("--since", options["since"])
            if since is not None and options["workers"]:
                raise InvalidOption("--since and --workers are two different questions; leave one out.")
        only = None if not names or EVERY_QUEUE in names else names
        check_store(options["connection"], rows_only=options["workers"] or since is not None)
        with plain_errors():
            if options["workers"]:
                show_workers(console, workers(connection=options["connection"]))
                return
            if since is not None:
                show_done(console, done(since, connection=options["connection"], queues=only))
                return
            show_queues(console, queues.stats(connection=options["connection"], queues=only))
        for sentence in queues.slowdowns(connection=options["connection"]):
            self.stderr.write(printable(sentence))


def show_queues(console: Console, found: list[QueueStats]) -> None:
    if console.is_json:
        for one in found:
            console.record(**dict(zip(COLUMNS, _values(one), strict=True)))
    elif not console.is_terminal:
        console.write("\t".join(COLUMNS))
        for one in found:
            console.write("\t".join("" if value is None else printable(str(value)) for value in _values(one)))
    elif found:
        console.table([title.upper() for title in COLUMNS], [_row(one) for one in found])
    else:
        console.write("No jobs.")


def _values(one: QueueStats) -> tuple[str | int | float | None, ...]:
    size = one.size
    oldest = None if size.oldest is None else round(size.oldest, 3)
    return one.queue, one.connection, size.ready, oldest, size.scheduled, size.reserved, size.failed


def _row(one: QueueStats) -> list[str]:
    queue, connection, ready, oldest, *others = _values(one)
    waits = "-" if oldest is None else duration(float(oldest))
    return [
        printable(str(queue)),
        printable(str(connection)),
        f"{ready:,}",
        waits,
        *(f"{number:,}" for number in others),
    ]


def show_done(console: Console, found: list[Counted]) -> None:
    if console.is_json:
        for one in found:
            console.record(**_done_facts(one))
    elif not console.is_terminal:
        console.write("\t".join(DONE_COLUMNS))
        for one in found:
            console.write("\t".join(map(_cell, _done_facts(one).values())))
    elif found:
        titles = [title.upper() for title in (*DONE_COLUMNS[:7], "ran", "longest", "waited", "longest")]
        console.table(titles, [_done_row(one) for one in found])
        console.say(f"Since {min(one.since for one in found):%Y-%m-%d %H:%M} UTC.")
    else:
        console.write("Nothing was done.")


def _done_facts(one: Counted) -> dict[str, Any]:
    count = one.count
    outcomes = (count.processed, count.released, count.failed, count.lost)
    facts = (one.queue, one.name, one.connection, *outcomes, *_times(one), iso(one.since))
    return dict(zip(DONE_COLUMNS, facts, strict=True))


def _times(one: Counted) -> list[float]:
    count = one.count
    return [round(time, 6) for time in (count.elapsed_mean, count.elapsed_max, count.waited_mean, count.waited_max)]


def _done_row(one: Counted) -> list[str]:
    count = one.count
    return [
        printable(one.queue),
        printable(one.name),
        printable(one.connection),
        *(f"{number:,}" for number in (count.processed, count.released, count.failed, count.lost)),
        *map(duration, _times(one)),
    ]


def show_workers(console: Console, found: list[WorkerRecord]) -> None:
    if console.is_json:
        for one in found:
            console.record(**_worker_facts(one))
    elif not console.is_terminal:
        console.write("\t".join((*WORKER_COLUMNS, *MORE_WORKER_COLUMNS)))
        for one in found:
            console.write("\t".join(map(_cell, _worker_facts(one).values())))
    elif found:
        first, others = WORKER_COLUMNS[:3], WORKER_COLUMNS[3:]
        titles = [title.upper() for title in (*first, "heard", *others, "memory", "version")]
        console.table(titles, [_worker_row(one) for one in found])
    else:
        console.write("No workers.")


def _worker_facts(one: WorkerRecord) -> dict[str, Any]:
    facts = {column: getattr(one, column) for column in (*WORKER_COLUMNS, *MORE_WORKER_COLUMNS)}
    moments = {column: iso(facts[column]) for column in ("started_at", "heartbeat_at")}
    return {**facts, **moments, "id": str(one.id), "queues": list(one.queues)}


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(printable, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else printable(str(value))


def _worker_row(one: WorkerRecord) -> list[str]:
    counts = (one.workers, one.processed, one.released, one.failed, one.lost)
    return [
        printable(one.name),
        str(one.pid),
        one.state,
        f"{duration(round(one.silence))} ago",
        printable(",".join(one.queues)),
        *(f"{number:,}" for number in counts),
        "-" if one.memory is None else f"{one.memory // MEGABYTE:,} MB",
        printable(one.version),
    ]
