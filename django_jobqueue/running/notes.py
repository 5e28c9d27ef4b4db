"""What a worker process notes for its supervisor, in memory that both have mapped and that outlives the process.

A note costs no query, no lock and no system call. Each loop has a page of its own: who it is, and the job in hand.
A process that a supervisor starts may find another release of this package than the supervisor's own: the first page
says which release made it, at a place that never changes, and such a process notes nothing but that.

A page's first byte says whether its note is whole: it is 0 while a note is written, so that what a killed process
leaves behind is either a whole note or none.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from .. import __version__
from ..jobs.records import Reservation
from .options import WorkerStats

PAGE_BYTES = 1024
_JOB = struct.Struct("=16s16sd")  # id, token, the moment of time.monotonic() at which it times out or 0
_JOB_AT = 8
_THREAD = struct.Struct("=Q")
_THREAD_AT = 64
_IDENTITY_AT, _ALIAS_AT = 80, 560
_TEXT_BYTES = 440
_STATS = struct.Struct("=4Q")
_STATS_AT = 8
_MOMENT = struct.Struct("=d")  # of time.monotonic()
_WELL_AT = 64
# Of the first page, which is the process' own. Those of the release, and of an outdated supervisor, stay for ever.
_READY_AT, _OVER_AT, _OUTDATED_AT = 0, 1, 2
_VERSION_AT, _VERSION_BYTES = 960, 64


@dataclass(frozen=True, slots=True)
class Noted:
    """A job in hand, as a supervisor reads it. ``times_out`` is a moment of ``time.monotonic()``, or None."""

    worker: str
    connection: str
    id: UUID
    token: UUID
    times_out: float | None
    thread: int


class Page:
    """One loop's notes."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory = memory
        self._offset = offset
        self._version = 0
        self._alias: str | None = None

    def introduce(self, identity: str) -> None:
        """Say who notes here, before anything is reserved under that name."""
        self.clear()
        _write_text(self._memory, self._offset + _IDENTITY_AT, identity)

    def note(self, job: Reservation, times_out: float | None) -> None:
        """A handler is about to be called."""
        memory, offset = self._memory, self._offset
        memory[offset] = 0
        if job.connection != self._alias:
            self._alias = job.connection
            _write_text(memory, offset + _ALIAS_AT, job.connection)
            _THREAD.pack_into(memory, offset + _THREAD_AT, threading.get_ident())
        _JOB.pack_into(memory, offset + _JOB_AT, job.id.bytes, job.token.bytes, times_out or 0.0)
        self._version = self._version % 255 + 1
        memory[offset] = self._version

    def clear(self) -> None:
        """The job in hand has ended, and its end is stored where it must not wait."""
        self._memory[self._offset] = 0


class Notes:
    """The notes of one process: made by the supervisor, opened by the process."""

    def __init__(self, path: Path, workers: int) -> None:
        self._workers = workers
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), PAGE_BYTES * (workers + 1))
        self._free = list(range(workers, 0, -1))
        self._freeing = threading.Lock()

    @classmethod
    def create(cls, path: Path, workers: int) -> Notes:
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(bytes(PAGE_BYTES * (workers + 1)))
            file.seek(_VERSION_AT)
            file.write(_version())
        return cls(path, workers)

    def close(self) -> None:
        self._memory.close()

    # The process writes

    @staticmethod
    def are_outdated(path: Path) -> bool:
        """Whether another release of this package made them; then their maker is told so, and they are not opened."""
        with path.open("r+b") as file:
            file.seek(_VERSION_AT)
            if file.read(_VERSION_BYTES) == _version():
                return False
            file.seek(_OUTDATED_AT)
            file.write(b"\1")
        return True

    def page(self) -> Page:
        """A page for a new loop."""
        with self._freeing:
            number = self._free.pop()
        return Page(self._memory, number * PAGE_BYTES)

    def free(self, page: Page) -> None:
        """The loop of a page has ended, and has given back what it held."""
        with self._freeing:
            self._free.append(page._offset // PAGE_BYTES)

    def say_ready(self) -> None:
        self._memory[_READY_AT] = 1

    def say_well(self) -> None:
        """Every loop does its work, and every store answers, as of now."""
        _MOMENT.pack_into(self._memory, _WELL_AT, time.monotonic())

    def report(self, stats: WorkerStats, *, is_over: bool) -> None:
        """The last word: what was done, and whether no other process shall go on."""
        _STATS.pack_into(self._memory, _STATS_AT, *astuple(stats))
        self._memory[_OVER_AT] = int(is_over)

    # The supervisor reads

    @property
    def is_ready(self) -> bool:
        return bool(self._memory[_READY_AT])

    @property
    def well_at(self) -> float:
        """The moment of ``time.monotonic()`` at which it last said that all is well."""
        moment: float = _MOMENT.unpack_from(self._memory, _WELL_AT)[0]
        return moment

    @property
    def is_over(self) -> bool:
        return bool(self._memory[_OVER_AT])

    @property
    def found_another_release(self) -> bool:
        """Whether the process has found that the supervisor's release is not its own."""
        return bool(self._memory[_OUTDATED_AT])

    @property
    def stats(self) -> WorkerStats:
        return WorkerStats(*_STATS.unpack_from(self._memory, _STATS_AT))

    def identities(self) -> list[str]:
        """Who of this process may hold reservations."""
        found = [_read_text(self._memory, offset + _IDENTITY_AT) for offset in self._offsets()]
        return [identity for identity in found if identity]

    def in_hand(self) -> list[Noted]:
        """The jobs in hand; of a process that runs, without those that begin just now."""
        return [noted for offset in self._offsets() if (noted := self._read(offset)) is not None]

    def _offsets(self) -> Iterator[int]:
        return iter(range(PAGE_BYTES, PAGE_BYTES * (self._workers + 1), PAGE_BYTES))

    def _read(self, offset: int) -> Noted | None:
        memory = self._memory
        version = memory[offset]
        if not version:
            return None
        job_id, token, times_out = _JOB.unpack_from(memory, offset + _JOB_AT)
        noted = Noted(
            worker=_read_text(memory, offset + _IDENTITY_AT),
            connection=_read_text(memory, offset + _ALIAS_AT),
            id=UUID(bytes=job_id),
            token=UUID(bytes=token),
            times_out=times_out or None,
            thread=_THREAD.unpack_from(memory, offset + _THREAD_AT)[0],
        )
        return noted if memory[offset] == version else None


def _version() -> bytes:
    return __version__.encode()[:_VERSION_BYTES].ljust(_VERSION_BYTES, b"\0")


_LENGTH = struct.Struct("=H")


def _write_text(memory: mmap.mmap, offset: int, text: str) -> None:
    encoded = text.encode()[: _TEXT_BYTES - _LENGTH.size]
    memory[offset + _LENGTH.size : offset + _LENGTH.size + len(encoded)] = encoded
    _LENGTH.pack_into(memory, offset, len(encoded))


def _read_text(memory: mmap.mmap, offset: int) -> str:
    length: Any = _LENGTH.unpack_from(memory, offset)[0]
    start = offset + _LENGTH.size
    return memory[start : start + length].decode(errors="replace")
