"""Where the time of one job goes.

A profiler makes Python look slower than the database, so that two drains in this process are put together: one
with a stopwatch at the store's calls, of which there are a few per batch, and one under cProfile, which only says
how what is left of the first is divided.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from threading import get_ident
from typing import Any
from unittest.mock import patch

from django.db import connections

import django_jobqueue
from django_jobqueue.running.options import WorkerOptions
from django_jobqueue.running.pool import Pool

from ..jobs import noop
from . import tally as tallies
from .session import Session
from .tally import Tally

PACKAGE = Path(django_jobqueue.__file__).parent
LAB = Path(__file__).parent.parent
MOST_FUNCTIONS = 20

ROUNDS = 30  # more than calls of others lie between one of ours and another
STORE, HANDLER, KEEPER, ELSEWHERE = "store", "handler", "keeper", "elsewhere"
LOOP = "the loop: take the next job, averages"
# The longest beginning that fits a module's path decides.
GROUPS = {
    "jobs/payloads.py": "decode the payload",
    "jobs/context.py": "make the context",
    "jobs/definition.py": "call the handler",
    "running/surroundings.py": "call the handler",
    "running/execution.py": "begin and end the attempt",
    "running/attempt.py": "begin and end the attempt",
    "running/desk.py": "the desk",
    "running/keeper.py": KEEPER,
    "running/stopping.py": KEEPER,
    "running/": LOOP,
    "jobs/records.py": LOOP,
    "jobs/": "begin and end the attempt",
    "drivers/": STORE,
    "models/": STORE,
    "logs.py": "receivers of signals",
}
# The stopwatch has these; and Python 3.12 and newer profile the keeper's thread too, which mostly waits.
NOT_DIVIDED = {STORE, HANDLER, KEEPER}

CALLS = {"reserve": "reserve", "settle": "settle"}
OTHER_CALLS = ("stage", "rescue", "queues", "renew", "hand_back")
SERVER, CLIENT = "server", "client"

Function = tuple[str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    group: str
    microseconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A function's own time under the profiler, per job."""

    function: str
    calls: float
    microseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    jobs: int
    rate: float
    overhead: float
    groups: list[Group]
    functions: list[Spent]

    def document(self) -> dict[str, Any]:
        return asdict(self)


def profile(session: Session) -> Profile:
    """Drain twice in this process; return what a job costs, group by group."""
    session.begin("profile: with a stopwatch")
    handler = _handler_seconds(session)
    watch = Stopwatch()
    seconds = _drain(session, lambda run: _watched(session, watch, run))
    session.begin("profile: under cProfile")
    profiler = cProfile.Profile()
    profiled = _drain(session, profiler.runcall)
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    return Profile(
        jobs=session.jobs,
        rate=session.jobs / seconds,
        overhead=profiled / seconds,
        groups=_groups(session.jobs, seconds, handler, watch, divided(stats)),
        functions=_functions(stats, session.jobs),
    )


def _drain(session: Session, call: Callable[[Callable[[], Any]], Any]) -> float:
    """Let ``call`` run one drain of no-op jobs in this thread; return how many seconds it took."""
    queue = noop.definition.queue
    options = WorkerOptions.from_settings(stop_when_empty=True, queues=(queue,), connections=(session.alias,))
    with session.tally(session.jobs) as tally:
        session.fill(noop, session.jobs)
        with tallies.hitting(tally):
            started = time.perf_counter()
            call(Pool(options).run)
            seconds = time.perf_counter() - started
        session.check(tally)
    return seconds


def _handler_seconds(session: Session) -> float:
    """What the handler itself takes for all jobs, called in a loop."""
    tally = Tally.create(session.folder / "handler", session.jobs)
    with tallies.hitting(tally):
        started = time.perf_counter()
        for index in range(session.jobs):
            noop(index)
        seconds = time.perf_counter() - started
    tally.close()
    return seconds


