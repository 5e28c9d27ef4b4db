"""What a batch costs: the same jobs with one and without, in turns, from their dispatch to the end of the last."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from django_jobqueue import batch as make_batch
from django_jobqueue import dispatch_many

from ..jobs import noop
from .figures import Figure
from .session import Session

JOBS = 10_000
# Each comes first as often as the other, so that whatever else the machine does falls on both.
TURNS = (False, True, True, False) * 2
UNIT = "µs a job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Microseconds a job: in all, and of the processor in our processes."""

    total: float
    processor: float


def batch(session: Session) -> Iterator[Figure]:
    """No-op jobs of one batch, with what follows it, against the same by ``dispatch_many``."""
    jobs = min(JOBS, session.jobs)
    costs: dict[bool, list[Cost]] = {False: [], True: []}
    for is_batch in TURNS:
        costs[is_batch].append(_cost(session, jobs, is_batch=is_batch))
    plain, ours = (median(cost.total for cost in costs[is_batch]) for is_batch in (False, True))
    yield Figure(key="batch.plain", label="no-op jobs, dispatch and drain", value=plain, jobs=jobs, unit=UNIT)
    yield Figure(
        key="batch",
        label="the same as a batch",
        value=ours,
        jobs=jobs,
        unit=UNIT,
        against="without a batch",
        limit=plain,
        note=_note(costs),
    )


def _cost(session: Session, jobs: int, *, is_batch: bool) -> Cost:
    target = session.bound(noop)
    with session.tally(jobs + is_batch) as tally:
        calls = [target.s(index) for index in range(jobs)]
        started, processor = time.perf_counter(), time.process_time()
        batch_id = make_batch(calls).then(target.s(jobs)).dispatch().id if is_batch else None
        if batch_id is None:
            dispatch_many(calls)
        seconds, processor = time.perf_counter() - started, time.process_time() - processor
        drained = session.drain(noop.definition.queue, tally)
        if batch_id is not None:
            session.store.forget_batch(batch_id)
    seconds += tally.size / drained.rate_to_end if drained.rate_to_end else 0.0
    processor += drained.microseconds * tally.size / 1e6
    return Cost(total=1e6 * seconds / jobs, processor=1e6 * processor / jobs)


def _note(costs: dict[bool, list[Cost]]) -> str:
    plain, ours = (median(cost.processor for cost in costs[is_batch]) for is_batch in (False, True))
    return f"{ours:.0f} µs of processor a job, and {plain:.0f} without a batch"
