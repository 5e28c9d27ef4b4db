"""The processes of a soak: how they are started, and that each is ended, by its id and no other way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .history import FOLDER_VARIABLE

SETTINGS = "testproject.soak_settings"
SETTINGS_VARIABLE = "JOBQUEUE_SOAK"
GRACE_SECONDS = 20
LAST_CHARACTERS = 2000
MOST_COMMAND_SECONDS = 120
# What a worker logs when a loop or a keeper of it broke: it went on, and is to be mended all the same.
BROKEN_LINES = ("A worker loop ended by itself", "The keeper of a worker failed", "cannot be stored")


# The processes of a supervisor are found there.
CHILDREN = "/proc/{0}/task/{0}/children"
CAN_SUPERVISE = Path(CHILDREN.format(os.getpid())).exists()
MOST_DYING_SECONDS = 10.0


def worker_command(threads: int, longest: float, *, supervised: bool) -> list[str]:
    """The command line of a worker; though the soak was killed, it ends: by itself ``longest`` seconds later."""
    options = [f"--workers={threads}", f"--grace={GRACE_SECONDS}"]
    return (
        ["soak_worker", *options, "--processes=1"]
        if supervised
        else ["queue_work", *options, f"--max-time={longest:.0f}"]
    )


def producer_command(number: int, rate: float) -> list[str]:
    return ["soak_producer", f"--number={number}", f"--rate={rate:g}"]


class Process:
    """A command that runs; both of its outputs go to one file. ``continue_at`` is set while it is stopped.

    Of a supervisor, it is its process that is stopped, by the id ``stopped_pid``.
    """

    def __init__(self, popen: subprocess.Popen[bytes], output: Path, *, is_supervisor: bool) -> None:
        self._popen = popen
        self._output = output
        self.is_supervisor = is_supervisor
        self.stopped_pid = 0
        self.stopped_at = 0.0
        self.continue_at: float | None = None
        self.is_ending = False

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs."""
        return self._popen.poll()

    @property
    def is_stopped(self) -> bool:
        return self.continue_at is not None

    @property
    def running_pid(self) -> int | None:
        """The process that runs jobs: this one, or a supervisor's; None while a supervisor has none."""
        if not self.is_supervisor:
            return self.pid
        try:
            found = Path(CHILDREN.format(self.pid)).read_text().split()
        except OSError:
            return None
        return int(found[0]) if found else None

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def kill_child(self, pid: int) -> None:
        """Kill a supervisor's process, and wait until it has seen that."""
        os.kill(pid, signal.SIGKILL)
        ends_at = time.monotonic() + MOST_DYING_SECONDS
        while str(pid) in Path(CHILDREN.format(self.pid)).read_text().split() and time.monotonic() < ends_at:
            time.sleep(0.01)

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()

    def wait(self, seconds: float) -> int | None:
        """The exit code, None when it has not ended by then."""
        try:
            return self._popen.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return None

    def close_input(self) -> None:
        """A producer ends by that."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()

    def last_words(self) -> str:
        return self._output.read_text(errors="replace")[-LAST_CHARACTERS:]

    def broken_lines(self) -> Iterator[str]:
        with self._output.open(errors="replace") as lines:
            yield from (line.strip() for line in lines if any(text in line for text in BROKEN_LINES))


class Processes:
    """All processes of one soak; leaving the block ends those that are left."""

    def __init__(
        self, folder: Path, database: Mapping[str, Any], retry_after: float, *, cache: Mapping[str, Any] | None = None
    ) -> None:
        self.history = folder / "history"
        self._logs = folder / "logs"
        self._settings = json.dumps({"database": database, "cache": cache, "retry_after": retry_after})
        self._started: list[Process] = []
        for made in (self.history, self._logs):
            made.mkdir(parents=True)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._started:
            if process.code is None:
                process.kill()
            process.close_input()

    def start(self, command: Sequence[str], *, is_supervisor: bool = False) -> Process:
        """Start a management command on the soak's database."""
        output = self._logs / f"{command[0]}-{len(self._started) + 1}.log"
        with output.open("wb") as file:
            popen = subprocess.Popen(
                [sys.executable, "-m", "django", *command],
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        process = Process(popen, output, is_supervisor=is_supervisor)
        self._started.append(process)
        return process

    def run(self, command: Sequence[str]) -> None:
        """Run one to its end; raises RuntimeError with its last words."""
        process = self.start(command)
        if process.wait(MOST_COMMAND_SECONDS) != 0:
            raise RuntimeError(f"{' '.join(command)} failed: {process.last_words()}")

    def has_history(self, process: Process) -> bool:
        """Whether it has reserved a job."""
        return any(self.history.glob(f"{process.pid}-*"))

    def broken(self) -> Iterator[tuple[Process, str]]:
        """What workers said of themselves that must not happen."""
        for process in self._started:
            for line in process.broken_lines():
                yield process, line

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONUNBUFFERED": "1",
            SETTINGS_VARIABLE: self._settings,
            FOLDER_VARIABLE: str(self.history),
        }


def wait_for_all(processes: Sequence[Process], seconds: float) -> None:
    """Wait until all have ended, at most so long together."""
    ends_at = time.monotonic() + seconds
    for process in processes:
        process.wait(ends_at - time.monotonic())
