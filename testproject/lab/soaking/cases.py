"""What the history and the store say of each job, gathered by its key: pure functions over plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from . import history
from .history import How, Record, Trouble
from .kinds import CHILD, KINDS


class Waiting(NamedTuple):
    """A row of the queue."""

    key: str
    state: str


class DeadLetter(NamedTuple):
    key: str
    attempts: int
    exception_class: str


class Effect(NamedTuple):
    """What an atomic job has written."""

    key: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What the store holds when all is over."""

    waiting: list[Waiting] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    #: The names of the batches that have not ended.
    batches: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Holding:
    """One reservation of one job. It is valid for certain from ``at`` to ``until``; ``over`` is when it was given up.

    ``ended`` is how the store has ended it, None when it did not, or nobody saw it; ``ended_at`` is the answer's time.
    """

    token: str
    worker: str
    pid: int
    alone: bool
    attempt: int
    asked: float
    at: float
    until: float
    over: float = float("inf")
    ended: How | None = None
    ended_at: float = 0.0
    asking: list[tuple[float, float]] = field(default_factory=list)

    @property
    def valid_until(self) -> float:
        return min(self.until, self.over)


@dataclass(slots=True, kw_only=True)
class Run:
    """``end`` is None when the handler was not seen to end."""

    token: str
    id: str
    pid: int
    attempt: int
    start: float
    end: float | None = None
    done: bool = False


@dataclass(slots=True, kw_only=True)
class Case:
    """All that is known of one job; ``committed`` is None when nobody knows, or when nobody dispatched it."""

    key: str
    kind: str = ""
    delay: float = 0.0
    asked: float = 0.0
    transaction: str = ""
    is_known: bool = False
    committed: bool | None = None
    parent: str = ""
    runs: list[Run] = field(default_factory=list)
    holdings: dict[str, Holding] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    @property
    def is_atomic(self) -> bool:
        return self.kind in KINDS and KINDS[self.kind].is_atomic

    @property
    def was_stored(self) -> bool:
        """Whether it has left any trace beyond its dispatch."""
        return bool(self.runs or self.holdings or self.waiting or self.dead_letters or self.effects)


class Rescue(NamedTuple):
    """Jobs of this process, whose reservations had expired, were made ready again."""

    pid: int
    at: float


@dataclass(slots=True, kw_only=True)
class Book:
    """The cases by their keys, which of them make a flow, and what was done to the processes."""

    cases: dict[str, Case]
    flows: list[history.Flow]
    batches: list[str]
    troubles: list[Trouble]
    reserves: list[float]
    rescues: list[Rescue]


def gather(records: Iterable[Record], content: Content, *, retry_after: float) -> Book:
    """Everything by key, the runs and reservations of each in the order of time."""
    sorted_records = sorted(records, key=_moment)
    book = _Gathering(retry_after)
    for record in sorted_records:
        book.add(record)
    for row in content.waiting:
        book.case(row.key).waiting.append(row)
    for letter in content.dead_letters:
        book.case(letter.key).dead_letters.append(letter)
    for effect in content.effects:
        book.case(effect.key).effects.append(effect)
    book.join_children()
    book.end_with_their_workers()
    return Book(
        cases=book.cases,
        flows=book.flows,
        batches=content.batches,
        troubles=book.troubles,
        reserves=book.reserves,
        rescues=book.rescues,
    )


def _moment(record: Record) -> float:
    """When a record was written, or for what has a length, when it began."""
    if isinstance(record, Trouble):
        return record.begun
    return record.asked if isinstance(record, history.Settling) else record.at


