"""A connection that is lost, at whatever statement: the driver repeats its work on a fresh one, and tells nobody.

PostgreSQL and MariaDB only; SQLite has no connection that somebody could end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections

from django_jobqueue.drivers.base import Driver
from django_jobqueue.drivers.database import DatabaseDriver
from django_jobqueue.jobs.records import Complete, Fail, NewJob, Release
from tests.drivers.contract import RETRY_AFTER, Clock, Store, attempt, ids, new

pytestmark = pytest.mark.django_db(transaction=True)

Act = Callable[[Store], Any]
# More than any of them takes: a connection is lost at each, until there was none to lose it at.
MOST_STATEMENTS = 20


@pytest.fixture(params=["own", "portable"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no connections that could be lost")
    if request.param == "portable" and connection.vendor != "postgresql":
        pytest.skip("the only form is the portable one")
    driver = DatabaseDriver("default", {"DATABASE": "default"})
    driver.uses_vendor_forms = request.param == "own"
    yield driver
    driver.close()


class Scissors:
    """Ends this thread's connection from another one: before, or after, the statement with this number."""

    def __init__(self, number: int, *, after: bool) -> None:
        self.number, self.after = number, after
        self.have_cut = False
        self._seen = 0

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        is_due = self._seen == self.number
        self._seen += 1
        if is_due and not self.after:
            self.cut()
        result = execute(sql, params, many, context)
        if is_due and self.after:
            self.cut()
        return result

    def cut(self) -> None:
        self.have_cut = True
        raw: Any = connection.connection
        other = connections.create_connection("default")
        try:
            with other.cursor() as cursor:
                if connection.vendor == "postgresql":
                    cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [raw.info.backend_pid])
                else:
                    cursor.execute("KILL %s", [raw.thread_id()])
        finally:
            other.close()


@contextmanager
def cutting(number: int, *, after: bool) -> Iterator[Scissors]:
    connection.ensure_connection()
    scissors = Scissors(number, after=after)
    with connection.execute_wrapper(scissors):
        yield scissors


def push_many(store: Store) -> None:
    jobs = [new(), new(delay=5), new()]
    assert store.push(*jobs) == ids(jobs)


def stage(store: Store) -> None:
    assert store.stage() == 1


def reserve(store: Store) -> None:
    """Only one of the tries is known to anybody, and nothing is taken twice."""
    taken = store.take()
    assert len({job.id for job in taken}) == len(taken)
    assert {job.attempt for job in taken} <= {1}


def of_taken(act: Callable[[Store, list[Any]], set[UUID]]) -> tuple[Act, Act]:
    """What is done with two jobs in hand; the first part only takes them."""
    taken: list[Any] = []

    def take(store: Store) -> None:
        store.push(new(), new(max_attempts=5))
        taken[:] = store.take(rows=2)

    def done(store: Store) -> None:
        assert act(store, taken) == ids(taken)

    return take, done


def renew(store: Store, taken: list[Any]) -> set[UUID]:
    assert store.renew(*taken) == set()
    return ids(taken)


def settle_each(store: Store, taken: list[Any]) -> set[UUID]:
    first, second = taken
    return store.settle(Release(first, 1, attempt()), Fail(second, attempt()))


def rescue_in_hand(store: Store, taken: list[Any]) -> set[UUID]:
    """What a supervisor does about a process that has died."""
    found = [store.driver.rescue_in_hand(job.id, job.token, max_attempts=3, now=store.clock.now) for job in taken]
    return {rescued.id for rescued in found if rescued is not None}


def release_worker(store: Store, taken: list[Any]) -> set[UUID]:
    assert store.driver.release_worker(taken[0].worker) == len(taken)
    return ids(taken)


def of_dead_letters(act: Callable[[Store, set[int]], set[int]]) -> tuple[Act, Act]:
    """What a person does with two dead letters; the first part only makes them."""
    wanted: set[int] = set()

    def bury(store: Store) -> None:
        wanted.clear()
        wanted.update(letter.number for letter in store.bury(new(), new()))

    def done(store: Store) -> None:
        assert act(store, wanted) == wanted

    return bury, done


def of_waiting(act: Callable[[Store, NewJob], Any]) -> tuple[Act, Act]:
    """What a person does with a job that waits."""
    waiting: list[NewJob] = []
    return lambda store: waiting.append(store.dispatch()), lambda store: act(store, waiting[-1])


def cancel(store: Store, waiting: NewJob) -> None:
    assert store.driver.cancel(waiting.id) is not None


def rescue(store: Store, taken: list[Any]) -> set[UUID]:
    store.clock.tick(RETRY_AFTER + 1)
    return ids(store.rescue())


ACTS: dict[str, tuple[Act, Act]] = {
    "push": (lambda store: None, lambda store: store.dispatch()),
    "push many": (lambda store: None, push_many),
    "queues": (lambda store: store.dispatch(), lambda store: store.driver.queues()),
    "stage": (lambda store: (store.dispatch(delay=1), store.clock.tick(2)), stage),
    "reserve": (lambda store: store.push(new(), new(), new()), reserve),
    "renew": of_taken(renew),
    "hand back": of_taken(lambda store, taken: store.hand_back(*taken)),
    "complete": of_taken(lambda store, taken: store.settle(*map(Complete, taken))),
    "complete with more": of_taken(lambda store, taken: store.settle(*(Complete(job, (new(),)) for job in taken))),
    "release or fail": of_taken(settle_each),
    "rescue": of_taken(rescue),
    "rescue in hand": of_taken(rescue_in_hand),
    "release worker": of_taken(release_worker),
    "cancel": of_waiting(cancel),
    "retry": of_dead_letters(lambda store, wanted: store.retry(*wanted)),
    "forget": of_dead_letters(lambda store, wanted: store.driver.forget(wanted)),
    "clear": (lambda store: store.dispatch(), lambda store: store.driver.clear("default", limit=1)),
}


# All others have a single statement, which has been committed when the connection is lost after it.
IN_A_TRANSACTION = (
    "renew",
    "hand back",
    "complete with more",
    "release or fail",
    "rescue in hand",
    "release worker",
    "cancel",
    "retry",
    "forget",
)
CASES = [
    *(pytest.param(name, False, id=f"{name}-before") for name in ACTS),
    *(pytest.param(name, True, id=f"{name}-after") for name in IN_A_TRANSACTION),
]


@pytest.mark.parametrize(("name", "after"), CASES)
def test_what_loses_its_connection_is_repeated_on_a_fresh_one(
    store: Store, clock: Clock, name: str, after: bool
) -> None:
    before, act = ACTS[name]
    for number in count():
        assert number < MOST_STATEMENTS
        store.driver.clear("default", limit=100)
        before(store)
        with cutting(number, after=after) as scissors:
            act(store)
        clock.tick()
        for job in store.take():
            store.complete(job)
        if not scissors.have_cut:
            assert number, "there was no statement"
            return
