"""``queue_work``: parse, refuse what cannot work, run a pool of worker loops, print."""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections as databases
from django.utils.autoreload import get_child_arguments

from ...dispatching.discovery import load_handlers
from ...drivers import Driver, ledgers_of
from ...running.children import answering_supervisor
from ...running.notes import Notes
from ...running.options import EVERY_QUEUE, WorkerOptions
from ...running.pool import Pool
from ...running.restarting import Restart
from ...running.stopping import Stopping, obeying_signals
from ...running.supervisor import MEMORY_REACHED, Supervisor
from ...running.worker import shared_drivers_of
from .. import worker_lines
from ..console import (
    Console,
    add_json,
    check_settings,
    count,
    name_list,
    pauses,
    plain_errors,
    queue_list,
    span,
    usable,
)

LISTS = (
    ("--queue -q", "serve these queues, the first before the second; * is every queue, in turn (default)"),
    ("--connection", "serve these connections (default: all)"),
)
VALUES = (
    ("--workers -w", "N", "run N jobs at once, each in a thread of one process (default: 1)"),
    (
        "--processes -p",
        "N",
        "run N such processes under a supervisor, which replaces those that end; for code that computes, hangs or may "
        "crash: a job that kills its process can cost the jobs beside it in the same process an attempt, and no others",
    ),
    ("--max-jobs", "N", "stop after N attempts of the whole process; with --processes, replace it"),
    ("--max-time", "S", "stop after S seconds; with --processes, replace the process"),
    ("--memory", "MB", "stop, with exit code 12, after a job that leaves more resident; with --processes, replace it"),
    ("--sleep", "S", "look for jobs every S seconds when idle (default: POLL_INTERVAL)"),
    ("--grace", "S", "after a signal, wait S seconds for running jobs; 0: for ever (default: 30)"),
    ("--max-attempts --tries", "N", "for jobs that set none (default: MAX_ATTEMPTS)"),
    ("--backoff", "S[,S]", "seconds before each further attempt, for jobs that set none (default: BACKOFF)"),
)
BROKEN_PIPE = "broken pipe"