class _Gathering:
    """Each record is of one kind, and says something of a few cases."""

    def __init__(self, retry_after: float) -> None:
        self.cases: dict[str, Case] = {}
        self.flows: list[history.Flow] = []
        self.troubles: list[Trouble] = []
        self.reserves: list[float] = []
        self.rescues: list[Rescue] = []
        self._retry_after = retry_after
        self._transactions: dict[str, list[Case]] = {}
        self._joined: dict[tuple[str, str], list[Case]] = {}

    def case(self, key: str) -> Case:
        return self.cases.setdefault(key, Case(key=key))

    def add(self, record: Record) -> None:
        getattr(self, f"_add_{type(record).__name__.lower()}")(record)

    def join_children(self) -> None:
        """A child was committed with its parent's effect, by the very run that dispatched it, or not at all."""
        for (parent, token), children in self._joined.items():
            committed = any(effect.token == token for effect in self.case(parent).effects)
            for child in children:
                child.committed = committed

    def _add_dispatching(self, record: history.Dispatching) -> None:
        for job in record.jobs:
            case = self.case(job.key)
            case.kind, case.delay, case.asked, case.is_known = job.kind, job.delay, record.at, True
            case.transaction = record.transaction
            self._transactions.setdefault(record.transaction, []).append(case)

    def _add_flow(self, record: history.Flow) -> None:
        self.flows.append(record)

    def _add_ended(self, record: history.Ended) -> None:
        committed = {"committed": True, "rolled back": False, "unknown": None}[record.outcome]
        for case in self._transactions.get(record.transaction, ()):
            case.committed = committed

    def _add_child(self, record: history.Child) -> None:
        case = self.case(record.key)
        case.kind, case.asked, case.is_known, case.parent = CHILD, record.at, True, record.parent
        self._joined.setdefault((record.parent, record.token), []).append(case)

    def _add_started(self, record: history.Started) -> None:
        run = Run(token=record.token, id=record.id, pid=record.pid, attempt=record.attempt, start=record.at)
        self.case(record.key).runs.append(run)

    def _add_finished(self, record: history.Finished) -> None:
        for run in reversed(self.case(record.key).runs):
            if run.token == record.token and run.end is None:
                run.end, run.done = record.at, record.done
                return

    def _add_reserved(self, record: history.Reserved) -> None:
        self.reserves.append(record.at)
        for key, attempt in record.jobs:
            self.case(key).holdings[record.token] = Holding(
                token=record.token,
                worker=record.worker,
                pid=record.pid,
                alone=record.alone,
                attempt=attempt,
                asked=record.asked,
                at=record.at,
                until=record.asked + self._retry_after,
            )

    def _add_renewed(self, record: history.Renewed) -> None:
        """One that may have expired before the answer counts for nothing, and of an atomic job none: it is skipped."""
        for key, token in record.jobs:
            case = self.case(key)
            held = case.holdings.get(token)
            if held is not None and record.at <= held.until and not case.is_atomic:
                held.until = record.asked + self._retry_after

    def _add_settling(self, record: history.Settling) -> None:
        for key, token in record.jobs:
            held = self.case(key).holdings.get(token)
            if held is not None:
                held.over = min(held.over, record.asked)
                held.asking.append((record.asked, float("inf")))

    def _add_settled(self, record: history.Settled) -> None:
        for key, token, how, owned in record.jobs:
            case = self.case(key)
            held = case.holdings.get(token)
            if held is None:
                continue
            self._answer(held, record.asked, record.at)
            if owned and not record.joined:
                held.ended, held.ended_at = how, record.at

    def _add_handedback(self, record: history.HandedBack) -> None:
        for key, token, owned in record.jobs:
            held = self.case(key).holdings.get(token)
            if held is not None:
                self._answer(held, record.asked, record.at)
                if owned:
                    held.ended, held.ended_at = "release", record.at

    def _answer(self, held: Holding, asked: float, at: float) -> None:
        held.asking = [(begun, at if begun == asked else answered) for begun, answered in held.asking]

    def _add_rescued(self, record: history.Rescued) -> None:
        self.rescues += [Rescue(history.pid_of(worker), record.at) for _, worker in record.jobs]

    def _add_trouble(self, record: Trouble) -> None:
        self.troubles.append(record)

    def end_with_their_workers(self) -> None:
        """Whoever is dead holds nothing, so that a supervisor may pass its jobs on at once."""
        killed = {trouble.pid: trouble.begun for trouble in self.troubles if trouble.kind == "kill"}
        for case in self.cases.values():
            for held in case.holdings.values():
                if held.asked <= killed.get(held.pid, 0.0):
                    held.over = min(held.over, killed[held.pid])
