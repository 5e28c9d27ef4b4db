"""Handlers that a test holds open, and loops in threads that a test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event, Thread

import pytest
from django.db import connections

from django_jobqueue.running.options import WorkerStats
from django_jobqueue.running.worker import Worker
from tests.helpers.waiting import DEADLINE


class Gate:
    """``pass_through`` is called by a handler and blocks; the test waits until it is ``entered``, and opens it."""

    def __init__(self) -> None:
        self._entered = Event()
        self._opened = Event()

    def pass_through(self) -> None:
        self._entered.set()
        assert self._opened.wait(DEADLINE), "the test never opened this gate"

    def wait_until_entered(self) -> None:
        assert self._entered.wait(DEADLINE), "no job came to this gate"

    def open(self) -> None:
        self._opened.set()


class Started:
    """A thread that runs a loop; ``end`` returns its counts, or raises what it raised."""

    def __init__(self, work: Callable[[], WorkerStats]) -> None:
        self._work = work
        self._stats: WorkerStats | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._stats = self._work()
        except BaseException as error:
            self._error = error
        finally:
            connections.close_all()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> WorkerStats:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "the loop did not end"
        if self._error is not None:
            raise self._error
        assert self._stats is not None
        return self._stats


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def start(gate: Gate) -> Iterator[Callable[..., Started]]:
    """``start(loop)`` runs a Worker or a Pool in a thread; at the end of the test it has ended."""
    running = []

    def start(loop: object) -> Started:
        started = Started(loop.run)  # type: ignore[attr-defined]
        running.append((loop, started))
        return started

    yield start
    gate.open()
    for loop, started in running:
        loop.stopping.ask("the end of the test")
        started._thread.join(DEADLINE)


class Abandoned:
    """What a worker calls when it has given back everything, a handler that runs on too."""

    def __init__(self) -> None:
        self._told = Event()

    def __call__(self) -> None:
        self._told.set()

    @property
    def is_told(self) -> bool:
        return self._told.is_set()

    def wait(self) -> None:
        assert self._told.wait(DEADLINE), "the worker did not give up"


@pytest.fixture
def abandoned() -> Abandoned:
    return Abandoned()


def look(worker: Worker) -> None:
    """Let the keeper look now, after the clock was moved on."""
    worker._keeper._waiter.wake()
