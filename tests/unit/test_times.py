"""Moments and durations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobqueue.exceptions import InvalidOption
from django_jobqueue.jobs.times import (
    FIRST_MICROSECOND,
    LAST_MICROSECOND,
    MAX_SECONDS,
    from_microseconds,
    microseconds,
    seconds,
    to_microseconds,
)


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_keeps_every_microsecond(moment: datetime) -> None:
    assert from_microseconds(to_microseconds(moment)) == moment


@given(st.integers(FIRST_MICROSECOND, LAST_MICROSECOND))
def test_microseconds_are_a_moment_and_back(value: int) -> None:
    assert to_microseconds(from_microseconds(value)) == value


def test_the_count_begins_in_1970() -> None:
    assert from_microseconds(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert from_microseconds(-1) < from_microseconds(0)


def test_moments_outside_of_the_calendar_are_clamped() -> None:
    assert from_microseconds(2**62) == datetime.max.replace(tzinfo=UTC)
    assert from_microseconds(-(2**62)) == datetime.min.replace(tzinfo=UTC)


def test_the_same_moment_of_two_zones_is_one() -> None:
    rome = datetime(2030, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))
    assert to_microseconds(rome) == to_microseconds(datetime(2030, 1, 1, 12, tzinfo=UTC))


@pytest.mark.parametrize("hours", [-12, 14])
def test_no_time_zone_overflows_at_the_ends_of_the_calendar(hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    for edge in (datetime.min, datetime.max):  # noqa: DTZ901
        assert isinstance(to_microseconds(edge.replace(tzinfo=zone)), int)


def test_a_moment_without_a_time_zone_is_refused() -> None:
    with pytest.raises(InvalidOption, match="time zone"):
        to_microseconds(datetime(2030, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize(  # F42, F52
    ("value", "expected"),
    [
        (0, 0.0),
        (0.0, 0.0),
        (timedelta(0), 0.0),
        (60, 60.0),
        (0.001, 0.001),
        (timedelta(minutes=1, microseconds=1), 60.000001),
        (MAX_SECONDS, float(MAX_SECONDS)),
    ],
)
def test_a_duration_is_seconds_or_a_timedelta(value: Any, expected: float) -> None:
    assert seconds("delay", value) == expected


@pytest.mark.parametrize(  # F42, F50, F52
    "value",
    [
        -1,
        -0.001,
        timedelta(microseconds=-1),
        float("nan"),
        float("inf"),
        MAX_SECONDS + 1,
        timedelta.max,
        10**400,
        True,
        "60",
        None,
        [60],
    ],
)
def test_what_is_no_duration_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^delay must be"):
        seconds("delay", value)


def test_seconds_become_whole_microseconds() -> None:
    assert microseconds(0.1 + 0.2) == 300_000
    assert microseconds(0) == 0
