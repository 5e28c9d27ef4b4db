"""Searching dead letters by what an index knows: numbers, ids, names and classes; never inside payloads or errors."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from ..drivers import connections
from ..operations.failed_jobs import SHORTEST_ENDING
from .base import ROWS_PER_PAGE
from .choices import failed_values

MAX_WORDS = 5
_HEXADECIMAL = re.compile(r"[0-9a-fA-F-]+")


def search_failed_jobs(rows: QuerySet[Any], term: str, database: str) -> QuerySet[Any]:
    """Rows that every word of ``term`` matches; of a very long term, its first words."""
    for word in term.split()[:MAX_WORDS]:
        rows = rows.filter(_condition(word, database))
    return rows


def _condition(word: str, database: str) -> Q:
    """Digits only are always a number. Parts of names are looked up among the known ones, so that an index serves."""
    if word.isascii() and word.isdigit():
        return Q(pk=int(word[:20]))
    condition = Q(name=word) | Q(exception_class=word)
    folded = word.lower()
    for column in ("name", "exception_class"):
        found = [value for value in failed_values(database, column) if folded in value.lower()]
        if found:
            condition |= Q(**{f"{column}__in": found})
    if (job_id := as_uuid(word)) is not None:
        condition |= Q(job_id=job_id)
    elif _HEXADECIMAL.fullmatch(word) and len(word.replace("-", "")) >= SHORTEST_ENDING:
        condition |= Q(pk__in=_numbers_by_ending(word, database))
    return condition


def as_uuid(word: str) -> UUID | None:
    try:
        return UUID(word)
    except ValueError:
        return None


def _numbers_by_ending(ending: str, database: str) -> list[int]:
    return [
        letter.number
        for driver in connections.all()
        if driver.database == database
        for letter in driver.failed(ending=ending, limit=ROWS_PER_PAGE)
    ]
