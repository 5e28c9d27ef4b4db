"""Holding another thread's transaction open, to see who waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

from django.db import connections

from tests.helpers.waiting import DEADLINE, wait_until


@contextmanager
def held_open(alias: str, action: Callable[[], Any], *, after: str) -> Iterator[None]:
    """Run ``action`` in another thread, and stop it behind its first statement that begins so, before its commit."""
    reached, go_on = Event(), Event()

    def hold(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if not reached.is_set() and sql.lstrip().startswith(after):
            reached.set()
            assert go_on.wait(DEADLINE)
        return result

    def run() -> None:
        try:
            with connections[alias].execute_wrapper(hold):
                action()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            wait_until(lambda: reached.is_set() or running.done(), f"a statement begins with {after!r}")
            if running.done():
                running.result()
            assert reached.is_set(), f"no statement began with {after!r}"
            yield
        finally:
            go_on.set()
        running.result(DEADLINE)
