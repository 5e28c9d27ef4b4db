"""Whether a failed attempt is followed by another, and when: pure functions over plain values.

The decision is a value, so that the heart of the program can store it, and a test can state it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from ..exceptions import InvalidOption
from .errors import class_path
from .times import MAX_SECONDS, seconds

logger = logging.getLogger("django_jobqueue")

# Doubling beyond this passes every allowed cap; clamped before it multiplies, since floats overflow at 2**1024.
MAX_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Exponential:
    """``base`` seconds before the second attempt, doubled for each further one, up to ``cap`` seconds.

    ``jitter`` is a share of the delay: up to that much is added at random, never taken away, so that jobs
    that failed together do not come back together and none comes back early. The cap holds before jitter.
    """

    base: float = 10
    cap: float = 3600
    jitter: float = 0.1

    def __post_init__(self) -> None:
        seconds("The base of Exponential", self.base)
        seconds("The cap of Exponential", self.cap)
        jitter: object = self.jitter
        if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
            raise InvalidOption(f"The jitter of Exponential must be a share from 0 to 1, not {self.jitter!r}.")

    def seconds_after(self, attempt: int) -> float:
        """Seconds to wait after attempt number ``attempt``, counted from 1."""
        delay = min(self.cap, self.base * 2.0 ** min(max(attempt - 1, 0), MAX_DOUBLINGS))
        return delay * (1 + self.jitter * random.random())  # noqa: S311 - spreads load, guards nothing


Delay: TypeAlias = float | timedelta
BackoffFunction: TypeAlias = Callable[[BaseException, int], Delay]
Backoff: TypeAlias = Delay | Sequence[Delay] | Exponential | BackoffFunction


def check_backoff(kind: str, value: object) -> Backoff | None:
    """Return a usable backoff; an empty sequence is None, which means the setting's.

    A number or timedelta is constant, a sequence repeats its last entry, a callable gets the error and the
    attempt's number. Anything else, or anything negative, is an InvalidOption that names ``kind``.
    """
    if isinstance(value, Exponential) or (callable(value) and not isinstance(value, type)):
        return value
    if isinstance(value, list | tuple):
        return tuple(seconds(f"{kind}[{index}]", entry) for index, entry in enumerate(value)) or None
    return seconds(kind, value)


def seconds_of(backoff: Backoff, error: BaseException, attempt: int) -> float:
    """Seconds until the next attempt; what a callable returns is checked like an option."""
    if isinstance(backoff, Exponential):
        return backoff.seconds_after(attempt)
    if callable(backoff):
        return seconds("The returned backoff", backoff(error, attempt))
    if isinstance(backoff, Sequence):
        return seconds("backoff", backoff[min(max(attempt, 1), len(backoff)) - 1])
    return seconds("backoff", backoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What decides after a failed attempt; the numbers are those that apply to this job."""

    max_attempts: int
    backoff: Backoff
    fallback: Backoff = 10
    retry_on: tuple[type[BaseException], ...] = (BaseException,)
    give_up_on: tuple[type[BaseException], ...] = ()
    max_exceptions: int | None = None
    retry_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The job is released and runs again after ``delay`` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job becomes a dead letter; ``reason`` says why in a few words."""

    reason: str


def decide(policy: Policy, *, attempt: int, exceptions: int, error: BaseException, now: datetime) -> TryAgain | GiveUp:
    """What follows attempt number ``attempt``, which ended with ``error``; ``exceptions`` counts it too."""
    if isinstance(error, policy.give_up_on):
        return GiveUp("given up on this error")
    if not isinstance(error, policy.retry_on):
        return GiveUp("not an error to retry on")
    if attempt >= policy.max_attempts:
        return GiveUp("attempts spent")
    if policy.max_exceptions is not None and exceptions >= policy.max_exceptions:
        return GiveUp("exceptions spent")
    delay = _delay(policy, error, attempt)
    if policy.retry_until is not None and now + timedelta(seconds=delay) > policy.retry_until:
        return GiveUp("the next attempt would start too late")
    return TryAgain(delay)


def _delay(policy: Policy, error: BaseException, attempt: int) -> float:
    try:
        return seconds_of(policy.backoff, error, attempt)
    except BaseException as broken:  # the project's code, which must not end the worker
        _complain("The backoff of a job", broken, "the BACKOFF setting")
    try:
        return seconds_of(policy.fallback, error, attempt)
    except BaseException as broken:
        _complain("The BACKOFF setting", broken, "its default")
        return min(Exponential().seconds_after(attempt), MAX_SECONDS)


def _complain(culprit: str, broken: BaseException, instead: str) -> None:
    """Without a traceback, which would lead on to the error of the job, unmasked."""
    reason = str(broken) if isinstance(broken, InvalidOption) else f"it raised {class_path(broken)}"
    logger.error("%s gives no usable delay (%s); using %s.", culprit, reason, instead)
