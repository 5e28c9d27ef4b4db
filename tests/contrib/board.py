"""Tasks of the tests, as a project has them in its tasks.py; imported when TASKS names the backend."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from django_jobqueue import job
from tests.contrib.names import task

seen: list[Any] = []


@task
def add(first: Any, second: Any = 0) -> Any:
    return first + second


@task()
def echo(*args: Any, **kwargs: Any) -> Any:
    seen.append((args, kwargs))
    return args, kwargs


@task
def double(key: Any) -> Any:
    return {key: key * 2}


@task(queue_name="mail", priority=7)
def send(text: str) -> None:
    seen.append(text)


@task(takes_context=True)
def look(context: Any, *, fail_before: int = 1) -> int:
    seen.append(context.task_result)
    if context.attempt < fail_before:
        raise OSError(f"attempt {context.attempt}")
    return int(context.attempt)


@task
def fail(text: str = "no stock", token: str = "") -> None:
    raise KeyError(text, token)


@task
async def add_later(first: int, second: int) -> int:
    await asyncio.sleep(0)
    return first + second


@task
def give(kind: str) -> Any:
    return {"nan": float("nan"), "bytes": b"x", "set": {1}, "key": {1: 2}, "tuple": (1, (2,))}[kind]


@task
def never_end() -> None:
    while True:
        time.sleep(0.01)


@task
async def never_end_either() -> None:
    while True:
        await asyncio.sleep(0.01)


@task
def leave() -> None:
    raise SystemExit(3)


def both(text: str) -> str:
    return text.upper()


both_job = job(name="tests.both")(both)
both_task = task(both)


@task(backend="mail")
def through_mail() -> str:
    return "mail"
