"""The history of a soak: what happened, one JSON line each, in one file a process, apart from the store.

A line is one write in append mode, so that SIGKILL tears none and threads mix none. Moments are of
CLOCK_MONOTONIC, in seconds, which all processes of a machine share. Jobs are named by a ``key`` of the producer's
own, an argument of theirs: it is known before the store has seen the job, and whatever the store made of it.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeAlias

FOLDER_VARIABLE = "JOBQUEUE_SOAK_HISTORY"
SUFFIX = ".jsonl"

Outcome: TypeAlias = Literal["committed", "rolled back", "unknown"]
How: TypeAlias = Literal["complete", "release", "fail"]
FlowKind: TypeAlias = Literal["chain", "batch"]
TroubleKind: TypeAlias = Literal["kill", "stop", "pause", "server", "cut", "ended"]


class Job(NamedTuple):
    """A job that is about to be dispatched; ``delay`` is 0 without one."""

    key: str
    kind: str
    delay: float = 0.0


class Dispatching(NamedTuple):
    """A transaction, or a dispatch without one, begins; each job of it is dispatched after ``at``."""

    transaction: str
    jobs: list[Job]
    at: float


class Flow(NamedTuple):
    """Jobs that are dispatched together and run in stages: each begins when all of the one before have ended.

    Each step of a chain is a stage; of a batch the members are one, and the callbacks the next.
    """

    name: str
    kind: FlowKind
    stages: list[list[str]]
    at: float


class Ended(NamedTuple):
    """What became of a transaction, as far as the producer was told."""

    transaction: str
    outcome: Outcome
    at: float


class Child(NamedTuple):
    """An atomic job dispatches another one, which exists exactly when the effect of that run does."""

    key: str
    parent: str
    token: str
    at: float


class Started(NamedTuple):
    key: str
    id: str
    attempt: int
    token: str
    pid: int
    at: float


class Finished(NamedTuple):
    """The handler came to its end; ``done`` is False when it raised."""

    key: str
    token: str
    done: bool
    at: float


class Reserved(NamedTuple):
    """Jobs are held from somewhen between ``asked`` and ``at``; each is (key, attempt)."""

    token: str
    worker: str
    pid: int
    alone: bool
    jobs: list[tuple[str, int]]
    asked: float
    at: float


class Renewed(NamedTuple):
    """Reservations that were not found to be lost; each is (key, token)."""

    jobs: list[tuple[str, str]]
    asked: float
    at: float


class Settling(NamedTuple):
    """A worker asks the store to end reservations; each is (key, token)."""

    jobs: list[tuple[str, str]]
    asked: float


class Settled(NamedTuple):
    """The store's answer; each is (key, token, how, owned). ``joined``: true only if the transaction commits."""

    jobs: list[tuple[str, str, How, bool]]
    joined: bool
    asked: float
    at: float


class HandedBack(NamedTuple):
    """Jobs were returned unstarted; each is (key, token, owned)."""

    jobs: list[tuple[str, str, bool]]
    asked: float
    at: float


class Rescued(NamedTuple):
    """Expired reservations were ended by a worker; each is (job id, the identity of whoever held it)."""

    jobs: list[tuple[str, str]]
    at: float


class Trouble(NamedTuple):
    """What the soak did to a process, or to all (``pid`` is None): from ``begun``, at the earliest, to ``ended``."""

    kind: TroubleKind
    pid: int | None
    begun: float
    ended: float
    note: str = ""


Record: TypeAlias = (
    Dispatching
    | Flow
    | Ended
    | Child
    | Started
    | Finished
    | Reserved
    | Renewed
    | Settling
    | Settled
    | HandedBack
    | Rescued
    | Trouble
)
RECORDS: dict[str, type[Any]] = {
    record.__name__: record
    for record in (
        Dispatching,
        Flow,
        Ended,
        Child,
        Started,
        Finished,
        Reserved,
        Renewed,
        Settling,
        Settled,
        HandedBack,
        Rescued,
        Trouble,
    )
}

now = time.monotonic


def pid_of(worker: str) -> int:
    """A worker's identity is host, process and a random part."""
    return int(worker.split(":")[-2])


class Writer:
    """Appends to the file of this process, whose name begins with its id; the first record makes it."""

    def __init__(self) -> None:
        self._file = -1
        self._pid = 0
        self._lock = Lock()

    def write(self, record: Record) -> None:
        line = json.dumps([type(record).__name__, *record], separators=(",", ":")) + "\n"
        os.write(self._opened(), line.encode())

    def _opened(self) -> int:
        if self._pid != os.getpid():  # after a fork, too
            with self._lock:
                if self._pid != os.getpid():
                    name = f"{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
                    path = Path(os.environ[FOLDER_VARIABLE]) / name
                    self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                    self._pid = os.getpid()
        return self._file


writer = Writer()


def write(record: Record) -> None:
    writer.write(record)


def read(folder: Path) -> list[Record]:
    """Every record of a folder, in no order."""
    return [_parsed(line) for path in sorted(folder.glob(f"*{SUFFIX}")) for line in _lines(path)]


def _lines(path: Path) -> Iterable[str]:
    with path.open(encoding="utf-8") as file:
        yield from file


def _parsed(line: str) -> Record:
    name, *values = json.loads(line)
    record: Record = RECORDS[name](*values)
    return record._replace(jobs=[Job(*job) for job in record.jobs]) if isinstance(record, Dispatching) else record
