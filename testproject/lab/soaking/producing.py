"""A producer: dispatches jobs of every kind, in every way, and tells the history before and after.

What the history says of a transaction is what a caller knows: committed, rolled back, or, when the store was lost
at the commit, unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from threading import Event
from typing import Any

from django.db import connection, transaction

from django_jobqueue import dispatch_many, using
from django_jobqueue.conf import get_settings
from django_jobqueue.drivers import connections

from . import flowing, history
from .kinds import KINDS

QUEUES = ("soak-a", "soak-b", "soak-c")
PRIORITIES = (0, 0, 0, 0, 5, -5)
# A producer that is faster than the workers waits for them: a backlog would only make the end of the soak longer.
MOST_SECONDS_WAITING = 10
LEAST_WAITING = 500
LOOK_SECONDS = 1.0
OUTAGE_PAUSE = 0.2


class Undone(Exception):
    """Rolls a transaction back."""


class Producer:
    """``number`` begins its keys; ``rate`` is in jobs a second."""

    def __init__(self, number: int, rate: float, stopping: Event) -> None:
        self._number, self._rate, self._stopping = number, rate, stopping
        self._random = Random()
        self._jobs = self._transactions = 0
        self._look_at = 0.0
        self._driver = connections["default"]
        kinds = {name: kind for name, kind in KINDS.items() if self._driver.supports_transactions or not kind.is_atomic}
        self._kinds = list(kinds)
        self._weights = [kind.weight for kind in kinds.values()]

    def run(self) -> None:
        """Produce until told to stop."""
        begun, before = time.monotonic(), 0.0
        while not self._stopping.is_set():
            if self._is_far_ahead():
                before += LOOK_SECONDS
                self._stopping.wait(LOOK_SECONDS)
                continue
            way = self._random.choices(list(WAYS), WAYS.values())[0]
            try:
                way(self)
            except self._driver.outages:
                connection.close()
                self._driver.close()
                self._stopping.wait(OUTAGE_PAUSE)
            ahead = self._jobs / self._rate - (time.monotonic() - begun - before)
            if ahead > 0:
                self._stopping.wait(ahead)

    # The ways to dispatch

    def one(self) -> None:
        """Without a transaction of the caller's."""
        name, [job] = self._begin(1)
        with _Told(name):
            self._call(job).dispatch(*job.arguments)

    def block(self) -> None:
        name, jobs = self._begin(self._random.randint(1, 8))
        with _Told(name) as told, transaction.atomic():
            told.begin()
            for job in jobs:
                self._call(job).dispatch(*job.arguments)
            told.is_open = False

    def many(self) -> None:
        name, jobs = self._begin(self._random.randint(10, 60))
        with _Told(name):
            dispatch_many(self._call(job).s(*job.arguments) for job in jobs)

    def undone(self) -> None:
        name, jobs = self._begin(self._random.randint(1, 8))
        with _Told(name) as told, transaction.atomic():
            told.begin()
            for job in jobs:
                self._call(job).dispatch(*job.arguments)
            raise Undone

    def savepoint(self) -> None:
        """A part of a committed transaction is rolled back."""
        name, jobs = self._begin(self._random.randint(1, 4))
        with _Told(name) as told, transaction.atomic():
            told.begin()
            for job in jobs:
                self._call(job).dispatch(*job.arguments)
            inner, inner_jobs = self._begin(self._random.randint(1, 4))
            with _Told(inner) as inner_told, transaction.atomic():
                inner_told.begin()
                dispatch_many(self._call(job).s(*job.arguments) for job in inner_jobs)
                raise Undone
            told.is_open = False

    def flow(self) -> None:
        name, flow = self._begin_flow()
        with _Told(name):
            flow.composite.dispatch()

    def flow_in_block(self) -> None:
        """Of two in a transaction, the second is rolled back with its part of it."""
        name, flow = self._begin_flow()
        with _Told(name) as told, transaction.atomic():
            told.begin()
            flow.composite.dispatch()
            inner, inner_flow = self._begin_flow()
            with _Told(inner) as inner_told, transaction.atomic():
                inner_told.begin()
                inner_flow.composite.dispatch()
                raise Undone
            told.is_open = False

    # Details

    def _begin(self, count: int) -> tuple[str, list[_Planned]]:
        planned = [self._plan() for _ in range(count)]
        return self._tell([history.Job(job.key, job.kind, job.delay or 0.0) for job in planned]), planned

    def _begin_flow(self) -> tuple[str, flowing.Planned]:
        plan = self._random.choice((flowing.plan_chain, flowing.plan_batch))
        flow = plan(self._key(), lambda kind: self._calling(kind, None), self._random)
        self._jobs += len(flow.jobs)
        name = self._tell(flow.jobs)
        for told in flow.flows:
            history.write(told)
        return name, flow

    def _tell(self, jobs: list[history.Job]) -> str:
        """Begin a transaction; return its name."""
        self._transactions += 1
        name = f"{self._number}.{self._transactions}"
        history.write(history.Dispatching(name, jobs, history.now()))
        return name

    def _key(self) -> str:
        self._jobs += 1
        return f"{self._number}-{self._jobs}"

    def _plan(self) -> _Planned:
        key = self._key()
        name = self._random.choices(self._kinds, self._weights)[0]
        kind = KINDS[name]
        arguments = [key, *kind.arguments]
        if kind.seconds is not None:
            seconds = self._random.uniform(*kind.seconds)
            arguments.append(seconds * (get_settings().retry_after if kind.is_long else 1))
        return _Planned(key, name, arguments, self._random.uniform(*kind.delay) if kind.delay else None)

    def _call(self, job: _Planned) -> Any:
        return self._calling(job.kind, job.delay)

    def _calling(self, kind: str, delay: float | None) -> Any:
        return using(
            KINDS[kind].job_name,
            delay=delay,
            queue=self._random.choice(QUEUES),
            priority=self._random.choice(PRIORITIES),
        )

    def _is_far_ahead(self) -> bool:
        if time.monotonic() < self._look_at:
            return False
        try:
            waiting = sum(size.waiting + size.reserved for size in self._driver.sizes().values())
        except self._driver.outages:
            self._driver.close()
            return False
        if waiting > max(LEAST_WAITING, MOST_SECONDS_WAITING * self._rate):
            return True
        self._look_at = time.monotonic() + LOOK_SECONDS
        return False


class _Planned:
    __slots__ = ("arguments", "delay", "key", "kind")

    def __init__(self, key: str, kind: str, arguments: list[Any], delay: float | None) -> None:
        self.key, self.kind, self.arguments, self.delay = key, kind, arguments, delay


class _Told:
    """Tells the outcome of a transaction; what was raised while it ``is_open`` has rolled it back for certain."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_open = False
        self._is_doubtful = False

    def begin(self) -> None:
        """Within a block. Django ends one that lost its connection in a savepoint without a word: only a hook tells."""
        self.is_open = self._is_doubtful = True
        transaction.on_commit(self._commit)

    def _commit(self) -> None:
        self._is_doubtful = False

    def __enter__(self) -> _Told:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        outcome: history.Outcome = "committed"
        if self.is_open or isinstance(error, Undone) or (error is None and self._is_doubtful):
            outcome = "rolled back"
        elif error is not None:
            outcome = "unknown"
        history.write(history.Ended(self._name, outcome, history.now()))
        return isinstance(error, Undone)


WAYS: dict[Callable[[Producer], None], int] = {
    Producer.one: 30,
    Producer.block: 30,
    Producer.many: 15,
    Producer.undone: 15,
    Producer.savepoint: 10,
    Producer.flow: 14,
    Producer.flow_in_block: 6,
}
