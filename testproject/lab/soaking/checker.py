"""Whether the queue has kept its promises: pure functions over a parsed history and what the store held at the end.

Each rule is one function that yields its violations, and reads like the promise. A rule that cannot be sure is
silent: moments are taken so that what it calls valid was valid for certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median

from .cases import Book, Case, Content, Holding, Run, gather
from .flow_rules import check_flows
from .history import Record, Trouble
from .kinds import ATTEMPTS_OF_ALWAYS, KINDS
from .rules import Rules, Violation

# How much may be repeated beside the job in hand.
SLICE_SECONDS = 0.1
# From the end of a slice to the words "settling" in the history, on a busy machine.
SLACK_SECONDS = 0.5
# The store's clock is set while the history's is not.
CLOCK_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    violations: list[Violation]
    book: Book

    def count(self, rule: str) -> int:
        return sum(violation.rule == rule for violation in self.violations)


def check(records: Iterable[Record], content: Content, rules: Rules) -> Verdict:
    """Every promise on every job."""
    book = gather(records, content, retry_after=rules.retry_after)
    found: list[Violation] = []
    for case in book.cases.values():
        case.runs.sort(key=partial(_turn, case))
        for rule in CASE_RULES:
            found += rule(case)
        found += repeats(case, book, rules)
    found += check_flows(book, rules)
    if rules.joins_transactions:
        found += split(book)
    found += ended(book)
    return Verdict(violations=found, book=book)


def _turn(case: Case, run: Run) -> float:
    """Runs follow each other as their reservations do: a worker that was stopped may start late what was taken away."""
    held = case.holdings.get(run.token)
    return run.start if held is None else held.at


# The promises on one job


def ghost(case: Case) -> Iterator[Violation]:
    """A job whose transaction rolled back, or that nobody dispatched, leaves no trace."""
    if case.was_stored and not case.is_known:
        yield Violation("ghost", case.key, f"nobody dispatched it, and {_traces(case)}")
    elif case.was_stored and case.committed is False:
        yield Violation("ghost", case.key, f"its transaction was rolled back, and {_traces(case)}")


def lost(case: Case) -> Iterator[Violation]:
    """A committed job does not disappear without having ended."""
    if not _must_end(case) or case.waiting or case.dead_letters:
        return
    if not any(run.done for run in case.runs):
        yield Violation("lost", case.key, f"it is gone, but no run of it has succeeded ({case.kind}, {_told(case)})")


def stuck(case: Case) -> Iterator[Violation]:
    """A committed job ends in time."""
    if case.waiting and _must_end(case):
        states = ", ".join(row.state for row in case.waiting)
        yield Violation("stuck", case.key, f"it is still there: {states} ({case.kind}, {_told(case)})")


def doubled(case: Case) -> Iterator[Violation]:
    """A job ends in exactly one way, once, and nothing follows its end."""
    ends = [held for held in case.holdings.values() if held.ended in {"complete", "fail"}]
    places = len(case.waiting) + len(case.dead_letters)
    ids = {run.id for run in case.runs}
    completed = sum(held.ended == "complete" for held in ends)
    if len(ends) > 1:
        how = " and ".join(f"{held.ended} by {held.worker}" for held in ends)
        yield Violation("doubled", case.key, f"it was settled {len(ends)} times: {how}")
    elif len(ids) > 1:
        yield Violation("doubled", case.key, f"one dispatch has stored {len(ids)} jobs")
    elif places > 1:
        yield Violation("doubled", case.key, f"it is in {places} places at once")
    elif completed and places:
        yield Violation("doubled", case.key, "it was completed, and is in the store all the same")
    for end in ends:
        for held in case.holdings.values():
            if held.asked > end.ended_at:
                yield Violation("doubled", case.key, f"it was reserved by {held.worker} after its end")


def overlap(case: Case) -> Iterator[Violation]:
    """Two workers never hold a valid reservation for the same job."""
    first: Holding | None = None
    for second in sorted(case.holdings.values(), key=lambda held: held.at):
        seconds = 0.0 if first is None else first.valid_until - second.at
        if first is not None and seconds > CLOCK_SECONDS:
            text = f"{second.worker} reserved it {seconds:.3f} s before the reservation of {first.worker} ended"
            yield Violation("overlap", case.key, text)
        if first is None or second.valid_until > first.valid_until:
            first = second


def unreserved(case: Case) -> Iterator[Violation]:
    """A run has a reservation of its own, and each reservation runs its job once at most."""
    tokens = set()
    for run in case.runs:
        if run.token not in case.holdings:
            yield Violation("unreserved", case.key, f"process {run.pid} ran it without a reservation")
        elif run.token in tokens:
            yield Violation("unreserved", case.key, f"process {run.pid} ran it twice by one reservation")
        tokens.add(run.token)


def effects(case: Case) -> Iterator[Violation]:
    """The effect of an atomic job is there exactly once when it completed, and not at all otherwise."""
    if not case.is_atomic or not case.is_known:
        return
    is_over = _must_end(case) and not case.waiting and not case.dead_letters
    if len(case.effects) != is_over:
        what = "completed" if is_over else "did not complete"
        yield Violation("effects", case.key, f"it {what}, and its effect is there {len(case.effects)} times")


def early(case: Case) -> Iterator[Violation]:
    """A delayed job does not start before its time."""
    for run in case.runs:
        seconds = case.asked + case.delay - run.start
        if case.delay and seconds > CLOCK_SECONDS:
            yield Violation("early", case.key, f"it started {seconds:.3f} s before its time")


def unearned(case: Case) -> Iterator[Violation]:
    """A sound job does not become a dead letter, and one that may start only once does not start twice."""
    if case.dead_letters and case.kind in KINDS and KINDS[case.kind].is_sound:
        letter = case.dead_letters[0]
        text = f"a sound job became a dead letter after {letter.attempts} attempts: {letter.exception_class}"
        yield Violation("unearned", case.key, text)
    if case.kind == "single" and len(case.runs) > 1:
        yield Violation("unearned", case.key, f"it may start once, and started {len(case.runs)} times")
    for letter in case.dead_letters:
        if case.kind == "always" and letter.attempts != ATTEMPTS_OF_ALWAYS:
            text = f"it became a dead letter after {letter.attempts} attempts, not {ATTEMPTS_OF_ALWAYS}"
            yield Violation("unearned", case.key, text)


CASE_RULES = (ghost, lost, stuck, doubled, overlap, unreserved, effects, early, unearned)


# The promise on repeats


def repeats(case: Case, book: Book, rules: Rules) -> Iterator[Violation]:
    """A job that did not fail runs again only when it was in hand, or in the last slice, at a kill or the like."""
    for run, following in repeated(case):
        earlier = [run, following] if _came_together(run, following, case) else [run]
        if not any(_explains(trouble, each, case, rules) for trouble in book.troubles for each in earlier):
            ended = "was not seen to end" if run.end is None else f"ended {following.start - run.end:.3f} s before that"
            text = (
                f"process {following.pid} ran it again, though it ran in process {run.pid}, {ended}, and nothing had "
                f"happened to that process ({case.kind})"
            )
            yield Violation("repeat", case.key, text)


def repeated(case: Case) -> list[tuple[Run, Run]]:
    """The runs that were followed by another one though they had not failed."""
    return [(run, following) for run, following in pairwise(case.runs) if not _failed(run, case)]


def _failed(run: Run, case: Case) -> bool:
    """Whether it failed, or was released; an atomic job may fail after its handler, when it commits."""
    held = case.holdings.get(run.token)
    return (run.end is not None and not run.done) or (held is not None and held.ended in {"release", "fail"})


def _came_together(run: Run, following: Run, case: Case) -> bool:
    """Whether nobody knows which was reserved first: a worker may be stopped before it has told."""
    first, second = case.holdings.get(run.token), case.holdings.get(following.token)
    return first is not None and second is not None and second.asked < first.at


def _explains(trouble: Trouble, run: Run, case: Case, rules: Rules) -> bool:
    """Whether the run was in hand at the trouble, or in the slice that was not settled yet."""
    is_stop = trouble.kind == "pause"
    if trouble.kind not in {"kill", "pause", "server"}:
        return False
    if trouble.pid not in {None, run.pid} and not (is_stop and rules.stops_concern_all):
        return False
    # What was reserved just before runs on: until it is handed back after a pause, or the slice is over.
    after = {"kill": 0.0, "pause": SLACK_SECONDS, "server": rules.outage_after}[trouble.kind]
    if run.start > trouble.ended + after:
        return False
    if run.end is None or run.end >= trouble.begun - SLICE_SECONDS - SLACK_SECONDS:
        return True
    held = case.holdings.get(run.token)
    return held is not None and any(asked <= trouble.begun <= answered for asked, answered in held.asking)


# The promises on all


def split(book: Book) -> Iterator[Violation]:
    """Of a transaction whose outcome nobody was told, all jobs are there, or none."""
    transactions: dict[str, list[Case]] = {}
    for case in book.cases.values():
        if case.is_known and case.committed is None:
            transactions.setdefault(case.transaction, []).append(case)
    for cases in transactions.values():
        stored = [case.key for case in cases if case.was_stored]
        if stored and len(stored) < len(cases):
            yield Violation("split", stored[0], f"of its transaction {len(stored)} of {len(cases)} jobs were stored")


def ended(book: Book) -> Iterator[Violation]:
    """A worker does not end, or break, by itself."""
    for trouble in book.troubles:
        if trouble.kind == "ended":
            yield Violation("ended", "", f"the worker process {trouble.pid} {trouble.note}")


# Figures


def rescued_after(book: Book) -> list[float]:
    """For each worker that was killed, how many seconds later the last of its jobs was ready again."""
    killed = {trouble.pid: trouble.begun for trouble in book.troubles if trouble.kind == "kill"}
    latest = {rescue.pid: rescue.at - killed[rescue.pid] for rescue in sorted(book.rescues) if rescue.pid in killed}
    return sorted(seconds for seconds in latest.values() if seconds > 0)


def again_after(book: Book) -> list[float]:
    """For each run that a kill has cut short or made to be repeated, how many seconds later the next one started."""
    killed = {trouble.pid: trouble.begun for trouble in book.troubles if trouble.kind == "kill"}
    pairs = [pair for case in book.cases.values() for pair in repeated(case)]
    return sorted(following.start - killed[run.pid] for run, following in pairs if run.pid in killed)


def back_after(book: Book) -> list[float]:
    """For each restart of a server, how many seconds after it answered a job was reserved."""
    found = []
    for trouble in book.troubles:
        later = [at for at in book.reserves if at > trouble.ended]
        if trouble.kind == "server" and later:
            found.append(min(later) - trouble.ended)
    return sorted(found)


def spread(values: list[float]) -> dict[str, float] | None:
    """The median and the worst."""
    if not values:
        return None
    return {"median": round(median(values), 2), "worst": round(max(values), 2), "times": len(values)}


def _must_end(case: Case) -> bool:
    """Whether its dispatch was committed; where nobody was told, whether it was ever seen in the store."""
    return case.is_known and (case.committed is True or (case.committed is None and case.was_stored))


def _told(case: Case) -> str:
    if not case.runs:
        return f"reserved {len(case.holdings)} times, never started"
    run = case.runs[-1]
    return f"{len(case.runs)} runs, the last in process {run.pid}, {'ended' if run.end else 'not seen to end'}"


def _traces(case: Case) -> str:
    found = {
        "runs": len(case.runs),
        "reservations": len(case.holdings),
        "rows": len(case.waiting),
        "dead letters": len(case.dead_letters),
        "effects": len(case.effects),
    }
    return "there are " + ", ".join(f"{count} {what}" for what, count in found.items() if count)
