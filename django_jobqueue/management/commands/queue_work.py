"""``queue_work``: parse, refuse what cannot work, run a pool of worker loops, print."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ...dispatching.discovery import load_handlers
from ...running.options import EVERY_QUEUE, WorkerOptions
from ...running.pool import Pool
from ...running.stopping import Stopping, obeying_signals
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
    ("--workers -w", "N", "run N jobs at once, each in a thread (default: 1)"),
    ("--max-jobs", "N", "stop after N attempts of the whole process"),
    ("--max-time", "S", "stop after S seconds"),
    ("--sleep", "S", "look for jobs every S seconds when idle (default: POLL_INTERVAL)"),
    ("--grace", "S", "after a signal, wait S seconds for running jobs; 0: for ever (default: 30)"),
    ("--max-attempts --tries", "N", "for jobs that set none (default: MAX_ATTEMPTS)"),
    ("--backoff", "S[,S]", "seconds before each further attempt, for jobs that set none (default: BACKOFF)"),
)


class Command(BaseCommand):
    help = (
        "Run jobs until told to stop. SIGINT (Ctrl-C), SIGTERM and SIGHUP: take no more jobs, finish the running "
        "ones within --grace, exit 0. A second one, or SIGQUIT: give running jobs back, exit at once with 128 + the "
        "signal's number. Other exit codes: 1 it could not start, 2 usage error."
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
        parser.add_argument("--skip-checks", action="store_true", help="make no system checks")

    def run_from_argv(self, argv: list[str]) -> None:
        self.owns_process = True
        super().run_from_argv(argv)

    def handle(self, *args: Any, **given: Any) -> None:
        check_settings()
        with plain_errors():
            options = worker_options(given)
            drivers = shared_drivers_of(options)
        load_handlers()  # an error inside a jobs.py shows its traceback, and nothing was reserved yet
        usable(drivers, for_workers=True)
        if not given["skip_checks"]:
            self.check(databases=[driver.database for driver in drivers if driver.database is not None])
        stopping = Stopping()
        console = Console(self, given, on_broken_pipe=lambda: stopping.ask("broken pipe"))
        session = worker_lines.Session(console, options, drivers, given["verbosity"])
        pool = Pool(options, drivers=drivers, stopping=stopping, abandon=lambda code: self.abandon(pool, session, code))
        with obeying_signals(stopping, until_exit=self.owns_process), session.shown(stopping):
            session.end(pool.run())

    def abandon(self, pool: Pool, session: worker_lines.Session, code: int) -> None:
        """End the process under handlers that do not end; a process that is somebody else's waits for them."""
        if self.owns_process:
            session.end(pool.stats)
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
        stop_when_empty=once or given["stop_when_empty"],
        sleep=span("--sleep", given["sleep"], is_positive=True),
        grace=span("--grace", given["grace"]),
        max_attempts=count("--max-attempts", given["max_attempts"]),
        backoff=pauses("--backoff", given["backoff"]),
    )
