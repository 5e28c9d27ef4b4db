"""The jobs of a soak: each tells the history of its start and its end; the first argument is its key."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection

from django_jobqueue import JobContext, job

from . import history
from .watching import token_of

EFFECT_TABLE = "jobqueue_soak_effect"
# So many that no run of bad luck makes a dead letter of a job that is sound.
MANY_ATTEMPTS = 50
ATTEMPTS_OF_ALWAYS = 3


class Meant(Exception):
    """A job that is to fail fails."""


@contextmanager
def told(context: JobContext, key: str) -> Iterator[str]:
    """Tell of the start and the end of a run; yields the token of its reservation."""
    token = token_of(context.id)
    history.write(history.Started(key, str(context.id), context.attempt, token, os.getpid(), history.now()))
    done = False
    try:
        yield token
        done = True
    finally:
        history.write(history.Finished(key, token, done, history.now()))


@job(queue="soak-a", max_attempts=MANY_ATTEMPTS, takes_context=True)
def sound(context: JobContext, key: str, seconds: float = 0) -> None:
    with told(context, key):
        if seconds:
            time.sleep(seconds)


@job(queue="soak-a", max_attempts=MANY_ATTEMPTS, settle="each", takes_context=True)
def each(context: JobContext, key: str) -> None:
    with told(context, key):
        pass


@job(queue="soak-b", max_attempts=MANY_ATTEMPTS, takes_context=True)
def once(context: JobContext, key: str) -> None:
    """Fails at its first attempt."""
    with told(context, key):
        if context.attempt == 1:
            raise Meant(key)


@job(queue="soak-b", max_attempts=ATTEMPTS_OF_ALWAYS, takes_context=True)
def always(context: JobContext, key: str) -> None:
    """Fails."""
    with told(context, key):
        raise Meant(key)


@job(queue="soak-a", max_attempts=1, takes_context=True)
def single(context: JobContext, key: str, seconds: float = 0) -> None:
    """May start only once."""
    with told(context, key):
        time.sleep(seconds)


@job(queue="soak-b", max_attempts=MANY_ATTEMPTS, atomic=True, takes_context=True)
def atomic(context: JobContext, key: str, fails: bool = False) -> None:
    """Writes its effect, and dispatches a child, in the transaction that ends it; or writes both and fails once."""
    with told(context, key) as token:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {EFFECT_TABLE} (job_key, token) VALUES (%s, %s)", [key, token])
        child = f"{key}.{token[:13]}"
        history.write(history.Child(child, key, token, history.now()))
        sound.dispatch(child)
        if fails and context.attempt == 1:
            raise Meant(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """``weight`` is how many of a thousand jobs are of this kind; ``seconds`` and ``delay`` are ranges to draw from.

    A ``sound`` job is never a dead letter; the time of a ``long`` one is counted in reservations.
    """

    handler: Any
    weight: int
    seconds: tuple[float, float] | None = None
    delay: tuple[float, float] | None = None
    arguments: tuple[Any, ...] = ()
    is_sound: bool = True
    is_long: bool = False


KINDS = {
    "quick": Kind(handler=sound, weight=700),
    "each": Kind(handler=each, weight=40),
    "delayed": Kind(handler=sound, weight=80, delay=(0.2, 3.0)),
    "brief": Kind(handler=sound, weight=15, seconds=(0.01, 0.08)),
    "slow": Kind(handler=sound, weight=6, seconds=(0.2, 0.6)),
    "long": Kind(handler=sound, weight=1, seconds=(1.1, 1.6), is_long=True),
    "once": Kind(handler=once, weight=30),
    "always": Kind(handler=always, weight=15, is_sound=False),
    "single": Kind(handler=single, weight=13, seconds=(0.0, 0.1), is_sound=False),
    "atomic": Kind(handler=atomic, weight=90),
    "atomic once": Kind(handler=atomic, weight=10, arguments=(True,)),
}
