"""Marks: what handlers in other processes leave behind, one line for each, in a file apart from any database.

A line is one write in append mode, which neither threads nor processes tear.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from django_jobqueue import current_job

MARKS_VARIABLE = "JOBQUEUE_TEST_MARKS"


@dataclass(frozen=True, slots=True)
class Mark:
    event: str
    key: str
    job_id: str
    attempt: int
    pid: int
    at: float  # of time.monotonic(), which all processes of a machine share


def write_mark(event: str, key: object) -> None:
    """Called by a handler."""
    job = current_job()
    assert job is not None
    line = f"{event}\t{key}\t{job.id}\t{job.attempt}\t{os.getpid()}\t{time.monotonic()}\n"
    file = os.open(os.environ[MARKS_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def release_file() -> Path:
    """Held jobs go on when it exists."""
    return Path(os.environ[MARKS_VARIABLE]).with_suffix(".release")


class Marks:
    """The marks of one test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "marks"

    def read(self, event: str | None = None, key: object | None = None) -> list[Mark]:
        if not self.path.exists():
            return []
        marks = []
        for line in self.path.read_text().splitlines():
            name, of, job_id, attempt, pid, at = line.split("\t")
            marks.append(Mark(name, of, job_id, int(attempt), int(pid), float(at)))
        return [
            mark for mark in marks if (event is None or mark.event == event) and (key is None or mark.key == str(key))
        ]

    def count(self, event: str | None = None, key: object | None = None) -> int:
        return len(self.read(event, key))

    def repeated(self, event: str) -> dict[str, int]:
        """The jobs that left a mark more than once, and how often."""
        counted = Counter(mark.job_id for mark in self.read(event))
        return {job_id: times for job_id, times in counted.items() if times > 1}

    def let_go(self) -> None:
        """Let the held jobs end."""
        self.path.with_suffix(".release").touch()

    def hold_again(self) -> None:
        self.path.with_suffix(".release").unlink()
