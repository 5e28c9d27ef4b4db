"""The driver contract: where jobs wait, and every way in which one moves.

The contract is internal: it may change in any release. A driver stores and moves; it never logs, sends a
signal, reads a setting or knows what a handler is. Every write to a reservation names its id and its token,
and says which of the jobs were still ours. ``now`` is the store's own clock unless a moment is given, so that
tests own time. Methods take and return the values of ``jobs.records``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from django.dispatch import Signal

from ..jobs.records import (
    AttemptRecord,
    BatchRecord,
    Cause,
    ClosedBatch,
    FailedSummary,
    JobRecord,
    NewBatch,
    NewJob,
    Position,
    QueueSize,
    Release,
    Rescued,
    Reservation,
    Reserved,
    ReserveLimit,
    ResultRecord,
    Settlement,
)
from .progress import NoProgress, ProgressStore

if TYPE_CHECKING:
    from .ledger import Ledger

STAGE_LIMIT = 500
RESCUE_LIMIT = 500
PRUNE_LIMIT = 500
SWEEP_LIMIT = 100
CANCEL_LIMIT = 500

#: For how many seconds the result of a job of this name is kept, 0 for not at all.
KeepFor: TypeAlias = Callable[[str], float]


def keep_nothing(name: str) -> float:
    """Of a job that goes without an end: it lives on elsewhere."""
    return 0


class Waiter(Protocol):
    """Somebody who pauses until there may be a job."""

    def wake(self) -> None:
        """End the pause early, from any thread; called just before a pause, it ends that one."""


class Ear(Protocol):
    """Where news from other processes arrives: watched by whichever thread waits first, for all who listen."""

    def begin(self, on_free: Callable[[], None] | None = None) -> int | None:
        """Listen until ``end``; return the file descriptor to watch, None where there is nothing to listen to now.

        That is so too while another thread listens; when that ends, it calls ``on_free``, which must not block. The
        first one connects, and waits for the server as any call does.
        """

    def hear(self) -> None:
        """What is watched can be read: wake those who are meant. Never blocks, as ``drain``."""

    def end(self) -> None:
        """Listen no longer."""

    def drain(self) -> None:
        """Now and then while nobody waits: take what came."""


class Namespace(NamedTuple):
    """What tells the jobs of one connection from those of others; ``is_chosen`` unless it is a default."""

    server: str
    prefix: str
    is_chosen: bool


class Driver(ABC):
    """One configured connection."""

    #: What CONNECTIONS and the signals call it.
    name: ClassVar[str] = ""
    #: Whether a push joins the caller's transaction on ``database``.
    supports_transactions: ClassVar[bool] = False
    #: Whether a worker of another process sees the same jobs.
    is_shared: ClassVar[bool] = True
    #: Whether it keeps batches: all methods under "Batches" below.
    supports_batches: ClassVar[bool] = False
    #: The errors that mean that the store is out of reach or busy, not that the caller erred.
    outages: ClassVar[tuple[type[BaseException], ...]] = ()
    #: Those of them that say that a value can never be stored: repeating is in vain.
    refusals: ClassVar[tuple[type[BaseException], ...]] = ()

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        """``options`` is the entry of CONNECTIONS; raises InvalidConnection for one that cannot work."""
        self.alias = alias
        #: Whether to tell other processes of new jobs, where the store can.
        self.notifies = True
        #: What ``database`` keeps beside the jobs; None without a database.
        self.ledger: Ledger | None = None
        #: What keeps how far its jobs are.
        self.progress: ProgressStore = NoProgress()
        self._listeners: tuple[tuple[Waiter, frozenset[str] | None], ...] = ()
        #: What those who listen have to watch in their waits; None where news comes by itself.
        self.ear: Ear | None = None

    @property
    @abstractmethod
    def database(self) -> str | None:
        """The DATABASES alias that holds this connection's tables, None when there is none."""

    @property
    def kind(self) -> str:
        """What the store is, for people; empty when there is nothing to say."""
        return ""

    @property
    def namespace(self) -> Namespace | None:
        """Where its jobs lie on a server that others use too; None where nobody else could mistake them."""
        return None

    def send(self, signal: Signal, **facts: object) -> None:
        """Send a signal about something on this connection, with what tells which one that is."""
        signal.send_robust(type(self), connection=self.alias, driver=self.name, **facts)

    # Dispatch

    @abstractmethod
    def push(self, jobs: Sequence[NewJob], *, now: datetime | None = None) -> set[UUID]:
        """Store all or none; return the ids that were stored. An id that is there already is left alone."""

    # A worker's turn

    @abstractmethod
    def queues(self) -> list[str]:
        """The names of the queues that hold a job, sorted; its cost does not grow with the number of jobs."""

    @abstractmethod
    def stage(self, queue: str, *, limit: int = STAGE_LIMIT, now: datetime | None = None) -> int:
        """Make due scheduled jobs ready, the earliest first, at most ``limit``; return how many."""

    @abstractmethod
    def reserve(
        self,
        queue: str,
        worker: str,
        limit: ReserveLimit,
        *,
        retry_after: float,
        after: Position | None = None,
        now: datetime | None = None,
    ) -> Reserved:
        """Take leading ready jobs, as ``limit`` allows, for ``retry_after`` seconds; each spends an attempt.

        ``after`` is a hint: jobs at or before that position were taken by an earlier reserve.
        """

    @abstractmethod
    def renew(
        self, reservations: Collection[Reservation], *, retry_after: float, now: datetime | None = None
    ) -> set[UUID]:
        """Hold on for ``retry_after`` seconds from now; return the ids known to be lost."""

    @abstractmethod
    def still_held(self, reservations: Collection[tuple[UUID, UUID]]) -> set[tuple[UUID, UUID]]:
        """Those of the ids and tokens whose reservation is still that one; it takes no lock, and waits for none."""

    @abstractmethod
    def hand_back(self, reservations: Collection[Reservation]) -> set[UUID]:
        """Return jobs that were never started, nothing spent, to where they stood; return the ids that were ours."""

    @abstractmethod
    def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> set[UUID]:
        """End reservations in one transaction; return the ids that were ours.

        What follows a job, and its result, is stored in the same transaction, for those only. A result of an id that
        has one already replaces it, and has with it the errors of the job's failed attempts. A dead letter, here and in
        a rescue, keeps ``flows.uncaught`` of the job's flow, which a retry gives back.

        A member of a batch leaves it, moves on or has failed in the same transaction; a cancel and a clear make members
        cancelled, and a retry makes one that has failed pending again.
        """

    def lock(self, reservation: Reservation) -> bool:
        """Hold a reserved job to the end of the caller's transaction; False when the reservation was lost.

        Only for drivers with ``supports_transactions``, whose ``settle`` joins that transaction too.
        """
        raise NotImplementedError

    def bury(self, reservation: Reservation, record: AttemptRecord, *, now: datetime | None = None) -> None:
        """Keep a dead letter of a job that its own transaction has removed already; as ``lock``."""
        raise NotImplementedError

    @abstractmethod
    def rescue(self, *, max_attempts: int, limit: int = RESCUE_LIMIT, now: datetime | None = None) -> list[Rescued]:
        """Deal with expired reservations of all queues: back to ready, or a dead letter.

        The attempt is spent only where the reservation was alone; ``max_attempts`` applies to jobs that were
        given none. With a dead letter what ``flows.caught`` says is stored in the same transaction.
        """

    @abstractmethod
    def rescue_in_hand(
        self,
        job_id: UUID,
        token: UUID,
        *,
        max_attempts: int,
        spends: bool = True,
        cause: Cause | None = None,
        now: datetime | None = None,
    ) -> Rescued | None:
        """Deal at once with a job that was started by a process that has ended: ready again, or a dead letter.

        Without ``spends`` the attempt is given back where the job may run more than once, and nothing is counted.
        ``cause`` is recorded instead of the loss of the worker. None when the reservation was no longer that one.
        Waits for the lock of an atomic job, which the store frees when it notices that the process has ended.
        """

    @abstractmethod
    def release_worker(self, worker: str, *, but: Collection[UUID] = (), now: datetime | None = None) -> int:
        """Hand back everything that one worker identity holds and never started; return how many.

        ``but`` are the ids of those that were started.
        """

    # What people do

    @abstractmethod
    def cancel(
        self, job_id: UUID, *, keep_for: KeepFor = keep_nothing, now: datetime | None = None
    ) -> JobRecord | None:
        """Remove a job that is not reserved and return it; None when there is none, or it is reserved.

        Here, in a clear and in the cancel of a batch: of jobs that keep their result one with the state "cancelled"
        is stored in the same transaction.
        """

    @abstractmethod
    def clear(self, queue: str, *, limit: int, keep_for: KeepFor = keep_nothing, now: datetime | None = None) -> int:
        """Remove at most ``limit`` jobs of a queue that are not reserved; return how many."""

    @abstractmethod
    def get(self, job_id: UUID) -> JobRecord | None:
        """A waiting or running job, else its dead letter, else None."""

    @abstractmethod
    def peek(self, queue: str, *, limit: int) -> list[JobRecord]:
        """The first ready jobs of a queue, in the order of running."""

    @abstractmethod
    def waiting(self, queue: str, *, limit: int) -> list[JobRecord]:
        """The first jobs of a queue that are not reserved, the ready ones first, in the order of running."""

    @abstractmethod
    def sizes(self, *, now: datetime | None = None) -> dict[str, QueueSize]:
        """The size of every queue that holds a job or a dead letter, by name."""

    def slowdowns(self) -> list[str]:
        """What in the store slows its queues down, each with the cure."""
        return []

    # Dead letters

    @abstractmethod
    def failed(
        self,
        *,
        numbers: Collection[int] | None = None,
        job_id: UUID | None = None,
        ending: str | None = None,
        queue: str | None = None,
        up_to: int | None = None,
        after: int = 0,
        newest_first: bool = False,
        limit: int = 500,
    ) -> list[FailedSummary]:
        """Dead letters by number, ascending unless ``newest_first``; all conditions given must hold.

        ``after`` and ``up_to`` bound the number: with them a set is walked in pages, frozen against newcomers.
        ``ending`` matches the end of the UUID as text.
        """

    @abstractmethod
    def failed_count(self, *, queue: str | None = None) -> int:
        """How many dead letters there are."""

    @abstractmethod
    def last_failed_number(self) -> int:
        """The greatest number of a dead letter, 0 when there is none."""

    @abstractmethod
    def retry(self, retry_for: Mapping[int, float | None], *, now: datetime | None = None) -> set[int]:
        """Put dead letters, by number, back on their queues, ready now with no attempt used.

        The value is the new ``retry_until`` in seconds from now, None for no limit. Returns the numbers that
        were there, each job exactly once whoever else retries at the same time.
        """

    @abstractmethod
    def forget(self, numbers: Iterable[int]) -> set[int]:
        """Delete dead letters by number; return the numbers that were there."""

    # Results

    def get_result(self, job_id: UUID, *, now: datetime | None = None) -> ResultRecord | None:
        """The result of a job that succeeded or was cancelled, None when it kept none or its time is over."""
        return None

    def prune_results(self, *, limit: int = PRUNE_LIMIT, now: datetime | None = None) -> int:
        """Delete results whose time is over, the oldest first, at most ``limit``; return how many.

        In one short transaction that waits for nobody: any number of processes may prune at once. 0 where the store
        lets results expire by itself.
        """
        return 0

    # Batches

    def create_batch(self, batch: NewBatch, job_ids: Sequence[UUID], *, now: datetime | None = None) -> None:
        """Store a batch with its members, whose jobs are pushed afterwards, with its id in their flow."""
        raise NotImplementedError

    def join_batch(self, batch_id: UUID, job_ids: Sequence[UUID]) -> bool:
        """Make more jobs members of a batch, before they are pushed; False when it has ended or was cancelled."""
        raise NotImplementedError

    def awaited_members(self, batch_id: UUID, job_ids: Sequence[UUID]) -> set[UUID]:
        """Members whose jobs were never pushed: left by a crash, where a batch and its jobs are no one transaction.

        There a push leaves its other members alone: they are there, or have ended.
        """
        return set()

    def close_batch(self, batch_id: UUID, *, now: datetime | None = None) -> ClosedBatch | None:
        """End a batch that has no pending member, and store its callbacks, in one transaction; None when it has one.

        Exactly one of those who call it for a batch gets the batch.
        """
        raise NotImplementedError

    def sweep_batches(
        self, *, limit: int = SWEEP_LIMIT, keep_for: KeepFor = keep_nothing, now: datetime | None = None
    ) -> list[ClosedBatch]:
        """End batches that a crash has left open, and remove what waits in cancelled ones, ``limit`` of each."""
        return []

    def get_batch(self, batch_id: UUID) -> BatchRecord | None:
        """A batch with its numbers, None when there is none."""
        return None

    def cancel_batch(
        self,
        batch_id: UUID,
        *,
        limit: int = CANCEL_LIMIT,
        keep_for: KeepFor = keep_nothing,
        now: datetime | None = None,
    ) -> int:
        """Mark an open batch as cancelled, and remove at most ``limit`` of its jobs that wait; return how many."""
        raise NotImplementedError

    def prune_batches(self, *, older_than: float, limit: int = PRUNE_LIMIT, now: datetime | None = None) -> int:
        """Delete batches that ended ``older_than`` seconds ago, at most ``limit``; as ``prune_results``."""
        return 0

    # Waiting

    def listen(self, waiter: Waiter, queues: Collection[str] | None = None) -> None:
        """Wake the waiter from now on when a job of ``queues`` may have become ready, None for any.

        A hint: it may come for nothing, and may fail to come, so that a worker polls all the same.
        """
        self._listeners = (*self._listeners, (waiter, None if queues is None else frozenset(queues)))

    @property
    def has_listeners(self) -> bool:
        """Whether somebody in this process listens."""
        return bool(self._listeners)

    def unlisten(self, waiter: Waiter) -> None:
        """Wake the waiter no longer."""
        self._listeners = tuple(listener for listener in self._listeners if listener[0] is not waiter)

    def wake_listeners(self, queue: str) -> None:
        """Wake those in this process who listen for a queue."""
        for waiter, queues in self._listeners:
            if queues is None or queue in queues:
                waiter.wake()

    def is_busy(self, error: BaseException) -> bool:
        """Whether one of ``outages`` only says that somebody else holds a lock: try again at the next tick."""
        return False

    def in_transaction(self) -> bool:
        """Whether this thread is in a transaction of the store, so that no other thread sees what it does."""
        return False

    def session(self) -> int | None:
        """This thread's session with the store, for ``end_session``; None when there is none to end."""
        return None

    def end_session(self, session: int | None) -> None:
        """End the session of another thread from this one: its transaction is undone, and its locks are free."""
        return

    def close(self) -> None:
        """Let go of this thread's sockets, when there are any; the next use opens them anew."""
        return

    def store_id(self) -> str | None:
        """What the store, when it is asked, calls itself, by whatever name the settings know it; None if it does not.

        Of connections with a ``namespace``.
        """
        return None

    def risks(self) -> list[tuple[str, str]]:
        """How the store, as it is set up, may lose jobs or hang, and the cure of each. Asks the store."""
        return []

    def setting_problems(self) -> list[str]:
        """Those of ``problems`` that the settings alone tell, so that no time mends them. Asks nobody."""
        return []

    def problems(self) -> list[str]:
        """Why this connection cannot work for a worker of another process, each with its cure."""
        return []

    def row_problems(self) -> list[str]:
        """Why nobody can look at what it keeps in its database, which may be less than ``problems``."""
        return self.problems()


def ready_queues(settlements: Iterable[Settlement]) -> set[str]:
    """The queues in which a settled job, or what follows one, is ready now."""
    found = set()
    for item in settlements:
        if not isinstance(item, Release):
            found |= {job.queue for job in item.then if is_ready_at_once(job)}
        elif not item.delay:
            found.add(item.reservation.queue)
    return found


def is_ready_at_once(job: NewJob) -> bool:
    return not job.delay and job.available_at is None
