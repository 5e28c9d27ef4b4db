"""``queue_stats``: how much waits, runs and failed, queue by queue."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ...jobs.errors import printable
from ...operations import queues
from ...operations.queues import QueueStats
from ..console import EVERY_QUEUE, Console, add_connection, add_json, check_store, duration, plain_errors, queue_list

COLUMNS = ("queue", "connection", "ready", "oldest", "scheduled", "reserved", "failed")


class Command(BaseCommand):
    help = "Show how many jobs of each queue are ready, scheduled, reserved and failed, and how long the oldest waits."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--queue", "-q", action="append", metavar="NAME[,NAME]", help="only these queues")
        add_connection(parser)
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(self, options)
        with plain_errors():
            names = queue_list(options["queue"])
        check_store(options["connection"])
        with plain_errors():
            found = queues.stats(
                connection=options["connection"], queues=None if not names or EVERY_QUEUE in names else names
            )
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
        for sentence in queues.slowdowns(connection=options["connection"]):
            self.stderr.write(printable(sentence))


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
