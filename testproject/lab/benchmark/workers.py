"""Worker processes behind a gate: each sets Django up, says so, and starts when all are ready.

What they print at the end is what only they know: their processor time, their memory, when they were through.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

READY_LINE = "ready"
POLL_SECONDS = 0.02
STOP_SECONDS = 40  # longer than the grace of a worker
ERROR_CHARACTERS = 800


class WorkerFailed(Exception):
    """A worker process did not do what it was started for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """``ended`` is of CLOCK_MONOTONIC, in nanoseconds; memory is in bytes."""

    ended: int
    processor_seconds: float
    memory_before: int
    memory_after: int


class Workers:
    """``arguments`` gives the options of `bench_worker` for each process, by its number from 0."""

    def __init__(self, count: int, arguments: Callable[[int], Sequence[str]], environment: Mapping[str, str]) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._errors: list[IO[bytes]] = []
        self._count, self._arguments = count, arguments
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **environment,
        }

    def __enter__(self) -> Self:
        try:
            for number in range(self._count):
                self._start([sys.executable, "-m", "django", "bench_worker", *self._arguments(number)])
            for number, process in enumerate(self._processes):
                if process.stdout is None or process.stdout.readline().strip() != READY_LINE:
                    raise self._failed(number, "did not get ready")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    @property
    def process_ids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def open_gate(self) -> None:
        for number, process in enumerate(self._processes):
            try:
                process.stdin.write("go\n")  # type: ignore[union-attr]
                process.stdin.flush()  # type: ignore[union-attr]
            except OSError:
                raise self._failed(number, "ended before its start") from None

    def wait(self, seconds: float, tick: Callable[[], None] = lambda: None) -> list[Report]:
        """Wait for the end of all, calling ``tick`` now and then; raises WorkerFailed."""
        ends_at = time.monotonic() + seconds
        while any(process.poll() is None for process in self._processes):
            if time.monotonic() > ends_at:
                raise WorkerFailed(f"The workers did not end within {seconds:.0f} s.{self._tail()}")
            tick()
            time.sleep(POLL_SECONDS)
        return [self._report(number) for number in range(self._count)]

    def stop(self) -> list[Report]:
        """Ask all to stop, and wait for them."""
        for process in self._processes:
            process.terminate()
        return self.wait(STOP_SECONDS)

    def _start(self, command: list[str]) -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of all
        self._errors.append(errors)
        self._processes.append(
            subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        )

    def _report(self, number: int) -> Report:
        process = self._processes[number]
        lines = process.stdout.read().splitlines()  # type: ignore[union-attr]
        if process.returncode or not lines:
            raise self._failed(number, f"ended with exit code {process.returncode}")
        values: dict[str, Any] = json.loads(lines[-1])
        return Report(**values)

    def _failed(self, number: int, what: str) -> WorkerFailed:
        return WorkerFailed(f"Worker process {number + 1} {what}.{self._tail()}")

    def _tail(self) -> str:
        """What the workers have said on stderr."""
        said = []
        for errors in self._errors:
            errors.seek(0)
            said.append(errors.read().decode(errors="replace").strip()[-ERROR_CHARACTERS:])
        return "".join(f"\n{text}" for text in dict.fromkeys(said) if text)

    def _end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        for errors in self._errors:
            errors.close()


def own_bytes(process_id: int) -> int | None:
    """The memory of a process that is in use now; None where the system has no /proc, or the process is gone.

    Without what it has mapped from files: each job that stamps the tally makes nine bytes more of that resident.
    """
    try:
        resident, mapped = map(int, Path(f"/proc/{process_id}/statm").read_text().split()[1:3])
    except (OSError, ValueError):
        return None
    return (resident - mapped) * os.sysconf("SC_PAGE_SIZE")
