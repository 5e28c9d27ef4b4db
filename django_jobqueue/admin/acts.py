"""Retry and Forget: one operation for each row, so that a bad one stops no other, then Django's log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Literal, cast

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db import DatabaseError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext

from ..dispatching.discovery import load_handlers
from ..drivers import connections
from ..exceptions import InvalidConnection, InvalidPayload
from ..jobs.payloads import decode
from ..jobs.records import FailedSummary
from ..models import FailedJob
from ..operations import failed_jobs

logger = logging.getLogger("django_jobqueue")

Fate = Literal[
    "retried", "forgotten", "gone", "unknown job", "unreadable", "no connection", "not stored", "broken jobs"
]

_LETTER_COLUMNS = (
    "job_id",
    "connection",
    "queue",
    "name",
    "attempts",
    "max_attempts",
    "exception_class",
    "exception_message",
    "retries",
    "failed_at",
)


def retry(request: HttpRequest, rows: QuerySet[FailedJob]) -> dict[int, Fate]:
    """Put dead letters back on their queues; what became of each, by number. A row that cannot run stays."""
    if handlers_are_broken():
        return dict.fromkeys(rows.values_list("pk", flat=True), "broken jobs")
    unreadable: set[int] = set()
    letters = []
    for row in rows.only("pk", "payload", "format", *_LETTER_COLUMNS).iterator(chunk_size=1):
        letters.append(summary(row))
        if not is_readable(row):
            unreadable.add(row.pk)
    away: set[str] = set()
    fates: dict[int, Fate] = {
        letter.number: "unreadable" if letter.number in unreadable else _act(letter, failed_jobs.retry, away)
        for letter in letters
    }
    _log(request, [letter for letter in letters if fates[letter.number] == "retried"], CHANGE, gettext("Retried."))
    return fates


def forget(request: HttpRequest, rows: QuerySet[FailedJob]) -> dict[int, Fate]:
    """Delete dead letters for good; what became of each, by number."""
    letters = [summary(row) for row in rows.only("pk", *_LETTER_COLUMNS)]
    away: set[str] = set()
    fates = {letter.number: _act(letter, failed_jobs.forget, away) for letter in letters}
    _log(
        request, [letter for letter in letters if fates[letter.number] == "forgotten"], DELETION, gettext("Forgotten.")
    )
    return fates


def handlers_are_broken() -> bool:
    """Whether a job module raises when it is imported; a page says so, and the log says why."""
    try:
        load_handlers()
    except Exception:
        logger.exception("The job modules cannot be loaded.")
        return True
    return False


def is_readable(row: FailedJob) -> bool:
    try:
        decode(row.payload, row.format)
    except InvalidPayload:
        return False
    return True


def summary(row: FailedJob) -> FailedSummary:
    return FailedSummary(
        number=row.pk,
        id=row.job_id,
        **{column: getattr(row, column) for column in _LETTER_COLUMNS if column != "job_id"},
    )


def _act(
    letter: FailedSummary, operation: Callable[[Iterable[FailedSummary]], list[failed_jobs.Result]], away: set[str]
) -> Fate:
    """``away`` are connections that are not asked again: each row would be waited for as long as the first."""
    if letter.connection in away:
        return "not stored"
    try:
        driver = connections[letter.connection]
    except InvalidConnection:
        return "no connection"
    try:
        return operation([letter])[0].status
    except (DatabaseError, *driver.outages) as error:  # type: ignore[misc]
        logger.exception("The failed job %s cannot be moved.", letter.number)
        if not isinstance(error, (DatabaseError, *driver.refusals)):
            away.add(letter.connection)
        return "not stored"


def _log(request: HttpRequest, letters: list[FailedSummary], flag: int, message: str) -> None:
    if not letters:
        return
    rows = [FailedJob(pk=letter.number, name=letter.name) for letter in letters]
    LogEntry.objects.log_actions(cast("int", request.user.pk), rows, flag, message)
