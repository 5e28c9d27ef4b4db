"""How much a worker reserves at once, from which queue, and from where on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from django_jobqueue.drivers import Driver
from django_jobqueue.drivers.memory import MemoryDriver
from django_jobqueue.jobs.records import Position, Reserved
from django_jobqueue.running.lanes import FORGET_SECONDS, MOST_NAMES, MOST_ROWS, SLICE_SECONDS, Averages, Lane, Lanes
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock, Store, new
from tests.helpers.simulation import Simulation

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]


@pytest.fixture
def lane() -> Lane:
    return Lane(MemoryDriver("default", {}), "default")


def rows(lane: Lane, averages: Averages | None = None) -> int:
    return lane.limit(MOST_ROWS, 3, averages or Averages()).rows


# How much


def test_a_queue_without_a_history_begins_with_one_job(lane: Lane) -> None:
    assert rows(lane) == 1
    assert rows(lane) == 1


def test_a_batch_at_most_doubles_and_fits_the_slice(lane: Lane) -> None:
    lane.note_run(0.01)
    assert [rows(lane) for _ in range(6)] == [2, 4, 8, 10, 10, 10]


def test_a_batch_never_exceeds_the_most_rows(lane: Lane) -> None:
    lane.note_run(0.0)
    assert [rows(lane) for _ in range(12)][-3:] == [MOST_ROWS] * 3


def test_a_job_longer_than_a_slice_is_taken_by_itself(lane: Lane) -> None:
    lane.note_run(5.0)
    assert rows(lane) == 1


def test_a_queue_that_turns_slow_is_noticed_within_a_few_jobs(lane: Lane) -> None:
    for _ in range(20):
        lane.note_run(0.001)
    assert [rows(lane) for _ in range(8)][-1] > 50
    for _ in range(3):
        lane.note_run(1.0)
    assert rows(lane) == 1


def test_a_limit_below_the_most_rows_does_not_change_what_is_learnt(lane: Lane) -> None:
    lane.note_run(0.001)
    for _ in range(6):
        assert lane.limit(1, 3, Averages()).rows == 1
    assert rows(lane) > 50


def test_the_limit_carries_the_slice_and_the_averages_by_name(lane: Lane) -> None:
    averages = Averages()
    averages.note("a", 0.5)
    limit = lane.limit(MOST_ROWS, 7, averages)
    assert (limit.seconds, limit.max_attempts, dict(limit.averages)) == (SLICE_SECONDS, 7, {"a": 0.5})


def test_averages_lean_to_the_newest_runs() -> None:
    averages = Averages()
    averages.note("a", 1.0)
    averages.note("a", 2.0)
    assert averages.by_name == {"a": 1.25}


def test_names_without_end_do_not_fill_the_memory() -> None:
    averages = Averages()
    for number in range(MOST_NAMES + 5):
        averages.note(f"name-{number}", 0.1)
    assert len(averages.by_name) <= MOST_NAMES


# From where on


def reserved(store: Store, count: int, more: bool) -> Reserved:
    store.push(*(new() for _ in range(count)))
    return Reserved(store.take(rows=count), more)


@pytest.fixture
def memory_store(clock: Clock) -> Store:
    return Store(MemoryDriver("default", {}), clock)


def test_a_full_batch_leaves_a_mark_at_its_last_row(lane: Lane, memory_store: Store) -> None:
    batch = reserved(memory_store, 3, more=True)
    lane.note_reserved(batch, now=0.0, interval=0.5)
    assert lane.mark == batch.jobs[-1].position


def test_a_batch_that_was_not_full_drops_the_mark(lane: Lane, memory_store: Store) -> None:
    lane.note_reserved(reserved(memory_store, 3, more=True), now=0.0, interval=0.5)
    lane.note_reserved(reserved(memory_store, 2, more=False), now=0.1, interval=0.5)
    assert lane.mark is None


def test_a_reserve_that_found_nothing_drops_the_mark(lane: Lane, memory_store: Store) -> None:
    lane.note_reserved(reserved(memory_store, 3, more=True), now=0.0, interval=0.5)
    lane.note_reserved(Reserved([], more=False), now=0.1, interval=0.5)
    assert lane.mark is None


def test_a_run_of_full_batches_moves_the_mark_on_for_one_interval(lane: Lane, memory_store: Store) -> None:
    marks: list[Position | None] = []
    for moment in (0.0, 0.2, 0.4, 0.6, 0.7):
        batch = reserved(memory_store, 2, more=True)
        lane.note_reserved(batch, now=moment, interval=0.5)
        marks.append(lane.mark)
        assert lane.mark in (None, batch.jobs[-1].position)
    assert [mark is not None for mark in marks] == [True, True, True, False, True]


# Which one


def test_listed_queues_keep_their_order_over_all_connections() -> None:
    drivers = [MemoryDriver("one", {}), MemoryDriver("two", {})]
    lanes = Lanes(drivers, ["high", "low"])
    for _ in range(3):
        assert [(lane.queue, lane.driver.alias) for lane in lanes.in_turn()] == [
            ("high", "one"),
            ("high", "two"),
            ("low", "one"),
            ("low", "two"),
        ]


def test_under_the_star_each_turn_begins_one_further_on(memory_store: Store) -> None:
    for queue in ("a", "b", "c"):
        memory_store.dispatch(queue=queue)
    lanes = Lanes([memory_store.driver], None)
    lanes.discover(memory_store.driver)
    firsts = [lanes.in_turn()[0].queue for _ in range(6)]
    assert sorted(firsts[:3]) == ["a", "b", "c"]
    assert firsts[:3] == firsts[3:]
    assert sorted(lane.queue for lane in lanes.in_turn()) == ["a", "b", "c"]


def test_queues_come_and_go_under_the_star(memory_store: Store, simulation: Simulation) -> None:
    """One that empties is remembered for a while, since it fills again soon."""
    first = memory_store.dispatch(queue="a")
    lanes = Lanes([memory_store.driver], None)
    lanes.discover(memory_store.driver)
    known = lanes.in_turn()[0]
    memory_store.dispatch(queue="b")
    lanes.discover(memory_store.driver)
    assert {lane.queue for lane in lanes.in_turn()} == {"a", "b"}
    assert any(lane is known for lane in lanes.in_turn())
    memory_store.driver.cancel(first.id)
    simulation.advance(FORGET_SECONDS / 2)
    lanes.discover(memory_store.driver)
    assert any(lane is known for lane in lanes.in_turn())
    simulation.advance(FORGET_SECONDS)
    lanes.discover(memory_store.driver)
    assert [lane.queue for lane in lanes.in_turn()] == ["b"]


def test_listed_queues_are_not_discovered(memory_store: Store) -> None:
    memory_store.dispatch(queue="other")
    lanes = Lanes([memory_store.driver], ["a"])
    lanes.discover(memory_store.driver)
    assert [lane.queue for lane in lanes.of(memory_store.driver)] == ["a"]


def test_one_connections_queues_are_apart_from_anothers(clock: Clock) -> None:
    one, two = Store(MemoryDriver("one", {}), clock), Store(MemoryDriver("two", {}), clock)
    one.dispatch(queue="a")
    two.dispatch(queue="a")
    lanes = Lanes([one.driver, two.driver], None)
    lanes.discover(one.driver)
    lanes.discover(two.driver)
    assert len(lanes.in_turn()) == 2
    assert [lane.driver for lane in lanes.of(two.driver)] == [two.driver]


# In the loop


class Asked:
    """What a worker asked of its driver: the size of each reserve, and from where on."""

    def __init__(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        self.found: list[int] = []
        self.after: list[Position | None] = []
        reserve = driver.reserve

        def record(queue: str, worker: str, limit: Any, *, after: Position | None = None, **given: Any) -> Reserved:
            found = reserve(queue, worker, limit, after=after, **given)
            self.rows.append(limit.rows)
            self.after.append(after)
            self.found.append(len(found.jobs))
            return found

        monkeypatch.setattr(driver, "reserve", record)


@pytest.fixture
def asked(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(driver, monkeypatch)


def no_keeper(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Its looks are by the real clock, which these tests are not about."""
    monkeypatch.setattr(worker._keeper, "watch", lambda: None)
    return worker


