"""The heart: one attempt of one job, as the list of steps in the order in which they happen.

``execute`` does not end because of what a job did: whatever a handler raises, ``sys.exit`` and KeyboardInterrupt
included, is how its attempt ended. An atomic job is settled here, in its own transaction; every other is handed
to the desk, which settles by the slice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from traceback import clear_frames
from typing import Any

from django.db import transaction

from ..drivers import Driver
from ..exceptions import InvalidConnection, JobQueueError, ReservationLost
from ..jobs.context import FailedByHandler, ReleaseRequest, running_job
from ..jobs.flows import read
from ..jobs.payloads import decode, values_at
from ..jobs.records import Complete, Fail, Release, Reservation, Settlement
from ..jobs.registry import registry
from ..signals import job_starting
from .attempt import Attempt, Ended
from .desk import Desk
from .options import WorkerOptions
from .surroundings import Surroundings
from .timeouts import Limit


def execute(
    job: Reservation,
    driver: Driver,
    desk: Desk,
    options: WorkerOptions,
    reserved: float,
    surroundings: Surroundings,
    limit: Limit,
) -> None:
    """Run one reserved job and see to it that its end is settled.

    ``reserved`` is the moment of ``time.monotonic()`` at which the reservation arrived. Raises the store's
    outages only; what was to be settled then stays with the desk.
    """
    attempt = Attempt(job, options, registry.find(job.name), reserved, desk)
    _announce_start(attempt, driver)
    if attempt.is_atomic:
        ended = _run_atomic(attempt, driver, surroundings, limit, desk.now)
    else:
        ended = _run(attempt, surroundings, limit)
    desk.hand_in(ended)


def _run(attempt: Attempt, surroundings: Surroundings, limit: Limit) -> Ended:
    settlement: Settlement
    try:
        settlement = attempt.complete(surroundings.run_clean(_handler_call(attempt, limit)))
    except BaseException as error:
        settlement = _settlement_of(error, attempt)
    return attempt.end(settlement)


def _run_atomic(
    attempt: Attempt, driver: Driver, surroundings: Surroundings, limit: Limit, now: datetime | None
) -> Ended:
    """Commit the handler's writes and the job's end together, or neither.

    The row's lock is the lease, held to the end. A handler that raises undoes its own writes only. Where the
    transaction itself is gone, or was left open, the end is handed to the desk, fenced by the token like any other.
    """
    settlement: Settlement | None = None  # of a handler that did not succeed
    completed = Complete(attempt.job)
    committed: list[bool] = []

    def in_one_transaction() -> None:
        nonlocal settlement, completed
        with transaction.atomic(using=database):
            transaction.on_commit(lambda: committed.append(True), using=database)
            if not driver.lock(attempt.job):
                raise ReservationLost(f"The job {attempt.job.id} was taken by another worker before it started.")
            try:
                with transaction.atomic(using=database):
                    completed = attempt.complete(call())
                    _check_writes_stay(database, attempt)
            except BaseException as error:
                settlement = _settlement_of(error, attempt)
            if not driver.settle([settlement or completed], now=now):
                raise ReservationLost(f"The job {attempt.job.id} was taken from this worker while it ran.")

    try:
        database = _joinable_database(driver, attempt)
        is_outermost = not driver.in_transaction()
        call = _handler_call(attempt, limit)
        surroundings.run_clean(in_one_transaction)
        if is_outermost and not committed:
            raise JobQueueError(f"The atomic job {attempt.job.name!r} left a transaction open; it was rolled back.")
    except ReservationLost:
        return attempt.end(Complete(attempt.job))  # refused by the fence, and counted as lost
    except BaseException as error:
        if not committed:
            return attempt.end(settlement or _settlement_of(error, attempt))
        # An on_commit callback: the effects are there to stay, so that another attempt would double them.
        settlement = Fail(attempt.job, attempt.record(error))
        driver.bury(attempt.job, settlement.record, now=now)
    return attempt.end(settlement or completed, is_settled=True)


def _handler_call(attempt: Attempt, limit: Limit) -> Callable[[], Any]:
    """The call that runs the handler; raises what makes the attempt fail before it."""
    job = attempt.job
    if job.attempt > attempt.max_attempts:
        raise JobQueueError(f"Reserved {job.attempt} times; {attempt.max_attempts} attempts are allowed.")
    definition = attempt.definition or registry.get(job.name)
    args, kwargs = decode(job.payload, job.format)
    if job.flow is not None:
        attempt.flow = read(job.flow)  # what cannot follow the job is to be known before it runs
    attempt.secrets = values_at(job.masked, args, kwargs)

    def call() -> Any:
        running_job.set(attempt)
        context = attempt.context if definition.takes_context else None
        return limit.run(job, attempt.timeout, lambda: definition.call(context, args, kwargs))

    return call


def _settlement_of(error: BaseException, attempt: Attempt) -> Release | Fail:
    """What a raised error makes of the job; nothing of the error itself is kept, only its text."""
    try:
        if isinstance(error, ReleaseRequest):
            return Release(attempt.job, error.delay)
        if isinstance(error, FailedByHandler):
            return attempt.fail(attempt.record(error))
        return attempt.conclude(error)
    finally:
        # A cycle, as asgiref makes one, would keep the handler's objects alive until the collector finds it.
        clear_frames(error.__traceback__)


def _check_writes_stay(database: str, attempt: Attempt) -> None:
    """Leaving a block that is marked for rollback raises nothing: the job would end without its writes."""
    if transaction.get_rollback(using=database):
        raise JobQueueError(
            f"The atomic job {attempt.job.name!r} swallowed a database error, or closed its connection, so that its "
            "writes are undone. Let the error through, or give the statement an atomic() block of its own."
        )


def _joinable_database(driver: Driver, attempt: Attempt) -> str:
    if not driver.supports_transactions or driver.database is None:
        raise InvalidConnection(
            f"The job {attempt.job.name!r} is atomic, but the connection {driver.alias!r} is no database that its "
            "transaction could include; dispatch it to one that is, or drop atomic=True."
        )
    return driver.database


def _announce_start(attempt: Attempt, driver: Driver) -> None:
    if job_starting.receivers:
        driver.send(job_starting, waited=attempt.waited, **attempt.identity)
