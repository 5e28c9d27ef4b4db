"""``queue_restart``: ask all worker processes to finish their jobs and start afresh."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from ...jobs.workers import WorkerRecord
from ...operations import workers
from ..console import Console, add_connection, add_json, check_store, counted, plain_errors, span

PARTLY_DONE = 3
LOOK_INTERVAL = 0.5


class Command(BaseCommand):
    help = (
        "Ask every worker process to finish the jobs that it runs, take no more, and end. What keeps it running "
        "(a supervisor of queue_work --processes, systemd, Docker) starts another, with new code."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--wait", metavar="S", help="wait at most S seconds for their end; exit with 3 when some have not ended"
        )
        add_connection(parser)
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(self, options)
        with plain_errors():
            patience = span("--wait", options["wait"])
        check_store(options["connection"], rows_only=True)
        with plain_errors():
            asked = workers.restart(connection=options["connection"])
            others = [worker for worker in asked if worker.is_embedded]
            waited_for = {worker.id for worker in asked if not worker.is_embedded}
            _say_asked(console, len(waited_for), others)
            if patience is not None:
                self.wait(console, waited_for, patience, options["connection"])

    def wait(self, console: Console, waited_for: set[UUID], patience: float, connection: str | None) -> None:
        ends = time.monotonic() + patience
        left = len(waited_for)
        while remaining := workers.still_working(waited_for, connection=connection):
            if len(remaining) != left or left == len(waited_for):
                left = len(remaining)
                console.say(f"waiting for {left} of {_processes(len(waited_for))}")
            if time.monotonic() >= ends:
                raise CommandError(f"{_processes(left)} did not end in {patience:g} s.", returncode=PARTLY_DONE)
            time.sleep(min(LOOK_INTERVAL, max(0.0, ends - time.monotonic())))
        if console.is_terminal:
            console.write("All have ended.")
        else:
            console.record(status="ended", workers=len(waited_for))


def _say_asked(console: Console, number: int, others: list[WorkerRecord]) -> None:
    if console.is_terminal:
        console.write(f"Asked {_processes(number)} to start afresh.")
    else:
        console.record(status="asked", workers=number)
    if others:
        console.say(f"{counted(len(others), 'web server')} with workers inside must be restarted by other means.")


def _processes(number: int) -> str:
    return "1 worker process" if number == 1 else f"{number:,} worker processes"
