"""How fast workers empty a queue: alone, together, and where a database would slow them down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

from ..jobs import noop, noop_atomic, noop_each, noop_kept, one_millisecond
from .figures import Figure
from .session import LEAST_SECONDS, Drained, Session, drained
from .stores import Unsupported
from .workers import Workers, own_bytes

SLEEPERS = 4
MEBIBYTE = 1024 * 1024
WARM_SHARE = 0.1  # of the jobs: memory that a worker takes once is in use by then


def drain(session: Session) -> Iterator[Figure]:
    """One process and two, against the raw loop, and the commits that one process made."""
    jobs = session.jobs
    raw = session.store.raw_drain(jobs, "slim")
    like = session.store.raw_drain(jobs, "like")
    with session.tally(jobs) as tally:
        session.fill(noop, jobs)
        before = session.store.commits()
        one = session.drain(noop.definition.queue, tally)
        after = session.store.commits()
    two = session.measured_drain(noop, jobs, processes=2)
    yield Figure(key="drain.raw", label="raw: reserve 100, delete 100, small table", value=raw, jobs=jobs)
    yield Figure(key="drain.raw-like", label="raw: the same on a table like ours", value=like, jobs=jobs)
    yield _against_raw("drain.1", "drain, 1 process", one, raw)
    yield Figure(
        key="drain.1-like", label="drain, 1 process", value=one.rate, jobs=jobs, against="raw, like ours", limit=like
    )
    yield Figure(
        key="drain.2",
        label="drain, 2 processes",
        value=two.rate,
        jobs=jobs,
        against="1 process",
        limit=one.rate,
        note=_note(two),
    )
    if before is not None and after is not None:
        yield Figure(
            key="drain.commits",
            label="commits per job",
            value=(after - before) / jobs,
            jobs=jobs,
            unit="commits",
            note=f"counted in {session.store.commits_are_of}",
        )


def each(session: Session) -> Iterator[Figure]:
    """``settle="each"``, against the raw loop that deletes each."""
    jobs = session.jobs
    raw = session.store.raw_drain(jobs, "slim", each=True)
    ours = session.measured_drain(noop_each, jobs)
    yield Figure(key="each.raw", label="raw: reserve 100, delete each, small table", value=raw, jobs=jobs)
    yield _against_raw("each", 'drain of settle="each"', ours, raw)


def promises(session: Session) -> Iterator[Figure]:
    """What a job costs that promises more, against one that does not."""
    jobs = session.jobs
    plain = session.measured_drain(noop, jobs)
    kept = session.measured_drain(noop_kept, jobs)
    yield _against_plain("promises.kept", "drain of jobs that keep a result", kept, plain)
    if session.driver.supports_transactions:
        atomic = session.measured_drain(noop_atomic, jobs)
        yield _against_plain("promises.atomic", "drain of atomic jobs", atomic, plain)


def not_analyzed(session: Session) -> Iterator[Figure]:
    """A table that was just filled and has no statistics, against the same with."""
    rates = {}
    for is_analyzed in (True, False):
        with session.tally(session.jobs) as tally, session.store.fresh_table() as environment:
            session.fill(noop, session.jobs)
            if is_analyzed:
                session.store.analyze()
            rates[is_analyzed] = session.drain(noop.definition.queue, tally, environment=environment).rate
    yield Figure(key="analyzed", label="drain, table analyzed", value=rates[True], jobs=session.jobs)
    yield Figure(
        key="not-analyzed",
        label="drain, table never analyzed",
        value=rates[False],
        jobs=session.jobs,
        against="analyzed",
        limit=rates[True],
    )


def long_reader(session: Session, jobs: int) -> Iterator[Figure]:
    """Somebody holds a snapshot from before the fill, so that no taken row can be swept away."""
    rates = {}
    for is_reading in (False, True):
        with session.tally(jobs) as tally, session.store.long_reader() if is_reading else nullcontext():
            session.fill(noop, jobs)
            rates[is_reading] = session.drain(noop.definition.queue, tally).rate
    yield Figure(key="no-reader", label="drain, nobody reads", value=rates[False], jobs=jobs)
    yield Figure(
        key="long-reader",
        label="drain under a long reader",
        value=rates[True],
        jobs=jobs,
        against="nobody reads",
        limit=rates[False],
    )


def one_ms(session: Session) -> Iterator[Figure]:
    """Jobs that sleep for a millisecond, against the same processes that only call the handler."""
    jobs = max(1, session.jobs // SLEEPERS) * SLEEPERS
    bare = _bare_rate(session, jobs)
    ours = session.measured_drain(one_millisecond, jobs, processes=SLEEPERS)
    yield Figure(key="one-ms.bare", label=f"1 ms handlers called by {SLEEPERS} processes", value=bare, jobs=jobs)
    yield Figure(
        key="one-ms",
        label=f"drain of 1 ms jobs, {SLEEPERS} processes",
        value=ours.rate,
        jobs=jobs,
        against="handlers alone",
        limit=bare,
        note=_note(ours),
    )


def memory(session: Session, jobs: int) -> Iterator[Figure]:
    """How much a worker grows, from a tenth of the jobs on."""
    with session.tally(jobs) as tally:
        warm: list[int] = []

        def look(workers: Workers) -> None:
            if not warm and tally.started() >= jobs * WARM_SHARE:
                warm.extend(filter(None, [own_bytes(workers.process_ids[0])]))

        session.fill(noop, jobs)
        report = session.drain(noop.definition.queue, tally, tick=look).reports[0]
    if not report.memory_after:
        raise Unsupported("this system has no /proc, which tells what memory a process uses")
    first = warm[0] if warm else report.memory_before
    yield Figure(
        key="memory",
        label="growth of a worker's memory",
        value=(report.memory_after - first) / MEBIBYTE,
        jobs=jobs,
        unit="MiB",
        note=f"{report.memory_after / MEBIBYTE:.1f} MiB at the end; "
        f"measured from {'a tenth of the jobs' if warm else 'the start'} on",
    )


def _bare_rate(session: Session, jobs: int) -> float:
    share = jobs // SLEEPERS
    with session.tally(jobs) as tally:

        def options(number: int) -> list[str]:
            return ["--bare", one_millisecond.definition.name, str(number * share), str((number + 1) * share)]

        with session.workers(SLEEPERS, tally, options) as workers:
            workers.open_gate()
            reports = workers.wait(LEAST_SECONDS + jobs * 0.01)
        session.check(tally)
        return drained(tally, reports).rate


def _against_raw(key: str, label: str, ours: Drained, raw: float) -> Figure:
    return Figure(
        key=key, label=label, value=ours.rate, jobs=ours.jobs, against="raw, small table", limit=raw, note=_note(ours)
    )


def _against_plain(key: str, label: str, ours: Drained, plain: Drained) -> Figure:
    return Figure(
        key=key, label=label, value=ours.rate, jobs=ours.jobs, against="no-op jobs", limit=plain.rate, note=_note(ours)
    )


def _note(ours: Drained) -> str:
    return f"{ours.microseconds:.0f} µs of processor a job; {ours.rate_to_end:,.0f}/s to the end of the workers"