def test_batches_grow_with_short_jobs(
    driver: Driver,
    make_worker: Make,
    simulation: Simulation,
    register: Register,
    asked: Asked,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @register()
    def work() -> None:
        simulation.advance(0.01)

    for _ in range(45):
        work.dispatch()
    simulation.run(no_keeper(make_worker(stop_when_empty=True), monkeypatch))
    # What a store takes to settle counts too, so that a busy machine has smaller batches.
    assert asked.found[:2] == [1, 2]
    assert all(later <= 2 * earlier for earlier, later in pairwise(asked.found))
    assert 2 < max(asked.found) <= 10
    assert sum(asked.found) == 45


def test_the_mark_is_used_within_a_run_of_full_batches_and_dropped_at_its_end(
    driver: Driver,
    make_worker: Make,
    simulation: Simulation,
    register: Register,
    asked: Asked,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @register()
    def work() -> None: ...

    for _ in range(40):
        work.dispatch()
    worker = no_keeper(make_worker(sleep=1000), monkeypatch)
    simulation.run(worker, waits=1)
    full = [index for index, found in enumerate(asked.found) if found]
    assert asked.after[0] is None
    assert all(asked.after[index] is not None for index in full[1:])
    assert sum(asked.found) == 40
    assert all(lane.mark is None for lane in worker._lanes.in_turn())


def test_the_mark_is_dropped_every_poll_interval(
    driver: Driver,
    make_worker: Make,
    simulation: Simulation,
    register: Register,
    asked: Asked,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What became ready before the mark is not passed over for longer."""
    seen: list[str] = []

    @register()
    def work(name: str) -> None:
        seen.append(name)
        simulation.advance(0.05)
        if len(seen) == 10:
            work.using(priority=5).dispatch("urgent")

    for number in range(60):
        work.dispatch(f"job {number}")
    simulation.run(no_keeper(make_worker(stop_when_empty=True, sleep=0.5), monkeypatch))
    assert len(seen) == 61
    assert seen.index("urgent") < 10 + 0.5 / 0.05 + 5
    assert any(mark is None for mark in asked.after[2:-2])


def test_a_hand_back_of_ones_own_drops_the_mark(
    driver: Driver, make_worker: Make, simulation: Simulation, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was handed back stands before the mark, and would wait behind everything else."""
    seen: list[int] = []
    worker = no_keeper(make_worker(stop_when_empty=True, sleep=1000), monkeypatch)

    @register()
    def work(number: int) -> None:
        seen.append(number)
        if number == 8:  # the second of a batch of eight: what the keeper would do now
            driver.hand_back(worker._hand.take_unstarted())

    for number in range(30):
        work.dispatch(number)
    simulation.run(worker)
    assert seen == list(range(30))


def test_a_wake_up_drops_the_marks(memory: Driver, make_worker: Make, simulation: Simulation, clock: Clock) -> None:
    worker = make_worker()
    store = Store(memory, clock)
    store.dispatch()
    worker._lanes.discover(memory)
    (lane,) = worker._lanes.in_turn()
    lane.mark = Position(0, clock.now, new().id)
    worker._lanes.drop_marks()
    assert lane.mark is None


def test_a_job_that_crashed_its_worker_goes_alone(
    driver: Driver,
    make_worker: Make,
    simulation: Simulation,
    register: Register,
    asked: Asked,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that what it does to this one harms no other."""
    company: list[tuple[str, int]] = []
    worker = no_keeper(make_worker(stop_when_empty=True), monkeypatch)

    @register()
    def work(name: str) -> None:
        company.append((name, len(worker._hand.held())))

    for number in range(7):
        work.dispatch(f"before {number}")
    work.dispatch("suspect")
    for number in range(7):
        work.dispatch(f"after {number}")
    suspect = driver.peek("default", limit=20)[7].id
    mark_as_crashed(driver, suspect)
    simulation.run(worker)
    assert len(company) == 15
    assert dict(company)["suspect"] == 1
    assert max(count for _, count in company) > 1


def mark_as_crashed(driver: Driver, job_id: Any) -> None:
    if isinstance(driver, MemoryDriver):
        driver._jobs[job_id].crashes = 1
    else:
        from django_jobqueue.models import Job

        Job.objects.filter(id=job_id).update(crashes=1)


def test_a_job_on_its_last_attempt_goes_alone(
    driver: Driver, make_worker: Make, simulation: Simulation, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    company: list[tuple[str, int]] = []
    worker = no_keeper(make_worker(stop_when_empty=True), monkeypatch)

    @register()
    def work(name: str) -> None:
        company.append((name, len(worker._hand.held())))

    @register(max_attempts=1)
    def once() -> None:
        company.append(("once", len(worker._hand.held())))

    for number in range(7):
        work.dispatch(f"before {number}")
    once.dispatch()
    for number in range(7):
        work.dispatch(f"after {number}")
    simulation.run(worker)
    assert dict(company)["once"] == 1
    assert len(company) == 15


def test_an_unknown_average_fills_the_slice(
    driver: Driver, make_worker: Make, simulation: Simulation, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was never seen may take long: nothing is reserved behind it."""
    company: list[tuple[str, int]] = []
    worker = no_keeper(make_worker(stop_when_empty=True), monkeypatch)

    @register()
    def work(name: str) -> None:
        company.append((name, len(worker._hand.held())))

    @register()
    def stranger() -> None:
        company.append(("stranger", len(worker._hand.held())))

    for number in range(7):
        work.dispatch(f"before {number}")
    stranger.dispatch()
    for number in range(7):
        work.dispatch(f"after {number}")
    simulation.run(worker)
    assert dict(company)["stranger"] == 1
    assert len(company) == 15
