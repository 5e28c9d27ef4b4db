"""Moments and durations: microseconds since 1970 in UTC inside, aware datetimes outside.

Everything is integer arithmetic, so that neither ``datetime.max`` nor a time zone can overflow.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from ..exceptions import InvalidOption

MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the arithmetic below is on naive values, offsets apart
EPOCH_UTC = EPOCH.replace(tzinfo=UTC)
FIRST_MICROSECOND = (datetime.min - EPOCH) // MICROSECOND  # noqa: DTZ901
LAST_MICROSECOND = (datetime.max - EPOCH) // MICROSECOND  # noqa: DTZ901

# A hundred years: longer is a mistake in units, and every sum with it still fits a BIGINT and a datetime.
MAX_SECONDS = 3_155_760_000


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970 in UTC of an aware datetime."""
    offset = moment.utcoffset()
    if offset is None:
        raise InvalidOption(f"{moment!r} has no time zone; pass an aware datetime.")
    return (moment.replace(tzinfo=None) - EPOCH) // MICROSECOND - offset // MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The aware datetime in UTC of microseconds since 1970; clamped to what a datetime can hold."""
    return EPOCH_UTC + timedelta(microseconds=min(max(value, FIRST_MICROSECOND), LAST_MICROSECOND))


def seconds(kind: str, value: object) -> float:
    """A duration given as a number of seconds or a timedelta, as seconds; ``kind`` names it in errors.

    Zero is a duration of zero. Negative, not finite, or over 100 years is an InvalidOption.
    """
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        result = float(value) if abs(value) <= MAX_SECONDS else math.inf
    else:
        raise InvalidOption(f"{kind} must be seconds or a timedelta, not {value!r}.")
    if not 0 <= result <= MAX_SECONDS:
        raise InvalidOption(f"{kind} must be between 0 seconds and 100 years, not {value!r}.")
    return result


def microseconds(duration: float) -> int:
    """Seconds as whole microseconds."""
    return round(duration * 1_000_000)
