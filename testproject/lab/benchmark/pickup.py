"""How long a job waits for an idle worker: from before ``dispatch()`` to the handler's first instruction."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..jobs import mixed, noop, one_millisecond
from .figures import Figure, percentile
from .session import Session
from .stores import Unsupported
from .tally import Tally
from .workers import WorkerFailed

SAMPLES = 200
WARM_UP = 5
IDLE_SECONDS = 1.5  # more than the poll interval: the worker has found nothing since
GAPS = (0.02, 0.08)
LONGEST_WAIT = 60.0
PERCENTILES = (50, 95, 99)
# Mostly short, as jobs are: of ten, six do nothing, three take 1 ms and one takes 10 ms.
MIX = (0, 0, 0, 0, 0, 0, 1, 1, 1, 10)

Send = Callable[[int], Any]


def pickup(session: Session) -> Iterator[Figure]:
    chance = random.Random(1)
    sleeper = session.bound(mixed)
    kinds: dict[str, tuple[str, str, Send]] = {
        "noop": ("no-op", noop.definition.queue, session.bound(noop).dispatch),
        "ms": ("1 ms", one_millisecond.definition.queue, session.bound(one_millisecond).dispatch),
        "mixed": ("mixed", mixed.definition.queue, lambda index: sleeper.dispatch(index, chance.choice(MIX))),
    }
    samples = min(SAMPLES, session.jobs)
    yield from _raw(session, samples, chance)
    for key, (name, queue, send) in kinds.items():
        waits = _waits(session, queue, send, samples, chance)
        for percent in PERCENTILES:
            yield Figure(
                key=f"pickup.{key}.p{percent}",
                label=f"pickup of {name} jobs, p{percent}",
                value=percentile(waits, percent),
                jobs=samples,
                unit="ms",
            )


def _raw(session: Session, samples: int, chance: random.Random) -> Iterator[Figure]:
    """What the store itself takes: an insert, the news of it, and the reserve of a connection that waited for it."""
    try:
        waits = session.store.raw_pickup(samples, lambda: time.sleep(chance.uniform(*GAPS)))
    except Unsupported:
        return
    for percent in PERCENTILES:
        yield Figure(
            key=f"pickup.raw.p{percent}",
            label=f"raw: insert, NOTIFY, reserve, p{percent}",
            value=percentile(waits, percent),
            jobs=samples,
            unit="ms",
        )


def _waits(session: Session, queue: str, send: Send, samples: int, chance: random.Random) -> list[float]:
    """Milliseconds from dispatch to start of single jobs, sent to one worker that has nothing to do."""
    sent = []
    with session.tally(samples + WARM_UP) as tally:
        with session.workers(1, tally, lambda number: ["--queue", queue, "--stay"]) as workers:
            workers.open_gate()
            for index in range(samples, samples + WARM_UP):
                send(index)
            _wait_until(partial(_has_started, tally, WARM_UP))
            time.sleep(IDLE_SECONDS)
            for index in range(samples):
                sent.append(time.monotonic_ns())
                send(index)
                time.sleep(chance.uniform(*GAPS))
            _wait_until(partial(_has_started, tally, tally.size))
            workers.stop()
        session.check(tally)
        starts = tally.starts()
    return [(start - moment) / 1e6 for moment, start in zip(sent, starts[:samples], strict=True) if start]


def _has_started(tally: Tally, count: int) -> bool:
    return tally.started() >= count


def _wait_until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + LONGEST_WAIT
    while not condition():
        if time.monotonic() > ends_at:
            raise WorkerFailed(f"The worker has not run its jobs within {LONGEST_WAIT:.0f} s.")
        time.sleep(0.05)
