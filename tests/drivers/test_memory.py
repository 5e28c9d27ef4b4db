"""What is true of the memory driver only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_jobqueue.drivers.memory import MemoryDriver
from django_jobqueue.exceptions import InvalidConnection
from tests.drivers.contract import RETRY_AFTER, Clock, Store, new


@pytest.fixture
def store(clock: Clock) -> Store:
    return Store(MemoryDriver("default", {}), clock)


class Waiter:
    def __init__(self) -> None:
        self.woken = False

    def wake(self) -> None:
        self.woken = True


def woken_by(store: Store, action: Callable[[], object], queues: list[str] | None = None) -> bool:
    waiter = Waiter()
    store.driver.listen(waiter, queues)
    action()
    store.driver.unlisten(waiter)
    return waiter.woken


def test_a_push_ends_a_wait(store: Store) -> None:
    assert woken_by(store, lambda: store.push(new()))


def test_a_push_of_known_jobs_ends_no_wait(store: Store) -> None:
    job = store.dispatch()
    assert not woken_by(store, lambda: store.push(job))


def test_a_hand_back_ends_a_wait(store: Store) -> None:
    store.dispatch()
    reservation = store.take_one()
    assert woken_by(store, lambda: store.hand_back(reservation))


def test_a_release_ends_a_wait(store: Store) -> None:
    store.dispatch()
    reservation = store.take_one()
    assert woken_by(store, lambda: store.release(reservation))


def test_a_rescue_ends_a_wait(store: Store, clock: Clock) -> None:
    store.dispatch()
    store.take_one()
    clock.tick(RETRY_AFTER + 1)
    assert woken_by(store, store.rescue)


def test_a_retry_ends_a_wait(store: Store) -> None:
    (dead,) = store.bury(new())
    assert woken_by(store, lambda: store.retry(dead.number))


def test_a_wait_that_is_over_is_not_woken(store: Store) -> None:
    waiter = Waiter()
    store.driver.listen(waiter)
    store.driver.unlisten(waiter)
    store.dispatch()
    assert not waiter.woken


def test_a_job_of_another_queue_ends_no_wait(store: Store) -> None:
    assert not woken_by(store, lambda: store.dispatch(queue="mail"), ["default"])
    assert woken_by(store, lambda: store.dispatch(queue="mail"), ["default", "mail"])


def test_it_has_no_database_and_joins_no_transaction() -> None:
    driver = MemoryDriver("default", {})
    assert driver.database is None
    assert not driver.supports_transactions


def test_it_is_refused_to_a_worker_of_another_process_with_the_cure() -> None:
    driver = MemoryDriver("fast", {})
    assert not driver.is_shared
    (problem,) = driver.problems()
    assert "'fast'" in problem
    assert '"database"' in problem


def test_it_takes_no_options() -> None:
    with pytest.raises(InvalidConnection, match="'DATABASE'"):
        MemoryDriver("fast", {"DATABASE": "default"})


def test_its_own_clock_is_used_when_no_moment_is_given() -> None:
    driver = MemoryDriver("default", {})
    job = new()
    driver.push([job])
    assert driver.sizes()["default"].oldest == pytest.approx(0, abs=5)
