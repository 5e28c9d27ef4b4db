"""Which strings may name a job, a queue or a connection: only those that every store compares alike."""

from __future__ import annotations

from ..exceptions import InvalidOption

MAX_JOB_NAME = 255
MAX_QUEUE_NAME = 100


def check_name(kind: str, value: object, limit: int) -> str:
    """Return ``value`` when it can be stored and compared exactly on every store, else raise InvalidOption.

    MySQL and MariaDB pad with spaces when they compare, terminals interpret control characters, and
    ``--queue`` separates by comma and means "every queue" by ``*``; such names are refused here so that
    every store gives the same answer.
    """
    if type(value) is not str:
        raise InvalidOption(f"{kind} must be a string, not {value!r}.")
    if not value:
        raise InvalidOption(f"{kind} must not be empty.")
    if len(value) > limit:
        raise InvalidOption(f"{kind} {value[:40]!r}… has {len(value)} characters; the limit is {limit}.")
    if value != value.strip() or not value.isprintable():
        raise InvalidOption(
            f"{kind} {value!r} has leading or trailing space, or characters that cannot be printed; remove them."
        )
    if "," in value or "*" in value:
        raise InvalidOption(f"{kind} {value!r} contains ',' or '*', which lists of queues use; rename it.")
    return value


def check_queue(value: object) -> str:
    return check_name("The queue name", value, MAX_QUEUE_NAME)


def check_job_name(value: object) -> str:
    return check_name("The job name", value, MAX_JOB_NAME)
