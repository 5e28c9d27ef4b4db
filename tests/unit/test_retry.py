"""What follows a failed attempt, and when."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobqueue.exceptions import InvalidOption
from django_jobqueue.jobs.retry import (
    Exponential,
    GiveUp,
    Policy,
    TryAgain,
    check_backoff,
    decide,
    seconds_of,
)
from django_jobqueue.jobs.times import MAX_SECONDS

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ERROR = ValueError("boom")
POLICY = Policy(max_attempts=3, backoff=10)


def after(attempt: int, *, error: BaseException = ERROR, **changes: Any) -> TryAgain | GiveUp:
    policy = replace(POLICY, **changes)
    return decide(policy, attempt=attempt, exceptions=attempt, error=error, now=NOW)


def delays(backoff: Any, attempts: int = 5) -> list[float]:
    checked = check_backoff("backoff", backoff)
    assert checked is not None
    return [seconds_of(checked, ERROR, attempt) for attempt in range(1, attempts + 1)]


# How many attempts


@pytest.mark.parametrize("max_attempts", [1, 2, 3])  # F51
def test_a_job_that_always_fails_has_exactly_its_attempts(max_attempts: int) -> None:
    attempts = 1
    while isinstance(after(attempts, max_attempts=max_attempts), TryAgain):
        attempts += 1
    assert attempts == max_attempts


def test_max_exceptions_counts_failures_and_not_attempts() -> None:
    policy = replace(POLICY, max_attempts=99, max_exceptions=2)
    first = decide(policy, attempt=7, exceptions=1, error=ERROR, now=NOW)
    second = decide(policy, attempt=8, exceptions=2, error=ERROR, now=NOW)
    assert isinstance(first, TryAgain)
    assert second == GiveUp("exceptions spent")


def test_an_error_to_give_up_on_ends_the_job_at_once() -> None:
    assert isinstance(after(1, give_up_on=(LookupError,), error=KeyError("x")), GiveUp)
    assert isinstance(after(1, give_up_on=(LookupError,)), TryAgain)


def test_an_error_that_is_not_to_be_retried_on_ends_the_job_at_once() -> None:
    assert isinstance(after(1, retry_on=(OSError,)), GiveUp)
    assert isinstance(after(1, retry_on=(OSError,), error=TimeoutError()), TryAgain)


def test_giving_up_goes_before_retrying() -> None:
    outcome = after(1, retry_on=(Exception,), give_up_on=(ValueError,))
    assert outcome == GiveUp("given up on this error")


def test_an_exit_is_retried_like_any_error() -> None:  # F25
    assert isinstance(after(1, error=SystemExit(1)), TryAgain)
    assert isinstance(after(1, error=KeyboardInterrupt()), TryAgain)


def test_no_attempt_starts_after_retry_until() -> None:
    until = NOW + timedelta(seconds=10)
    assert after(1, backoff=10, retry_until=until) == TryAgain(10)
    assert isinstance(after(1, backoff=10.001, retry_until=until), GiveUp)
    assert isinstance(after(1, backoff=0, retry_until=NOW - timedelta(seconds=1)), GiveUp)


def test_a_reason_tells_what_was_spent() -> None:
    assert after(3) == GiveUp("attempts spent")


# How long between them


@pytest.mark.parametrize("attempt", [10, 35, 43, 46, 100, 310, 1024, 5000, 2**31])  # F50
def test_an_exponential_backoff_never_passes_its_cap_nor_overflows(attempt: int) -> None:
    assert Exponential(base=10, cap=3600, jitter=0).seconds_after(attempt) == 3600


def test_an_exponential_backoff_doubles() -> None:  # F50
    assert delays(Exponential(base=10, cap=3600, jitter=0), 4) == [10, 20, 40, 80]


def test_the_greatest_backoff_can_still_be_added_to_a_date() -> None:  # F50
    greatest = Exponential(base=MAX_SECONDS, cap=MAX_SECONDS, jitter=1).seconds_after(5000)
    assert NOW + timedelta(seconds=greatest) > NOW


@given(st.integers(1, 10_000), st.floats(0, 100), st.floats(0, 3600), st.floats(0, 1))  # F52
def test_jitter_only_adds_and_no_more_than_its_share(attempt: int, base: float, cap: float, jitter: float) -> None:
    exact = Exponential(base=base, cap=cap, jitter=0).seconds_after(attempt)
    found = Exponential(base=base, cap=cap, jitter=jitter).seconds_after(attempt)
    assert exact <= found <= exact * (1 + jitter)


def test_jitter_spreads_jobs_that_failed_together() -> None:  # F52
    assert len({Exponential().seconds_after(1) for _ in range(1000)}) > 900


@pytest.mark.parametrize("options", [{"base": -1}, {"cap": -1}, {"jitter": -0.1}, {"jitter": 2}])
def test_an_exponential_that_cannot_work_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidOption, match="Exponential"):
        Exponential(**options)


@pytest.mark.parametrize(  # F52
    ("backoff", "expected"),
    [
        ([10], [10, 10, 10, 10, 10]),
        ((10, 60, 300), [10, 60, 300, 300, 300]),
        (0, [0, 0, 0, 0, 0]),
        (0.5, [0.5] * 5),
        (timedelta(minutes=1), [60] * 5),
        ([0, timedelta(milliseconds=1), 0.25], [0, 0.001, 0.25, 0.25, 0.25]),
        (lambda error, attempt: attempt * 2, [2, 4, 6, 8, 10]),
        (lambda error, attempt: timedelta(seconds=attempt), [1, 2, 3, 4, 5]),
    ],
)
def test_a_backoff_says_how_long_each_pause_is(backoff: Any, expected: list[float]) -> None:
    assert delays(backoff) == expected


def test_an_empty_backoff_is_the_setting() -> None:  # F52
    assert check_backoff("backoff", []) is None


@pytest.mark.parametrize(  # F52
    "value", [-1, [10, -1], float("nan"), float("inf"), True, "10", ["10"], None, int, {10: 1}]
)
def test_a_backoff_that_cannot_work_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^my backoff"):
        check_backoff("my backoff", value)


def test_the_backoff_function_is_given_the_error() -> None:
    seen = []
    after(2, backoff=lambda error, attempt: seen.append((error, attempt)) or 1)
    assert seen == [(ERROR, 2)]


def _raises(error: BaseException, attempt: int) -> float:
    raise RuntimeError("no backoff today")


@pytest.mark.parametrize(  # F50
    "broken",
    [
        _raises,
        lambda error, attempt: float("nan"),
        lambda error, attempt: -1,
        lambda error, attempt: None,
        lambda error, attempt: 10**400,
        lambda error, attempt: 10**5000,
    ],
)
def test_a_broken_backoff_function_falls_back_and_is_logged(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "django_jobqueue"):
        assert after(1, backoff=broken, fallback=7) == TryAgain(7)
    assert "backoff" in caplog.text


def test_a_broken_backoff_setting_falls_back_to_its_default() -> None:  # F50
    outcome = after(1, backoff=_raises, fallback=_raises)
    assert isinstance(outcome, TryAgain)
    assert 10 <= outcome.delay <= 11
