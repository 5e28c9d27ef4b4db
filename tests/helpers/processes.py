"""Management commands in processes of their own, on the database of the test; every process is ended by its id."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.db import connections

from tests.helpers.marks import MARKS_VARIABLE, Marks
from tests.helpers.waiting import DEADLINE, wait_until
from tests.helpers.worker_settings import SETTINGS_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
LOGGED_LEVELS = re.compile(r"^(?:WARNING|ERROR|CRITICAL) .*$", re.MULTILINE)


def database_settings(alias: str = "default", **changes: Any) -> dict[str, Any]:
    """What another process needs to use the database of an alias, the test's database of that alias."""
    known = connections[alias].settings_dict
    keys = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS", "CONN_MAX_AGE")
    settings = {key: known[key] for key in keys}
    settings["NAME"] = str(settings["NAME"])
    settings["OPTIONS"] = {**settings["OPTIONS"], **changes.pop("OPTIONS", {})}
    return {**settings, **changes}


class Process:
    """A command that runs; both of its outputs go to one file."""

    def __init__(self, popen: subprocess.Popen[bytes], output: Path) -> None:
        self._popen = popen
        self._output = output

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def complaints(self) -> list[str]:
        """The log lines above INFO, and the head of every traceback."""
        return LOGGED_LEVELS.findall(self.output) + re.findall("^Traceback.*$", self.output, re.MULTILINE)

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        """End it without a chance to clean up."""
        self._popen.kill()
        self._popen.wait(DEADLINE)

    def wait(self, seconds: float = DEADLINE) -> int:
        """The exit code, when it has ended by itself; below zero when a signal killed it."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The process {self.pid} did not end in {seconds:g} s:\n{self.output}") from None

    def stop(self) -> int:
        """Ask for a clean end, and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def open_files(self) -> list[str]:
        """What its descriptors point to."""
        found = []
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                found.append(os.readlink(entry))
            except FileNotFoundError:
                continue
        return found

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Processes:
    """The commands of one test, with its database, its settings and its marks."""

    def __init__(self, folder: Path, databases: Mapping[str, Mapping[str, Any]]) -> None:
        self.folder = folder
        self.databases = dict(databases)
        self.settings: dict[str, Any] = {"JOBQUEUE": {"POLL_INTERVAL": 0.1, "BACKOFF": 0}}
        self.environment: dict[str, str] = {}
        self.marks = Marks(folder)
        self._started: list[Process] = []

    def all_variables(self) -> dict[str, str]:
        """The environment of the commands."""
        settings = {"DATABASES": self.databases, **self.settings}
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.helpers.worker_settings",
            # Where the tests run against an installed wheel, the first folder lacks the package.
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "testproject")]),
            "PYTHONUNBUFFERED": "1",
            SETTINGS_VARIABLE: json.dumps(settings),
            MARKS_VARIABLE: str(self.marks.path),
            **self.environment,
        }

    def start(self, *command: str) -> Process:
        """Start ``manage.py command``."""
        output = self.folder / f"{command[0]}-{len(self._started) + 1}.log"
        with output.open("wb") as file:
            popen = subprocess.Popen(
                [sys.executable, "-m", "django", *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.all_variables(),
                cwd=ROOT,
            )
        process = Process(popen, output)
        self._started.append(process)
        return process

    def worker(self, *options: str) -> Process:
        return self.start("queue_work", *options)

    def workers(self, count: int, *options: str) -> list[Process]:
        """Start workers, and wait until each looks for jobs."""
        started = [self.worker(*options) for _ in range(count)]
        for worker in started:
            self.wait_for_start(worker)
        return started

    def wait_for_start(self, worker: Process) -> None:
        def has_started() -> bool:
            assert worker.is_running, worker.output
            return bool(re.search(r"worker \S+ started", worker.output))

        wait_until(has_started, lambda: f"the worker has started:\n{worker.output}")

    def run(self, *command: str) -> Process:
        """Run a command to its end."""
        process = self.start(*command)
        process.wait()
        return process

    def end_all(self) -> None:
        """Nothing that was started runs on; what it wrote is shown when the test has failed."""
        for process in self._started:
            if process.is_running:
                process.signal(signal.SIGCONT)
                process.kill()
        for number, process in enumerate(self._started, start=1):
            print(f"--- process {number}, pid {process.pid}:\n{process.output}")  # noqa: T201
