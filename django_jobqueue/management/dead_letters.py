"""``queue_retry`` and ``queue_forget``: what they act on, what they ask, what they say, how they end."""

from __future__ import annotations

import sys
from abc import abstractmethod
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError

from ..exceptions import InvalidOption
from ..jobs.errors import printable
from ..jobs.records import FailedSummary
from ..operations import failed_jobs
from ..operations.failed_jobs import Result, unknown_job
from .console import USAGE_ERROR, Console, add_connection, add_json, check_store, counted, one_queue, plain_errors

ALL = "all"
MANY = 1_000  # more are confirmed by a person, where there is one
SHOWN = 20  # on a terminal a line each for so many, then only the sum
PARTLY_DONE = 3


class DeadLetterCommand(BaseCommand):
    """A command that does one thing to dead letters, given by reference, or all."""

    # What is done does not need the project to be in order, least of all its job modules.
    requires_system_checks = []
    verb: ClassVar[str]
    done: ClassVar[failed_jobs.Status]
    #: Whether nothing of it concerns a store that is no database.
    needs_rows_only: ClassVar[bool] = False

    @abstractmethod
    def act(self, letters: list[FailedSummary]) -> list[Result]:
        """The operation."""

    def prepare(self) -> None:
        """What comes before everything else."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "references",
            nargs="+",
            metavar="ID",
            help="the number of a failed job, its UUID, or a unique ending of that; or: all",
        )
        add_connection(parser)
        parser.add_argument("--queue", "-q", metavar="NAME", help="with all: only of this queue")
        parser.add_argument("--no-input", "--noinput", action="store_false", dest="interactive", help="ask nothing")
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(self, options)
        references, connection = options["references"], options["connection"]
        with plain_errors():
            queue = one_queue(options["queue"])
        takes_all = ALL in references
        if takes_all and len(references) > 1:
            raise CommandError("all stands alone: it names every failed job already.", returncode=USAGE_ERROR)
        if queue is not None and not takes_all:
            raise CommandError("--queue goes with all: an ID names one job already.", returncode=USAGE_ERROR)
        check_store(connection, rows_only=self.needs_rows_only)
        self.prepare()
        outcome = Outcome(console, self.done)
        with plain_errors():
            if takes_all:
                self.confirm(console, options["interactive"], connection, queue)
                for page in failed_jobs.every(connection=connection, queue=queue):
                    outcome.add(self.act(page))
            else:
                outcome.add(self.act(list(_found(references, connection, outcome))))
        outcome.conclude(is_all=takes_all)

    def confirm(self, console: Console, interactive: bool, connection: str | None, queue: str | None) -> None:
        if not (interactive and console.asks and sys.stdin.isatty()):
            return
        number = failed_jobs.count(connection=connection, queue=queue)
        if number > MANY and input(f"{self.verb} {counted(number, 'failed job')}? [y/N] ").strip().lower() != "y":
            raise CommandError("Nothing was done.")


class Outcome:
    """What became of all that were named; of many only sums are kept."""

    def __init__(self, console: Console, done: failed_jobs.Status) -> None:
        self._console = console
        self._done = done
        self._statuses: Counter[failed_jobs.Status] = Counter()
        self._unknown_names: Counter[str] = Counter()
        self._refused = 0

    def refuse(self, message: str) -> None:
        """Say that a reference names no dead letter."""
        self._refused += 1
        self._console.say(message)

    def add(self, results: list[Result]) -> None:
        for result in results:
            letter = result.letter
            shown = sum(self._statuses.values()) < SHOWN
            self._statuses[result.status] += 1
            if not self._console.is_terminal:
                status = result.status.replace(" ", "_")
                self._console.record(
                    id=str(letter.id), number=letter.number, job=letter.name, queue=letter.queue, status=status
                )
            elif result.status == self._done and shown:
                self._console.write(f"  {letter.number:>6}  {printable(letter.name)}  {letter.id}")
            if result.status == "unknown job":
                self._unknown_names[letter.name] += 1
                if shown:
                    self._console.say(printable(unknown_job(letter)))
            elif result.status == "gone" and shown:
                self._console.say(f"The failed job {letter.number} is gone: already retried, or forgotten.")

    def conclude(self, *, is_all: bool) -> None:
        """Print the sum, or raise CommandError with it unless everything was done."""
        total = sum(self._statuses.values())
        done = self._statuses[self._done]
        if is_all and not total:
            self._console.say("No failed jobs.")
            return
        if total > SHOWN:
            for name, number in self._unknown_names.items():
                self._console.say(f"No handler has the name {printable(name)!r}: {counted(number, 'failed job')} stay.")
        summary = f"{counted(done, 'failed job')} {self._done}"
        undone = total - done + self._refused
        if undone:
            summary = f"{summary}, {undone:,} not" if done else f"Nothing was {self._done}"
            raise CommandError(f"{summary}.", returncode=PARTLY_DONE if done else 1)
        if self._console.is_terminal:
            self._console.write(f"{summary}.")


def _found(references: list[str], connection: str | None, outcome: Outcome) -> Iterator[FailedSummary]:
    """The dead letters that were named, each once; the other references are refused."""
    seen = set()
    for reference in references:
        try:
            letter = failed_jobs.find(reference, connection=connection)
        except InvalidOption as error:
            outcome.refuse(printable(str(error)))
            continue
        if letter is None:
            outcome.refuse(f"There is no failed job {printable(reference)}.")
        elif (letter.connection, letter.number) not in seen:
            seen.add((letter.connection, letter.number))
            yield letter