class Command(BaseCommand):
    help = (
        "Run jobs until told to stop. SIGINT (Ctrl-C), SIGTERM and SIGHUP: take no more jobs, finish the running "
        "ones within --grace, exit 0. A second one, or SIGQUIT: give running jobs back, exit at once with 128 + the "
        "signal's number. Other exit codes: 1 it could not start, 2 usage error, 12 it reached --memory."
    )
    # Made by this command itself, once it is known that job modules and databases are there.
    requires_system_checks = []
    owns_process = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        for flags, text in LISTS:
            parser.add_argument(*flags.split(), action="append", metavar="NAME[,NAME]", help=text)
        parser.add_argument("--once", action="store_true", help="make one attempt at a job, if there is one, and stop")
        parser.add_argument("--stop-when-empty", action="store_true", help="stop when nothing is due")
        for flags, metavar, text in VALUES:
            parser.add_argument(*flags.split(), metavar=metavar, help=text)
        add_json(parser)
        parser.add_argument("--supervised", metavar="PATH", help=SUPPRESS)  # added by the supervisor, to its processes
        parser.add_argument("--skip-checks", action="store_true", help="make no system checks")

    def run_from_argv(self, argv: list[str]) -> None:
        self.owns_process = True
        super().run_from_argv(argv)

    def handle(self, *args: Any, **given: Any) -> None:
        check_settings()
        with plain_errors():
            options = worker_options(given)
            drivers = shared_drivers_of(options)
            processes = count("--processes", given["processes"])
        load_handlers()  # an error inside a jobs.py shows its traceback, and nothing was reserved yet
        usable(drivers, for_workers=True)
        if not given["skip_checks"]:
            self.check(databases=[driver.database for driver in drivers if driver.database is not None])
        stopping = Stopping()
        console = Console(self, given, on_broken_pipe=lambda: stopping.ask(BROKEN_PIPE))
        if given["supervised"]:
            code = self.serve(Path(given["supervised"]), console, options, drivers, stopping, given["verbosity"])
        elif processes and not given["once"]:
            code = self.supervise(processes, console, options, drivers, stopping, given["verbosity"])
        else:
            code = self.work(console, options, drivers, stopping, given["verbosity"])
        if code:
            raise SystemExit(code)

    def work(
        self, console: Console, options: WorkerOptions, drivers: list[Driver], stopping: Stopping, verbosity: int
    ) -> int:
        """Run the jobs in this process."""
        session = worker_lines.Session(console, options, drivers, verbosity)

        def abandon(code: int) -> None:
            self.abandon(lambda: session.end(pool.stats), code)

        restart = Restart(ledgers_of(drivers))
        pool = Pool(options, drivers=drivers, stopping=stopping, abandon=abandon, restart=restart)
        with obeying_signals(stopping, until_exit=self.owns_process), session.shown(stopping):
            session.end(pool.run())
        return MEMORY_REACHED if "memory" in pool.reasons else 0

    def serve(
        self,
        notes_path: Path,
        console: Console,
        options: WorkerOptions,
        drivers: list[Driver],
        stopping: Stopping,
        verbosity: int,
    ) -> int:
        """Run the jobs in this process, for a supervisor: it prints the beginning and the end."""
        if Notes.are_outdated(notes_path):
            return 0
        notes = Notes(notes_path, options.workers)

        def report() -> None:
            notes.report(pool.stats, is_over=pool.reasons <= {"empty", BROKEN_PIPE})

        pool = Pool(
            options,
            drivers=drivers,
            stopping=stopping,
            abandon=lambda code: self.abandon(report, code),
            notes=notes,
            restart=Restart(ledgers_of(drivers)),
        )
        with (
            answering_supervisor(notes_path, stopping),
            obeying_signals(stopping, until_exit=self.owns_process),
            worker_lines.log_lines(console, verbosity),
        ):
            notes.say_ready()
            pool.run()
            report()
        return MEMORY_REACHED if "memory" in pool.reasons else 0

    def supervise(
        self,
        processes: int,
        console: Console,
        options: WorkerOptions,
        drivers: list[Driver],
        stopping: Stopping,
        verbosity: int,
    ) -> int:
        if not self.owns_process:
            raise CommandError("--processes works on the command line only: the processes are started from it.")
        databases.close_all()  # nothing here needs one for now
        session = worker_lines.Session(console, options, drivers, verbosity, processes=processes)
        supervisor = Supervisor(
            options,
            drivers,
            processes=processes,
            command=[*get_child_arguments(), "--supervised"],
            stopping=stopping,
        )
        with obeying_signals(stopping, until_exit=True), session.shown(stopping):
            code = supervisor.run()
            session.end(supervisor.stats)
        return code

    def abandon(self, say_so: Callable[[], None], code: int) -> None:
        """End the process under handlers that do not end; a process that is somebody else's waits for them."""
        if self.owns_process:
            say_so()
            worker_lines.flush_all()
            os._exit(code)


def worker_options(given: dict[str, Any]) -> WorkerOptions:
    """The options of the command line, or of call_command; raises InvalidOption."""
    once = given["once"]
    workers, max_jobs = count("--workers", given["workers"]), count("--max-jobs", given["max_jobs"], zero_is_none=True)
    return WorkerOptions.from_settings(
        queues=tuple(queue_list(given["queue"])) or (EVERY_QUEUE,),
        connections=tuple(name_list(given["connection"])) or None,
        workers=1 if once else workers,
        max_jobs=1 if once else max_jobs,
        max_time=span("--max-time", given["max_time"]) or None,
        memory=count("--memory", given["memory"], zero_is_none=True),
        stop_when_empty=once or given["stop_when_empty"],
        sleep=span("--sleep", given["sleep"], is_positive=True),
        grace=span("--grace", given["grace"]),
        max_attempts=count("--max-attempts", given["max_attempts"]),
        backoff=pauses("--backoff", given["backoff"]),
    )
