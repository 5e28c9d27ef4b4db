"""The jobs of a soak: each tells the history of its start and its end; the first argument is its key.

Imported by the processes of a soak only: in others no worker would find them, and a check would say so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from django_jobqueue import JobContext, job

from . import history
from .kinds import ATTEMPTS_OF_ALWAYS, EFFECT_TABLE, MANY_ATTEMPTS
from .watching import token_of


class Meant(Exception):
    """A job that is to fail fails."""


class Unexpected(Exception):
    """A step was not given what the one before has returned."""


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


@job(queue="soak-a", max_attempts=MANY_ATTEMPTS, takes_context=True)
def step(context: JobContext, key: str, came: str = "", expected: str = "") -> str:
    """Returns its key, which the next step of its chain expects."""
    with told(context, key):
        if came != expected:
            raise Unexpected(f"{key} comes after {expected!r}, and was given {came!r}")
    return key


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
