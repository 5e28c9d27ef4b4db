"""``queue_move``: drain a queue from one connection into another."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ...conf import get_settings
from ...jobs.errors import printable
from ...jobs.names import check_queue
from ...operations import moving
from ..console import Console, add_json, check_store, plain_errors


class Command(BaseCommand):
    help = (
        "Move the waiting jobs of a queue from one connection to another. Killed half-way and run again, it loses "
        "none; stop the workers of the queue first, or a job may run twice. Their attempts are counted anew."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("queue", help="the name of the queue")
        parser.add_argument("--from", dest="source", required=True, metavar="CONNECTION", help="where the jobs are")
        parser.add_argument("--to", dest="target", required=True, metavar="CONNECTION", help="where they are to be")
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(self, options)
        source, target = options["source"], options["target"]
        check_store(source)
        check_store(target)
        with plain_errors():
            queue = check_queue(options["queue"])
            result = moving.move(queue, source=source, target=target)
        if console.is_json:
            console.record(queue=queue, source=source, target=target, moved=result.moved, reserved=result.reserved)
        else:
            jobs = "1 job" if result.moved == 1 else f"{result.moved} jobs"
            console.write(printable(f"Moved {jobs} of the queue {queue!r} from {source!r} to {target!r}."))
        if result.reserved:
            self.stderr.write(f"Workers still run {result.reserved} at the old place; run this again when they ended.")
        if get_settings().connection_of(queue) != target:
            self.stderr.write(
                printable(
                    f'New jobs do not go there yet: set JOBQUEUE["QUEUES"][{queue!r}]["CONNECTION"] to {target!r}.'
                )
            )