class Stopwatch:
    """Seconds in the store's calls, and how much of them in statements: the server, and the way there and back."""

    def __init__(self) -> None:
        self.calls: dict[str, float] = defaultdict(float)
        self.statements: dict[str, float] = defaultdict(float)
        self._thread = get_ident()
        self._call = ""
        self._in_statement = False

    def call(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._call or get_ident() != self._thread:
                return function(*args, **kwargs)
            self._call, started = name, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.calls[name] += time.perf_counter() - started
                self._call = ""

        return timed

    def statement(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Also where it is called by another one, as SQLite's BEGIN is: counted once."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._in_statement:
                return function(*args, **kwargs)
            self._in_statement, started = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.statements[self._call] += time.perf_counter() - started
                self._in_statement = False

        return timed

    def around(self, execute: Callable[..., Any], *args: Any) -> Any:
        """For ``execute_wrapper``."""
        return self.statement(execute)(*args)


def _watched(session: Session, watch: Stopwatch, run: Callable[[], Any]) -> None:
    connection = connections[session.store.alias]
    names = {**CALLS, **dict.fromkeys(OTHER_CALLS, "rest")}
    with ExitStack() as stack:
        for name, group in names.items():
            stack.enter_context(patch.object(session.driver, name, watch.call(group, getattr(session.driver, name))))
        for name in ("commit", "set_autocommit"):
            stack.enter_context(patch.object(connection, name, watch.statement(getattr(connection, name))))
        stack.enter_context(connection.execute_wrapper(watch.around))
        run()


def _groups(jobs: int, seconds: float, handler: float, watch: Stopwatch, parts: dict[str, float]) -> list[Group]:
    """The stopwatch's groups, and what it leaves, divided as the profiler says."""
    found: dict[str, float] = {}
    for name in CALLS.values():
        found[f"{name}: server and driver library"] = watch.statements[name]
        found[f"{name}: the rest of it"] = watch.calls[name] - watch.statements[name]
    found["handler"] = handler
    left = seconds - sum(watch.calls.values()) - handler
    per_job = {group: part for group, part in parts.items() if group not in NOT_DIVIDED}
    whole = sum(per_job.values()) or 1.0
    for group, part in sorted(per_job.items(), key=lambda item: -item[1]):
        found[group] = left * part / whole
    found["rest: staging, rescue, looking for queues"] = watch.calls["rest"]
    return [
        Group(group=group, microseconds=1e6 * spent / jobs, share=spent / seconds) for group, spent in found.items()
    ]


# What cProfile says


def divided(stats: dict[Function, tuple[Any, ...]]) -> dict[str, float]:
    """Own seconds by group; what is not ours counts for whoever of ours called it."""
    shares = _shares(stats)
    found: dict[str, float] = defaultdict(float)
    for function, (_primitive, _calls, own, _whole, _callers) in stats.items():
        for group, share in (shares[function] or {ELSEWHERE: 1.0}).items():
            found[group] += own * share
    return dict(found)


def _shares(stats: dict[Function, tuple[Any, ...]]) -> dict[Function, dict[str, float]]:
    """To which groups functions belong, and how much: their own, or those of their callers by what they cost.

    Handed on from callers round by round, since functions that are not ours may call each other in circles.
    """
    groups = {function: group_of(function[0]) for function in stats}
    shares = {function: {} if group is None else {group: 1.0} for function, group in groups.items()}
    others = [function for function, group in groups.items() if group is None]
    for _ in range(ROUNDS):
        for function in others:
            found: dict[str, float] = defaultdict(float)
            for caller, numbers in stats[function][4].items():
                for group, share in shares.get(caller, {}).items():
                    # A wait that another thread's clock saw can come out as nothing; its caller still is its caller.
                    found[group] += share * max(numbers[3], 1e-9)
            whole = sum(found.values())
            shares[function] = {group: share / whole for group, share in found.items()}
    return shares


def group_of(filename: str) -> str | None:
    """The group of a module, None for one that is neither the package's nor the bench's."""
    path = PurePath(filename)
    if path.is_relative_to(LAB):
        return HANDLER if path.name in {"jobs.py", "tally.py"} else ELSEWHERE
    if not path.is_relative_to(PACKAGE):
        return None
    inside = path.relative_to(PACKAGE).as_posix()
    fitting = [beginning for beginning in GROUPS if inside.startswith(beginning)]
    return GROUPS[max(fitting, key=len)] if fitting else ELSEWHERE


def _functions(stats: dict[Function, tuple[Any, ...]], jobs: int) -> list[Spent]:
    ordered = sorted(stats.items(), key=lambda item: -item[1][2])[:MOST_FUNCTIONS]
    return [
        Spent(function=_name(function), calls=numbers[1] / jobs, microseconds=1e6 * numbers[2] / jobs)
        for function, numbers in ordered
    ]


def _name(function: Function) -> str:
    filename, line, name = function
    if filename == "~":
        return name
    path = PurePath(filename)
    short = path.relative_to(PACKAGE.parent) if path.is_relative_to(PACKAGE) else PurePath(*path.parts[-2:])
    return f"{short.as_posix()}:{line} {name}"
