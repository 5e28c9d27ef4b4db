"""One soak, as the list of its steps: make a store, produce and disturb, calm down, drain, read, check."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from . import history
from .checker import Verdict, check
from .disturbing import Counts, Disturbance, Disturber
from .history import Trouble
from .processes import Process, Processes, producer_command, wait_for_all
from .rules import Rules
from .stores import OwnDatabase

PRODUCERS = 2
TICK_SECONDS = 0.05
NEWS_SECONDS = 10.0
START_SECONDS = 30.0
STOP_PRODUCING_SECONDS = 30.0
# Far more than a store that was never more than seconds ahead takes.
DRAIN_SECONDS = 90.0
SPARE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was asked for."""

    seconds: float
    kill: set[Disturbance]
    workers: int
    rate: float
    retry_after: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    store: str
    own_server: bool
    plan: Plan
    counts: Counts
    drain_seconds: float
    verdict: Verdict


class Session:
    """``say`` takes a line of progress."""

    def __init__(self, database: OwnDatabase, folder: Path, plan: Plan, say: Callable[[str], None]) -> None:
        self._database, self._plan, self._say = database, plan, say
        self._folder = folder
        self._news_at = 0.0

    def run(self) -> Result:
        plan, database = self._plan, self._database
        database.create()
        try:
            with Processes(self._folder, database.settings, plan.retry_after, cache=database.cache) as processes:
                return self._soak(processes)
        finally:
            database.remove()

    def _soak(self, processes: Processes) -> Result:
        plan, database = self._plan, self._database
        processes.run(["migrate", "django_jobqueue", "--verbosity=0"])
        database.make_effect_table()
        version = database.version()
        disturber = Disturber(
            processes,
            database,
            plan.kill,
            workers=plan.workers,
            retry_after=plan.retry_after,
            seconds=plan.seconds,
            longest=START_SECONDS + plan.seconds + STOP_PRODUCING_SECONDS + DRAIN_SECONDS + SPARE_SECONDS,
            random=Random(plan.seed),
        )
        self._say(f"{version}: {plan.workers} workers, {plan.seconds:.0f} s")
        producers = [
            processes.start(producer_command(number, plan.rate / PRODUCERS)) for number in range(1, PRODUCERS + 1)
        ]
        disturber.start()
        self._wait_until_all_work(processes, producers)
        self._disturb(disturber, producers)
        disturber.settle_down()
        self._stop(producers)
        drained = self._drain(disturber)
        disturber.end_workers()
        for process, line in processes.broken():
            history.write(Trouble("ended", process.pid, history.now(), history.now(), f"says: {line}"))
        self._say("checking")
        rules = Rules(
            retry_after=plan.retry_after,
            stops_concern_all=database.stops_concern_all,
            joins_transactions=database.joins_transactions,
        )
        verdict = check(history.read(processes.history), database.content(), rules)
        return Result(
            store=version,
            own_server=database.server is not None,
            plan=plan,
            counts=disturber.counts,
            drain_seconds=drained,
            verdict=verdict,
        )

    def _wait_until_all_work(self, processes: Processes, producers: list[Process]) -> None:
        """The time counts from when there is something to disturb; on a busy machine that takes a while."""
        ends_at = time.monotonic() + START_SECONDS
        working = len(producers) + 1  # a worker may find nothing to do
        while len(list(processes.history.iterdir())) < working and time.monotonic() < ends_at:
            time.sleep(TICK_SECONDS)

    def _disturb(self, disturber: Disturber, producers: list[Process]) -> None:
        ends_at = time.monotonic() + self._plan.seconds
        while (left := ends_at - time.monotonic()) > 0:
            disturber.tick()
            for producer in producers:
                if producer.code is not None:
                    raise RuntimeError(f"A producer has ended by itself: {producer.last_words()}")
            self._tell_news(left, disturber.counts)
            time.sleep(TICK_SECONDS)

    def _tell_news(self, left: float, counts: Counts) -> None:
        if time.monotonic() < self._news_at:
            return
        self._news_at = time.monotonic() + NEWS_SECONDS
        waiting = self._database.left()
        self._say(
            f"    {left:.0f} s left; {'?' if waiting is None else f'{waiting:,}'} jobs in the queue; "
            f"{counts.kills} kills, {counts.pauses} pauses, {counts.cuts} cuts, {counts.restarts} restarts"
        )

    def _stop(self, producers: list[Process]) -> None:
        for producer in producers:
            producer.close_input()
        wait_for_all(producers, STOP_PRODUCING_SECONDS)
        for producer in producers:
            if producer.code != 0:
                raise RuntimeError(f"A producer did not end, or not well: {producer.last_words()}")

    def _drain(self, disturber: Disturber) -> float:
        """Let the workers run what is left, at most so long; return how long it took."""
        begun = time.monotonic()
        self._say("draining")
        while self._database.left() != 0 and time.monotonic() - begun < DRAIN_SECONDS:
            disturber.watch()
            time.sleep(TICK_SECONDS)
        return time.monotonic() - begun
