"""``queue_work``: parse, refuse what cannot work, run a pool of worker loops, print."""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections as databases
from django.utils.autoreload import get_child_arguments

from ...dispatching.discovery import load_handlers
from ...drivers import Driver, ledgers_of
from ...exceptions import InvalidOption
from ...jobs.names import check_name
from ...jobs.workers import MAX_WORKER_NAME
from ...running.children import answering_supervisor
from ...running.health import HealthFile
from ...running.notes import Notes
from ...running.options import EVERY_QUEUE, WorkerOptions
from ...running.pool import Pool
from ...running.reloading import watch_files
from ...running.restarting import Restart
from ...running.stopping import Stopping, obeying_signals
from ...running.supervisor import MEMORY_REACHED, Supervisor
from ...running.timeouts import are_limited, unreached
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
    ("--name", "NAME", "stands for the host's name in lists and logs"),
    (
        "--health-file",
        "PATH",
        "touch this file every 10 seconds while the workers do their work and the store answers",
    ),
)
# With these the command comes to an end by itself.
ENDING = ("once", "stop_when_empty", "max_jobs", "max_time", "memory")
BROKEN_PIPE = "broken pipe"


class _Run(NamedTuple):
    """What every mode needs."""

    console: Console
    options: WorkerOptions
    drivers: list[Driver]
    stopping: Stopping
    verbosity: int
    health: HealthFile


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
        parser.add_argument(
            "--reload",
            action="store_true",
            help="start afresh when the code changes (default with DEBUG, on a terminal)",
        )
        parser.add_argument("--noreload", "--no-reload", action="store_true", help="do not")
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
            health = HealthFile(health_path(given["health_file"]))
            reloads = self.reloads(given, options)
        load_handlers()  # an error inside a jobs.py shows its traceback, and nothing was reserved yet
        usable(drivers, for_workers=True)
        if not given["skip_checks"]:
            self.check(databases=[driver.database for driver in drivers if driver.database is not None])
        stopping = Stopping()
        console = Console(self, given, on_broken_pipe=lambda: stopping.ask(BROKEN_PIPE))
        run = _Run(console, options, drivers, stopping, given["verbosity"], health)
        if given["supervised"]:
            code = self.serve(run, Path(given["supervised"]), reloads=reloads)
        elif (processes or reloads) and not given["once"]:
            code = self.supervise(run, processes or 1, reloads=reloads)
        else:
            code = self.work(run)
        if code:
            raise SystemExit(code)

    def reloads(self, given: dict[str, Any], options: WorkerOptions) -> bool:
        """Whether to start afresh when the code changes; raises InvalidOption where that contradicts another flag."""
        ending = [f"--{name.replace('_', '-')}" for name in ENDING if getattr(options, name, given.get(name))]
        if given["reload"] and given["noreload"]:
            raise InvalidOption("--reload and --noreload contradict each other: give one.")
        if given["reload"] and ending:
            raise InvalidOption(f"--reload goes on until it is told to stop, and {ending[0]} does not: give one.")
        if given["reload"] or given["noreload"] or ending:
            return bool(given["reload"])
        return bool(settings.DEBUG) and self.owns_process and self.stdout.isatty() and not given["supervised"]

    def work(self, run: _Run) -> int:
        """Run the jobs in this process."""
        warn_of_timeouts(run)
        session = worker_lines.Session(run.console, run.options, run.drivers, run.verbosity)

        def abandon(code: int) -> None:
            run.health.remove()
            self.abandon(lambda: session.end(pool.stats), code)

        pool = Pool(
            run.options,
            drivers=run.drivers,
            stopping=run.stopping,
            abandon=abandon,
            restart=Restart(ledgers_of(run.drivers)),
            on_well=run.health.touch,
        )
        with obeying_signals(run.stopping, until_exit=self.owns_process), session.shown(run.stopping):
            session.end(pool.run())
        run.health.remove()
        return MEMORY_REACHED if "memory" in pool.reasons else 0

    def serve(self, run: _Run, notes_path: Path, *, reloads: bool) -> int:
        """Run the jobs in this process, for a supervisor: it prints the beginning and the end."""
        if Notes.are_outdated(notes_path):
            return 0
        notes = Notes(notes_path, run.options.workers)
        restart = Restart(ledgers_of(run.drivers))

        def report() -> None:
            notes.report(pool.stats, is_over=pool.reasons <= {"empty", BROKEN_PIPE})

        pool = Pool(
            run.options,
            drivers=run.drivers,
            stopping=run.stopping,
            abandon=lambda code: self.abandon(report, code),
            notes=notes,
            restart=restart,
            on_well=notes.say_well,
        )
        with (
            answering_supervisor(notes_path, run.stopping),
            obeying_signals(run.stopping, until_exit=self.owns_process),
            worker_lines.log_lines(run.console, run.verbosity),
        ):
            if reloads:
                watch_files(restart)
            notes.say_ready()
            pool.run()
            report()
        return MEMORY_REACHED if "memory" in pool.reasons else 0

    def supervise(self, run: _Run, processes: int, *, reloads: bool) -> int:
        if not self.owns_process:
            raise CommandError(
                "--processes and --reload work on the command line only: the processes are started from it."
            )
        databases.close_all()  # nothing here needs one for now
        session = worker_lines.Session(run.console, run.options, run.drivers, run.verbosity, processes=processes)
        supervisor = Supervisor(
            run.options,
            run.drivers,
            processes=processes,
            command=[*get_child_arguments(), *(["--reload"] if reloads else []), "--supervised"],
            stopping=run.stopping,
            health=run.health,
        )
        with obeying_signals(run.stopping, until_exit=True), session.shown(run.stopping):
            code = supervisor.run()
            session.end(supervisor.stats)
        run.health.remove()
        return code

    def abandon(self, say_so: Callable[[], None], code: int) -> None:
        """End the process under handlers that do not end; a process that is somebody else's waits for them."""
        if self.owns_process:
            say_so()
            worker_lines.flush_all()
            os._exit(code)


def warn_of_timeouts(run: _Run) -> None:
    """Where jobs have timeouts, say which of them cannot be ended without a supervisor."""
    jobs = unreached(in_threads=run.options.workers > 1)
    if jobs is not None and run.verbosity and are_limited():
        run.console.say(f"Without --processes no timeout ends {jobs}.")


def worker_options(given: dict[str, Any]) -> WorkerOptions:
    """The options of the command line, or of call_command; raises InvalidOption."""
    once = given["once"]
    workers, max_jobs = count("--workers", given["workers"]), count("--max-jobs", given["max_jobs"], zero_is_none=True)
    name = given["name"]
    return WorkerOptions.from_settings(
        name=None if name is None else check_name("--name", name, MAX_WORKER_NAME),
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


def health_path(given: object) -> Path | None:
    """Where the health file is to be; raises InvalidOption where none can be."""
    if given is None:
        return None
    path = Path(str(given)).absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidOption(f"--health-file {path} cannot be written: name a file in a folder that exists and is ours.")
    return path
