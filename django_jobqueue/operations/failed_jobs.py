"""Dead letters: finding, retrying and forgetting them. Commands, admin and scripts all call these.

All works in bounded pages over a set that is frozen when it starts, in constant memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal
from uuid import UUID

from ..dispatching.discovery import load_handlers
from ..drivers import Driver, connections
from ..exceptions import AlreadyRetried, InvalidOption, UnknownJob
from ..jobs.records import FAILED, FailedSummary
from ..jobs.registry import registry
from ..signals import job_retried
from .reports import note_removed

PAGE = 500
SHORTEST_ENDING = 6
SHOWN_ENDING = 8
MOST_DIGITS = 18  # of a number that every database can compare

Status = Literal["retried", "forgotten", "unknown job", "gone"]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one dead letter. "gone": somebody else retried or forgot it first."""

    letter: FailedSummary
    status: Status


def find(reference: str, *, connection: str | None = None) -> FailedSummary | None:
    """The dead letter of a reference: its number, its UUID, or a unique ending of that; None when there is none.

    Digits only are always a number. Raises InvalidOption for what is none of these, and for an ending or a
    number that several dead letters share, naming them.
    """
    found: list[FailedSummary] = []
    for driver in _drivers(connection):
        if reference.isascii() and reference.isdigit():
            if len(reference) <= MOST_DIGITS:
                found += driver.failed(numbers=[int(reference)], limit=2)
        elif (job_id := _as_uuid(reference)) is not None:
            found += driver.failed(job_id=job_id, limit=2)
        else:
            found += driver.failed(ending=_as_ending(reference), limit=5)
    if len(found) > 1:
        candidates = ", ".join(f"{letter.number} ({letter.id} on {letter.connection})" for letter in found)
        raise InvalidOption(f"{reference!r} may be any of {candidates}; name one by its UUID.")
    return found[0] if found else None


def every(*, connection: str | None = None, queue: str | None = None) -> Iterator[list[FailedSummary]]:
    """Pages of all dead letters that exist now, by number; those that fail later are not among them."""
    return _pages([(driver, driver.last_failed_number()) for driver in _drivers(connection)], queue)


def _pages(frozen: list[tuple[Driver, int]], queue: str | None) -> Iterator[list[FailedSummary]]:
    for driver, last in frozen:
        after = 0
        while page := driver.failed(queue=queue, after=after, up_to=last, limit=PAGE):
            after = page[-1].number
            yield page


def newest(*, connection: str | None = None, queue: str | None = None, limit: int = 50) -> list[FailedSummary]:
    """The dead letters that failed last, the newest first."""
    letters = [
        letter
        for driver in _drivers(connection)
        for letter in driver.failed(queue=queue, newest_first=True, limit=limit)
    ]
    return sorted(letters, key=lambda letter: letter.failed_at, reverse=True)[:limit]


def count(*, connection: str | None = None, queue: str | None = None) -> int:
    """How many dead letters there are."""
    return sum(driver.failed_count(queue=queue) for driver in _drivers(connection))


def retry(letters: Iterable[FailedSummary]) -> list[Result]:
    """Put dead letters back on their queues, ready now, with no attempt used; one result each, in order.

    A job without a handler is refused, and stays. Two people who retry one at once make one job.
    """
    load_handlers()
    wanted = list(letters)
    statuses: dict[tuple[str, int], Status] = {}
    for driver, group in _by_driver(wanted):
        known: dict[int, float | None] = {}
        for letter in group:
            definition = registry.find(letter.name)
            if definition is None:
                statuses[letter.connection, letter.number] = "unknown job"
            else:
                known[letter.number] = definition.retry_until
        retried = driver.retry(known) if known else set()
        for letter in group:
            if letter.number in retried:
                statuses[letter.connection, letter.number] = "retried"
                driver.send(job_retried, id=letter.id, name=letter.name, queue=letter.queue)
    return [Result(letter, statuses.get((letter.connection, letter.number), "gone")) for letter in wanted]


def retry_one(letter: FailedSummary) -> None:
    """Retry one dead letter; raises UnknownJob when no handler has its name, AlreadyRetried when it is gone."""
    status = retry([letter])[0].status
    if status == "unknown job":
        raise UnknownJob(unknown_job(letter))
    if status == "gone":
        raise AlreadyRetried(f"The failed job {letter.number} ({letter.name}) is gone: already retried, or forgotten.")


def unknown_job(letter: FailedSummary) -> str:
    """Why a dead letter without a handler is not retried."""
    return (
        f"No handler has the name {letter.name!r}, so the failed job {letter.number} would only fail again; "
        "it stays. Restore the handler, or forget the job."
    )


def forget(letters: Iterable[FailedSummary]) -> list[Result]:
    """Delete dead letters for good; one result each, in order."""
    wanted = list(letters)
    forgotten: set[tuple[str, int]] = set()
    for driver, group in _by_driver(wanted):
        numbers = driver.forget([letter.number for letter in group])
        forgotten |= {(driver.alias, number) for number in numbers}
        note_removed(driver, [letter.id for letter in group if letter.number in numbers], FAILED, spoke=True)
    return [
        Result(letter, "forgotten" if (letter.connection, letter.number) in forgotten else "gone") for letter in wanted
    ]


def _drivers(connection: str | None) -> list[Driver]:
    return connections.all() if connection is None else [connections[connection]]


def _by_driver(letters: list[FailedSummary]) -> Iterator[tuple[Driver, list[FailedSummary]]]:
    for alias, group in groupby(
        sorted(letters, key=lambda letter: letter.connection), key=lambda letter: letter.connection
    ):
        yield connections[alias], list(group)


def _as_uuid(reference: str) -> UUID | None:
    try:
        return UUID(reference)
    except ValueError:
        return None


def _as_ending(reference: str) -> str:
    """An ending of a UUID: hexadecimal digits and hyphens, with a letter or a hyphen among them."""
    if not re.fullmatch(r"[0-9a-fA-F-]+", reference) or len(reference.replace("-", "")) < SHORTEST_ENDING:
        raise InvalidOption(
            f"{reference!r} names no failed job; give its number, its UUID, or at least {SHORTEST_ENDING} "
            "characters from the end of that."
        )
    return reference
