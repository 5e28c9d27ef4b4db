"""What came out, as lines for people and as JSON for programs.

The JSON is one object:

- ``store``: ``version``, ``own_server``
- ``options``: ``seconds``, ``kill``, ``workers``, ``rate``, ``retry_after``, ``seed``
- ``jobs``: ``committed``, ``rolled_back``, ``unknown`` (nobody knows: the store was lost at the commit), ``finished``,
  ``dead_letters``, ``runs``
- ``flows``: how many ``chains`` and ``batches`` were committed
- ``disturbances``: ``kills``, ``kills_of_all``, ``kills_of_supervisors``, ``clean_stops``, ``pauses``, ``restarts``,
  ``cuts``, ``long_transactions``
- ``repeats``: runs that were followed by another one though they had not failed
- ``recovery``: ``rescued`` (from the kill of a worker until the last of its jobs was ready again), ``again`` (from the
  kill until a job that it had hit started again, behind all that was waiting) and ``server`` (from its answer to the
  next reservation), each null or ``median``, ``worst``, ``times``, in seconds; ``drain``
- ``violations``: how many of each rule
- ``found``: a list of objects with ``rule``, ``key`` and ``text``
- ``verified``: whether there are none
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from .checker import again_after, back_after, repeated, rescued_after, spread
from .flow_rules import begun
from .session import Result

RULES = (
    "lost",
    "stuck",
    "doubled",
    "overlap",
    "effects",
    "ghost",
    "repeat",
    "unordered",
    "unclosed",
    "split",
    "early",
    "unearned",
    "unreserved",
    "ended",
)
MOST_SHOWN = 20


def document(result: Result) -> dict[str, Any]:
    book, plan = result.verdict.book, result.plan
    cases = book.cases.values()
    known = Counter(case.committed for case in cases if case.is_known)
    flows = begun(book)
    rules = Counter(violation.rule for violation in result.verdict.violations)
    return {
        "store": {"version": result.store, "own_server": result.own_server},
        "options": {
            "seconds": plan.seconds,
            "kill": sorted(plan.kill),
            "workers": plan.workers,
            "rate": plan.rate,
            "retry_after": plan.retry_after,
            "seed": plan.seed,
        },
        "jobs": {
            "committed": known[True],
            "rolled_back": known[False],
            "unknown": known[None],
            "finished": sum(case.was_stored and not case.waiting and not case.dead_letters for case in cases),
            "dead_letters": sum(len(case.dead_letters) for case in cases),
            "runs": sum(len(case.runs) for case in cases),
        },
        "flows": {"chains": flows["chain"], "batches": flows["batch"]},
        "disturbances": asdict(result.counts),
        "repeats": sum(len(repeated(case)) for case in cases),
        "recovery": {
            "rescued": spread(rescued_after(book)),
            "again": spread(again_after(book)),
            "server": spread(back_after(book)),
            "drain": round(result.drain_seconds, 2),
        },
        "violations": {rule: rules[rule] for rule in RULES},
        "found": [violation._asdict() for violation in result.verdict.violations],
        "verified": not result.verdict.violations,
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The same for people."""
    jobs, done, recovery = found["jobs"], found["disturbances"], found["recovery"]
    yield f"{found['store']['version']}, {found['options']['seconds']:.0f} s, seed {found['options']['seed']}"
    yield (
        f"jobs       {jobs['committed']:,} committed, {jobs['rolled_back']:,} rolled back, {jobs['unknown']:,} of "
        f"unknown outcome; {jobs['runs']:,} runs, {jobs['finished']:,} finished, {jobs['dead_letters']:,} dead letters"
    )
    yield f"flows      {found['flows']['chains']:,} chains and {found['flows']['batches']:,} batches of these"
    yield (
        f"kills      {done['kills']} ({done['kills_of_all']} times of all workers, {done['kills_of_supervisors']} of "
        f"supervisors), "
        f"and {done['clean_stops']} clean stops"
    )
    yield f"pauses     {done['pauses']}"
    yield f"restarts   {done['restarts']}, and {done['cuts']} connections cut"
    yield f"repeats    {found['repeats']}"
    yield (
        f"recovery   jobs of a killed worker were ready again after {_span(recovery['rescued'])}, and ran again after "
        f"{_span(recovery['again'])}; the server's restart was over after {_span(recovery['server'])}; drained in "
        f"{recovery['drain']} s"
    )
    yield "violations " + ", ".join(f"{rule} {count}" for rule, count in found["violations"].items())
    for violation in found["found"][:MOST_SHOWN]:
        yield f"  {violation['rule']}: job {violation['key'] or '-'}: {violation['text']}"
    if len(found["found"]) > MOST_SHOWN:
        yield f"  and {len(found['found']) - MOST_SHOWN:,} more"
    yield "Every promise was kept." if found["verified"] else "Not every promise was kept."


def _span(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{spread['median']} s, at worst {spread['worst']} s"
