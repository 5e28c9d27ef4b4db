"""What it costs to dispatch: one by one, many at once, and from many connections at the same time.

Everything that was dispatched is run afterwards, so that a fast dispatch that loses jobs does not pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from statistics import harmonic_mean
from threading import Barrier, Thread
from typing import Any

from django.conf import settings
from django.db import connections
from django.test.utils import override_settings

from django_jobqueue.conf import Settings

from ..jobs import noop
from .figures import Figure
from .session import Session
from .stores import Unsupported
from .tally import Tally

# Turns of ours and the ORM's, so that whatever else the machine does falls on both.
TURNS = 10
ONE_BY_ONE_SHARE = 4
CHUNK = 1_000
CONNECTIONS = 16
# Each comes first once and last once.
NOTIFY_TURNS = (False, True, True, False)


def dispatch(session: Session) -> Iterator[Figure]:
    """One by one, against a bare ``Job.objects.create()``."""
    turns = min(TURNS, session.jobs)
    size = max(1, session.jobs // ONE_BY_ONE_SHARE // turns)
    target = session.bound(noop)
    ours = theirs = 0.0
    with session.tally(turns * size) as tally:
        for turn in range(turns):
            indexes = range(turn * size, (turn + 1) * size)
            ours += _seconds(partial(_for_each, indexes, target.dispatch))
            theirs += _seconds(partial(_for_each, indexes, session.store.create))
        _run_all(session, tally)
        jobs = tally.size
    yield Figure(key="dispatch.orm", label=session.store.create_label, value=jobs / theirs, jobs=jobs, unit="rows/s")
    yield Figure(
        key="dispatch",
        label="dispatch, one by one",
        value=jobs / ours,
        jobs=jobs,
        against=session.store.create_label,
        limit=jobs / theirs,
    )


def dispatch_many(session: Session) -> Iterator[Figure]:
    """Many calls at once, against ``bulk_create`` and the raw insert of like rows."""
    jobs = session.jobs
    with session.tally(jobs) as tally:
        ours = jobs / _seconds(lambda: session.fill(noop, jobs))
        _run_all(session, tally)
    bulk = jobs / _seconds(lambda: session.store.create_many(jobs))
    session.store.clean()
    raw = session.store.raw_insert(jobs)
    yield Figure(key="dispatch-many.orm", label=session.store.create_many_label, value=bulk, jobs=jobs, unit="rows/s")
    yield Figure(key="dispatch-many.raw", label="raw insert of like rows", value=raw, jobs=jobs, unit="rows/s")
    yield Figure(key="dispatch-many", label="dispatch_many", value=ours, jobs=jobs, against="raw insert", limit=raw)
    yield Figure(
        key="dispatch-many.bulk",
        label="dispatch_many",
        value=ours,
        jobs=jobs,
        against=session.store.create_many_label,
        limit=bulk,
    )


def at_once(session: Session) -> Iterator[Figure]:
    """Sixteen connections at once, with NOTIFY and without."""
    if session.store.vendor != "postgresql":
        raise Unsupported("only PostgreSQL has NOTIFY")
    if "notify" not in {field.name for field in fields(Settings)}:
        raise Unsupported("JOBQUEUE has no key NOTIFY yet")
    rates: dict[bool, list[float]] = {False: [], True: []}
    for is_on in NOTIFY_TURNS:
        with override_settings(JOBQUEUE={**settings.JOBQUEUE, "NOTIFY": is_on}):
            rates[is_on].append(_rate_at_once(session))
    silent, notifying = harmonic_mean(rates[False]), harmonic_mean(rates[True])
    jobs = _at_once_jobs(session)
    yield Figure(
        key="connections.silent", label=f"dispatch, {CONNECTIONS} connections, no NOTIFY", value=silent, jobs=jobs
    )
    yield Figure(
        key="connections.notify",
        label=f"dispatch, {CONNECTIONS} connections, NOTIFY",
        value=notifying,
        jobs=jobs,
        against="without NOTIFY",
        limit=silent,
    )


def _at_once_jobs(session: Session) -> int:
    return max(1, session.jobs // ONE_BY_ONE_SHARE // CONNECTIONS) * CONNECTIONS


def _rate_at_once(session: Session) -> float:
    jobs = _at_once_jobs(session)
    each = jobs // CONNECTIONS
    target = session.bound(noop)
    barrier = Barrier(CONNECTIONS + 1)
    failures: list[BaseException] = []

    def dispatch_own(first: int) -> None:
        try:
            connections[session.store.alias].ensure_connection()
            barrier.wait()
            for index in range(first, first + each):
                target.dispatch(index)
        except BaseException as error:
            failures.append(error)
            barrier.abort()
        finally:
            connections.close_all()

    with session.tally(jobs) as tally:
        threads = [Thread(target=dispatch_own, args=(number * each,)) for number in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        seconds = _seconds(lambda: [thread.join() for thread in threads], after=barrier)
        if failures:
            raise failures[0]
        _run_all(session, tally)
    return jobs / seconds


def _run_all(session: Session, tally: Tally) -> None:
    session.drain(noop.definition.queue, tally)


def _for_each(indexes: Iterable[int], work: Callable[[int], Any]) -> None:
    for index in indexes:
        work(index)


def _seconds(work: Callable[[], Any], *, after: Barrier | None = None) -> float:
    if after is not None:
        after.wait()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
