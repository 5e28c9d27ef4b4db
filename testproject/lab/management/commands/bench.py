"""Measure the queue on this machine, side by side with the raw limits of its store."""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.test.utils import override_settings

from django_jobqueue.dispatching.discovery import load_handlers
from django_jobqueue.exceptions import JobQueueError

from ...benchmark import profiling, report
from ...benchmark.measurements import NAMES, Outcome, measurements, picked, run_all
from ...benchmark.session import Session
from ...benchmark.stores import Unsupported
from ...redis_connection import with_redis

# Enough for what only many jobs show, and still seconds.
MANY = 5


class Command(BaseCommand):
    help = (
        "Measure the queue on this machine, side by side with the raw limits of its store; fails unless every job ran "
        "exactly once. It uses queues of its own, removes what it made, and is meant for a database in which nothing "
        "else happens: one bench at a time."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--store", default="default", metavar="CONNECTION", help="an entry of CONNECTIONS, or redis"
        )
        parser.add_argument("--jobs", type=_count, default=20_000, help="jobs of a measurement (default: 20000)")
        parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=f"some of {', '.join(NAMES)}")
        parser.add_argument(
            "--json", metavar="FILE", help="write the figures there too; - is stdout, without the table"
        )
        parser.add_argument(
            "--profile",
            action="store_true",
            help="say where the time of one job goes; alone, unless --only names measurements",
        )
        parser.add_argument("--repeat", type=_count, default=1, help="measure so often, and take medians (default: 1)")
        parser.add_argument(
            "--reader-jobs", type=_count, help=f"jobs under a long reader (default: {MANY} times --jobs)"
        )
        parser.add_argument(
            "--memory-jobs", type=_count, help=f"jobs of the memory's growth (default: {MANY} times --jobs)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        machine = report.host()
        load_handlers()
        # Under DEBUG Django keeps every query.
        with override_settings(DEBUG=False), with_redis(options["store"]), tempfile.TemporaryDirectory() as folder:
            session = self.open(options, Path(folder))
            try:
                found = self.measure(session, machine, options)
            finally:
                session.store.clean()
        self.show(found, options["json"])
        if not found["verified"]:
            raise CommandError("Not every job is known to have run exactly once.")

    def open(self, options: dict[str, Any], folder: Path) -> Session:
        """A session on an empty ground; raises CommandError where there is none."""
        try:
            session = Session(options["store"], options["jobs"], folder, self.say)
        except (JobQueueError, Unsupported) as error:
            raise CommandError(str(error)) from None
        if options["profile"] and not session.driver.supports_transactions:
            raise CommandError("--profile follows the statements of a database, and this connection makes none.")
        problems = session.driver.problems()
        if problems:
            raise CommandError(" ".join(problems))
        foreign = session.store.foreign()
        if foreign:
            raise CommandError(
                f"{foreign} jobs in the queues of bench are not its own; choose another database, or remove them."
            )
        session.store.clean()
        return session

    def measure(self, session: Session, machine: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        reader_jobs = options["reader_jobs"] or MANY * options["jobs"]
        memory_jobs = options["memory_jobs"] or MANY * options["jobs"]
        chosen = picked(measurements(reader_jobs=reader_jobs, memory_jobs=memory_jobs), options["only"])
        if options["profile"] and not options["only"]:
            chosen = {}
        outcome = run_all(session, chosen, options["repeat"]) if chosen else Outcome(results=[], skipped=[])
        profile = profiling.profile(session) if options["profile"] else None
        told = {
            "jobs": options["jobs"],
            "repeat": options["repeat"],
            "reader_jobs": reader_jobs,
            "memory_jobs": memory_jobs,
            "measurements": list(chosen),
        }
        return report.document(session, outcome, profile, machine, told)

    def show(self, found: dict[str, Any], target: str | None) -> None:
        text = json.dumps(found, indent=2)
        if target == "-":
            self.stdout.write(text)
            return
        self.stdout.write(report.table(found))
        if target:
            Path(target).write_text(text + "\n", encoding="utf-8")

    def say(self, line: str) -> None:
        """Progress, apart from what is the result."""
        self.stderr.write(line, style_func=str)
        self.stderr.flush()


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise ArgumentTypeError(f"{text!r} is no number of at least 1")
    return value
