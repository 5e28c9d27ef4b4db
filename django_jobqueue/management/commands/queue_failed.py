"""``queue_failed``: the dead letters, the newest first."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ...conf import get_settings
from ...jobs.definition import check_count
from ...jobs.errors import printable
from ...jobs.records import FailedSummary
from ...operations import failed_jobs
from .. import console as text
from ..console import Console

COLUMNS = ("failed_at", "job", "number", "id", "queue", "attempts", "error")


class Command(BaseCommand):
    help = "List the jobs that failed for good, the newest first."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--queue", "-q", metavar="NAME", help="only of this queue")
        text.add_connection(parser)
        parser.add_argument("--limit", type=int, default=50, metavar="N", help="at most so many (default: 50)")
        text.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(self, options)
        with text.plain_errors():
            limit = check_count("--limit", options["limit"])
            scope = {"connection": options["connection"], "queue": text.one_queue(options["queue"])}
        text.check_store(options["connection"], rows_only=True)
        with text.plain_errors():
            letters = failed_jobs.newest(limit=limit, **scope)
            total = failed_jobs.count(**scope) if console.is_terminal else 0
        if console.is_json:
            for letter in letters:
                console.record(**_facts(letter))
        elif console.is_terminal:
            _show(console, letters, total)
        else:
            console.write("\t".join(COLUMNS))
            for letter in letters:
                console.write("\t".join(_row(letter, text.iso(letter.failed_at), str(letter.id))))


def _show(console: Console, letters: list[FailedSummary], total: int) -> None:
    if not letters:
        console.write("No failed jobs.")
        return
    titles = ("FAILED", "JOB", "NUMBER", "ID", "QUEUE", "ATTEMPTS", "ERROR")
    rows = [_row(letter, text.ago(letter.failed_at), str(letter.id)[-failed_jobs.SHOWN_ENDING :]) for letter in letters]
    console.table(titles, rows)
    shown = text.counted(total, "failed job")
    if total > len(letters):
        shown += f", {len(letters):,} shown"
    console.write(f"{shown}.  Retry: manage.py queue_retry {letters[0].number}")


def _row(letter: FailedSummary, failed_at: str, job_id: str) -> list[str]:
    error = f"{text.last_name(letter.exception_class)}: {printable(letter.exception_message)}".removesuffix(": ")
    return [
        failed_at,
        printable(letter.name),
        str(letter.number),
        job_id,
        printable(letter.queue),
        # None at dispatch means what the worker is told, by the setting unless by an option.
        f"{letter.attempts}/{letter.max_attempts or get_settings().max_attempts}",
        error,
    ]


def _facts(letter: FailedSummary) -> dict[str, Any]:
    return {
        "number": letter.number,
        "id": letter.id,
        "job": letter.name,
        "queue": letter.queue,
        "connection": letter.connection,
        "attempts": letter.attempts,
        "max_attempts": letter.max_attempts,
        "exception_class": letter.exception_class,
        "exception_message": letter.exception_message,
        "retries": letter.retries,
        "failed_at": text.iso(letter.failed_at),
    }
