"""Try to make the queue lose, repeat or hold up jobs, and prove from a history of its own that it did not."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from django.core.management.base import BaseCommand, CommandError

from django_jobqueue.drivers import connections
from django_jobqueue.exceptions import JobQueueError

from ...redis_connection import with_redis
from ...servers import ServerFailed
from ...soaking import report
from ...soaking.disturbing import DISTURBANCES
from ...soaking.history import FOLDER_VARIABLE
from ...soaking.session import Plan, Session
from ...soaking.stores import OwnDatabase, Unsupported, own_database

MOST_MINUTES = 24 * 60
SHORTEST_RETRY_AFTER = 2.0


class Command(BaseCommand):
    help = (
        "Let producers and workers run while workers are killed and stopped, connections are cut and the server is "
        "restarted; then prove from a history that is kept apart that no job was lost, stuck, doubled or run in vain, "
        "that chains kept their order, and that batches ended and called back once. Jobs are of every kind: quick, "
        "delayed, slow, longer than a reservation, failing once or always, allowed one start only, atomic; "
        "dispatched alone, in bulk, in transactions that commit or roll back, in chains and in batches. "
        "Fails on any violation. It works in a database of its own, beside the configured one, and restarts only a "
        "server that it has started itself."
    )
    requires_system_checks = []  # the configured database need not exist, only its server

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--store", default="default", metavar="CONNECTION", help="an entry of CONNECTIONS, or redis"
        )
        parser.add_argument("--minutes", type=_minutes, default=1.0, metavar="M", help="for so long (default: 1)")
        parser.add_argument(
            "--kill",
            type=_kinds,
            metavar="KIND[,KIND]",
            help=f"some of {', '.join(DISTURBANCES)}; server starts one of soak's own (default: all but server)",
        )
        parser.add_argument("--workers", type=_count, default=4, metavar="P", help="worker processes (default: 4)")
        parser.add_argument("--rate", type=_count, default=300, metavar="N", help="jobs a second (default: 300)")
        parser.add_argument(
            "--retry-after", type=_seconds, default=3.0, metavar="S", help="length of a reservation (default: 3)"
        )
        parser.add_argument("--seed", type=int, metavar="N", help="of the disturbances; runs are not repeated by it")
        parser.add_argument("--json", metavar="FILE", help="write the figures there too; - is stdout, and nothing else")
        parser.add_argument("--keep", metavar="FOLDER", help="keep history and logs there, in a new folder")

    def handle(self, *args: Any, **options: Any) -> None:
        with _ending_well(), with_redis(options["store"]), _folder(options["keep"]) as folder:
            try:
                found = self.soak(options, folder)
            except (JobQueueError, Unsupported, ServerFailed) as error:
                raise CommandError(str(error)) from None
        self.show(found, options["json"])
        if not found["verified"]:
            raise CommandError("Not every promise was kept.")

    def soak(self, options: dict[str, Any], folder: Path) -> dict[str, Any]:
        database = self.database(options, folder)
        kill = options["kill"]
        if kill is None:
            kill = set(DISTURBANCES) - {"server"} - (set() if database.has_connections else {"connection"})
        plan = Plan(
            seconds=options["minutes"] * 60,
            kill=kill,
            workers=options["workers"],
            rate=options["rate"],
            retry_after=options["retry_after"],
            seed=secrets.randbelow(1_000_000) if options["seed"] is None else options["seed"],
        )
        with mock.patch.dict(os.environ, {FOLDER_VARIABLE: str(folder / "history")}):
            return report.document(Session(database, folder, plan, self.say).run())

    def database(self, options: dict[str, Any], folder: Path) -> OwnDatabase:
        kill = options["kill"] or set()
        database = own_database(connections[options["store"]], folder, own_server="server" in kill)
        if "connection" in kill and not database.has_connections:
            raise Unsupported("SQLite has no connections that could be cut")
        return database

    def show(self, found: dict[str, Any], target: str | None) -> None:
        text = json.dumps(found, indent=2)
        if target == "-":
            self.stdout.write(text)
            return
        for line in report.lines(found):
            self.stdout.write(line)
        if target:
            Path(target).write_text(text + "\n", encoding="utf-8")

    def say(self, line: str) -> None:
        """Progress, apart from what is the result."""
        self.stderr.write(line, style_func=str)
        self.stderr.flush()


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        Path(keep).mkdir(parents=True)
        yield Path(keep).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="jobqueue-soak-") as folder:
        yield Path(folder)


@contextmanager
def _ending_well() -> Iterator[None]:
    """Asked to end, the soak first ends what it has started."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _kinds(text: str) -> set[str]:
    names = {name.strip() for name in text.split(",") if name.strip()}
    unknown = sorted(names - set(DISTURBANCES))
    if unknown:
        raise ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(DISTURBANCES)}")
    return names


def _minutes(text: str) -> float:
    return _number(text, 0.01, MOST_MINUTES)


def _seconds(text: str) -> float:
    return _number(text, SHORTEST_RETRY_AFTER, 3600)


def _count(text: str) -> int:
    return int(_number(text, 1, 100_000))


def _number(text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ArgumentTypeError(f"{text!r} is no number from {least:g} to {most:g}")
    return value
