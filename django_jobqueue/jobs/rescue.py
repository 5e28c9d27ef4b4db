"""What becomes of a job whose reservation expired: pure functions that all drivers share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, TypeAlias

from ..exceptions import ReservationLost
from .records import AttemptRecord, Cause

Verdict: TypeAlias = Literal["give_back", "try_again", "dead_letter"]

UNFINISHED_CLASS = f"{ReservationLost.__module__}.{ReservationLost.__qualname__}"


def verdict(
    *,
    alone: bool,
    attempts: int,
    max_attempts: int,
    retry_until: datetime | None,
    now: datetime,
) -> Verdict:
    """Whether the attempt is given back, stays spent, or was the last.

    ``attempts`` counts the lost one. A job of a batch may never have been started, so that nothing
    is spent; a job that was alone is taken to have been in hand.
    """
    if not alone:
        return "give_back"
    if attempts >= max_attempts or (retry_until is not None and now > retry_until):
        return "dead_letter"
    return "try_again"


def verdict_in_hand(
    *, spends: bool, attempts: int, max_attempts: int, retry_until: datetime | None, now: datetime
) -> Verdict:
    """The same of a job that is known to have been started, in a process that has ended.

    It spends the attempt, unless the process was ended because of another job. A job that may run only once is
    not started again in either case.
    """
    if not spends and max_attempts > 1:
        return "give_back"
    return verdict(alone=True, attempts=attempts, max_attempts=max_attempts, retry_until=retry_until, now=now)


def unfinished(
    number: int, worker: str, ready: datetime, started: datetime, now: datetime, cause: Cause | None = None
) -> AttemptRecord:
    """The record of an attempt that nobody saw end; ``number`` counts those so far.

    ``started`` is when the reservation was made, as near as the store knows it.
    """
    if cause is None:
        cause = _lost_worker(number, worker)
    return AttemptRecord(
        number=number,
        worker=worker,
        started=started.astimezone(UTC).isoformat(),
        waited=max(0.0, (started - ready).total_seconds()),
        ran=max(0.0, (now - started).total_seconds()),
        exception_class=cause.exception_class,
        message=cause.message,
        traceback=cause.traceback,
    )


def _lost_worker(number: int, worker: str) -> Cause:
    times = "once" if number == 1 else f"{number} times"
    return Cause(
        exception_class=UNFINISHED_CLASS,
        # Quoted, so that dead letters of one job have one fingerprint whichever worker was lost.
        message=f"Reserved {times} without finishing; its worker {worker!r} was lost.",
    )
