"""The promises on chains and batches, beside those on each of their jobs: as in ``checker``, one function each.

That a step or a callback never came, or came twice, the rules on jobs tell: it is dispatched with its flow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from .cases import Book, Case
from .history import Flow
from .rules import Rules, Violation

NEVER = float("inf")


def check_flows(book: Book, rules: Rules) -> Iterator[Violation]:
    """Every promise on every flow."""
    for flow in book.flows:
        yield from unordered(flow, book)
        yield from halted(flow, book)
    yield from unclosed(book, rules)


def begun(book: Book) -> Counter[str]:
    """How many chains and batches were dispatched for certain."""
    return Counter(flow.kind for flow in book.flows if book.cases[flow.stages[0][0]].committed)


def unordered(flow: Flow, book: Book) -> Iterator[Violation]:
    """A step does not start before the one before it has succeeded, nor a callback before all members have ended."""
    for before, after in pairwise(flow.stages):
        for key in after:
            starts = [run.start for run in book.cases[key].runs]
            for earlier in before if starts else ():
                end = _over_at(book.cases[earlier])
                if end is not None and min(starts) < end:
                    yield Violation("unordered", key, f"it started before {earlier} of {flow.name} had ended")


def halted(flow: Flow, book: Book) -> Iterator[Violation]:
    """A flow whose dispatch nobody knows the outcome of goes on to its end all the same when it has begun."""
    for before, after in pairwise(flow.stages):
        if all(book.cases[key].was_stored and _over_at(book.cases[key]) != NEVER for key in before):
            for case in (book.cases[key] for key in after):
                if case.committed is None and not case.was_stored:
                    yield Violation("lost", case.key, f"all before it in {flow.name} has ended, and it never came")


def unclosed(book: Book, rules: Rules) -> Iterator[Violation]:
    """A batch ends when its members have; where the store does not know transactions, one that was stored whole."""
    flows = {flow.name: flow for flow in book.flows}
    for name in book.batches:
        members = [book.cases[key] for key in flows[name].stages[0]] if name in flows else []
        if all(case.committed is False for case in members):
            yield Violation("ghost", name, "nobody has dispatched this batch")
        elif rules.joins_transactions or all(case.committed or case.was_stored for case in members):
            yield Violation("unclosed", name, f"this batch of {len(members)} members is still open")


def _over_at(case: Case) -> float | None:
    """When a job ended, NEVER when it did not, None when nobody saw that: its last attempt was lost with its worker."""
    if done := [run.end for run in case.runs if run.done and run.end is not None]:
        return min(done)
    if not case.dead_letters:
        return NEVER
    failed = {held.token for held in case.holdings.values() if held.ended == "fail"}
    return next((run.end for run in case.runs if run.token in failed), None)
