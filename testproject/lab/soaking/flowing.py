"""The chains and batches of a soak, and what the history is told of each: its jobs, and in which order they run.

Only the jobs that have to run are told: a callback that is called in vain, or a step behind a failure, is a ghost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from django_jobqueue import PREVIOUS, batch, chain

from . import history

STEPS = 5
FAILING_STEP = 3
CHAINED_STEPS = 3
MEMBERS = (2, 12)
# The share of flows in which a job fails for good.
FAILURES = 0.15

# A kind's name, to what calls it.
Call = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Planned:
    """``composite`` is what is dispatched."""

    composite: Any
    jobs: list[history.Job]
    flows: list[history.Flow]


def plan_chain(name: str, call: Call, random: Random) -> Planned:
    """Each step expects what the one before has returned; one in the middle may fail, and is caught."""
    keys, calls = _steps(name, call, STEPS)
    kinds = ["step"] * STEPS
    catch = f"{name}.catch"
    if random.random() < FAILURES:
        failing = FAILING_STEP - 1
        calls[failing] = call("always").s(keys[failing])
        keys = [*keys[:FAILING_STEP], catch]
        kinds = [*kinds[:failing], "always", "callback"]
    composite = chain(*calls).catch(call("callback").s(catch))
    stages = [[key] for key in keys]
    return Planned(composite, _jobs(keys, kinds), [history.Flow(name, "chain", stages, history.now())])


def plan_batch(name: str, call: Call, random: Random) -> Planned:
    """Jobs and a chain, of which one may fail; with all three callbacks."""
    kinds = [random.choice(("quick", "quick", "once")) for _ in range(random.randint(*MEMBERS))]
    fails = random.random() < FAILURES
    if fails:
        kinds[0] = "always"
    keys = [f"{name}.{number}" for number in range(len(kinds))]
    chained, steps = _steps(f"{name}.c", call, CHAINED_STEPS)
    calls = [*(call(kind).s(key) for key, kind in zip(keys, kinds, strict=True)), chain(*steps)]
    callbacks = {word: f"{name}.{word}" for word in ("then", "catch", "finally")}
    then, catch, finally_ = (call("callback").s(key) for key in callbacks.values())
    del callbacks["then" if fails else "catch"]
    called = list(callbacks.values())
    jobs = [*_jobs(keys, kinds), *_jobs(chained, ["step"] * CHAINED_STEPS), *_jobs(called, ["callback"] * len(called))]
    at = history.now()
    flows = [
        history.Flow(name, "batch", [[*keys, chained[-1]], called], at),
        history.Flow(f"{name}.c", "chain", [[key] for key in chained], at),
    ]
    return Planned(batch(calls, name=name).then(then).catch(catch).finally_(finally_), jobs, flows)


def _steps(name: str, call: Call, count: int) -> tuple[list[str], list[Any]]:
    keys = [f"{name}.{number}" for number in range(1, count + 1)]
    later = (call("step").s(key, PREVIOUS, before) for before, key in pairwise(keys))
    return keys, [call("step").s(keys[0]), *later]


def _jobs(keys: list[str], kinds: list[str]) -> list[history.Job]:
    return [history.Job(key, kind) for key, kind in zip(keys, kinds, strict=True)]
