"""The timeline of a job's failed attempts, from whatever text its row holds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils.safestring import SafeString

from ..jobs.errors import MAX_CLASS, MAX_MESSAGE, MAX_TRACEBACK, mask, shortened
from ..jobs.records import MAX_KEPT_ATTEMPTS, AttemptHistory
from .moments import relative_time
from .values import plain

#: What somebody sees of an error's text who may not see payload values and tracebacks.
MAX_BRIEF_MESSAGE = 120
MAX_WORD = 150


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    number: str
    worker: str
    started: SafeString | str
    waited: str
    ran: str
    exception_class: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The attempts that are kept, the last one last, and how many there were in all."""

    total: int
    attempts: list[ShownAttempt]

    @property
    def last(self) -> ShownAttempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def earlier(self) -> int:
        """How many attempts are no longer kept."""
        return max(0, self.total - len(self.attempts))


def show_timeline(errors: str, now: datetime, secrets: Collection[str], *, with_tracebacks: bool) -> Timeline:
    history = AttemptHistory.read(errors)
    limit = MAX_MESSAGE if with_tracebacks else MAX_BRIEF_MESSAGE
    shown = [
        ShownAttempt(
            number=_word(record.number),
            worker=_word(record.worker),
            started=_moment(record.started, now),
            waited=_seconds(record.waited),
            ran=_seconds(record.ran),
            exception_class=plain(shortened(str(record.exception_class), MAX_CLASS)),
            message=brief(mask(str(record.message), secrets), limit),
            traceback=plain(shortened(mask(str(record.traceback), secrets), MAX_TRACEBACK)) if with_tracebacks else "",
        )
        for record in history.last[-MAX_KEPT_ATTEMPTS:]
    ]
    return Timeline(history.total, shown)


def brief(message: str, limit: int = MAX_BRIEF_MESSAGE) -> str:
    """The beginning of an error's text."""
    return plain(message if len(message) <= limit else f"{message[: limit - 1]}…")


def _word(value: Any) -> str:
    return plain(shortened(str(value), MAX_WORD))


def _moment(text: Any, now: datetime) -> SafeString | str:
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return _word(text)
    return relative_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC), now)


def _seconds(value: Any) -> str:
    if isinstance(value, int | float):
        return f"{value:.3g}\xa0s"
    return _word(value)
