"""Threads with database connections of their own, closed at their end; errors reach the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from django.db import connections

from tests.helpers.waiting import DEADLINE

T = TypeVar("T")


def in_threads(count: int, work: Callable[[int], T]) -> list[T]:
    """What ``work`` returns in each of ``count`` threads, which begin together; its argument is their number."""
    return all_at_once([lambda number=number: work(number) for number in range(count)])


def all_at_once(actions: Sequence[Callable[[], T]]) -> list[T]:
    """What each action returns, each in a thread of its own; they begin together."""
    barrier = Barrier(len(actions))

    def run(action: Callable[[], T]) -> T:
        barrier.wait(DEADLINE)
        try:
            return action()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(actions)) as pool:
        futures: list[Future[T]] = [pool.submit(run, action) for action in actions]
        return [future.result(DEADLINE) for future in futures]
