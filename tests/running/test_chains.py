"""Chains that run: each step after the one before, none lost and none doubled, caught once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection

from django_jobqueue import PREVIOUS, JobContext, chain, get_job
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs import flows
from django_jobqueue.jobs.flows import RELAY, SPREAD
from django_jobqueue.jobs.registry import registry
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.listening import Heard
from tests.helpers.notes import run_all

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def ran() -> list[Any]:
    """What the steps did, in order."""
    return []


@pytest.fixture
def step(register: Register, ran: list[Any]) -> Any:
    """A step that notes its number, and returns the next one."""

    @register()
    def step(number: int) -> int:
        ran.append(number)
        return number + 1

    return step


@pytest.fixture
def failing(register: Register) -> Any:
    @register(max_attempts=1)
    def failing(*args: Any) -> None:
        raise ValueError("no stock")

    return failing


@pytest.fixture
def catch(register: Register, ran: list[Any]) -> Any:
    @register()
    def catch(error: Any = None) -> None:
        ran.append(error)

    return catch


def retry_all(driver: Driver, clock: Clock) -> set[int]:
    return driver.retry({letter.number: None for letter in driver.failed()}, now=clock.now)


def is_empty(driver: Driver) -> bool:
    return not any(size.waiting or size.reserved for size in driver.sizes().values())


def test_steps_run_one_after_the_other(driver: Driver, worker: Worker, clock: Clock, step: Any, ran: list[Any]) -> None:
    ids = chain(step.s(1), step.s(2), step.s(3)).dispatch().ids
    for number, job_id in enumerate(ids, start=1):
        assert get_job(job_id) is not None
        assert worker.work_once(now=clock.tick())
        assert ran == list(range(1, number + 1))
    assert is_empty(driver)


def test_previous_is_what_the_step_before_returned(
    driver: Driver, worker: Worker, clock: Clock, step: Any, ran: list[Any]
) -> None:
    chain(step.s(1), step.s(PREVIOUS), step.s(number=PREVIOUS)).dispatch()
    run_all(worker, clock)
    assert ran == [1, 2, 3]


def test_a_step_that_fails_is_repeated_before_the_next_one_runs(
    driver: Driver, worker: Worker, clock: Clock, register: Register, step: Any, ran: list[Any]
) -> None:
    @register(max_attempts=2, backoff=0)
    def shaky() -> None:
        ran.append("shaky")
        if ran == ["shaky"]:
            raise ValueError

    chain(shaky.s(), step.s(1)).dispatch()
    run_all(worker, clock)
    assert ran == ["shaky", "shaky", 1]


def test_a_step_that_is_released_keeps_its_chain(
    driver: Driver, worker: Worker, clock: Clock, register: Register, step: Any, ran: list[Any]
) -> None:
    @register(takes_context=True)
    def patient(context: JobContext) -> None:
        ran.append("patient")
        if ran == ["patient"]:
            context.release()

    chain(patient.s(), step.s(1)).dispatch()
    run_all(worker, clock)
    assert ran == ["patient", "patient", 1]


def test_each_step_has_options_of_its_own(
    driver: Driver, worker: Worker, clock: Clock, step: Any, ran: list[Any]
) -> None:
    later = step.using(queue="slow", delay=60, priority=7, metadata={"user": 3})
    ids = chain(step.s(1), later.s(2)).dispatch().ids
    worker.work_once(now=clock.now)
    job = get_job(ids[1])
    assert job is not None
    assert (job.queue, job.state, job.metadata) == ("slow", "scheduled", {"user": 3})
    assert not worker.work_once(now=clock.tick(59))
    assert worker.work_once(now=clock.tick(2))  # the delay counts from the end of the step before
    assert ran == [1, 2]


def test_every_step_is_announced_when_it_is_stored(
    driver: Driver, worker: Worker, clock: Clock, step: Any, heard: Heard
) -> None:
    ids = chain(step.s(1), step.s(2)).dispatch().ids
    run_all(worker, clock)
    assert [sent["id"] for sent in heard.all("job_dispatched")] == list(ids)
    assert heard.names() == ["job_dispatched", "job_starting", "job_processed"] * 2


def test_the_result_of_the_last_step_is_kept_as_of_any_job(
    driver: Driver, worker: Worker, clock: Clock, register: Register, step: Any
) -> None:
    @register(keep_result=3600)
    def last(number: int) -> int:
        return number * 10

    ids = chain(step.s(1), last.s(PREVIOUS)).dispatch().ids
    run_all(worker, clock)
    job = get_job(ids[-1])
    assert job is not None
    assert job.result == 20


# Failures


def test_a_dead_step_stops_the_chain_and_is_caught_once_with_the_error(
    driver: Driver, worker: Worker, clock: Clock, step: Any, failing: Any, catch: Any, ran: list[Any], heard: Heard
) -> None:
    ids = chain(step.s(1), failing.s(), step.s(3)).catch(catch.s(PREVIOUS)).dispatch().ids
    run_all(worker, clock)
    error = {"id": ids[1], "name": "tests.failing", "exception_class": "ValueError", "message": "no stock"}
    assert ran == [1, error]
    assert get_job(ids[2]) is None
    assert len(heard.all("job_dispatched")) == 3


def test_a_chain_that_succeeds_is_not_caught(
    driver: Driver, worker: Worker, clock: Clock, step: Any, catch: Any, ran: list[Any]
) -> None:
    chain(step.s(1), step.s(2)).catch(catch.s()).dispatch()
    run_all(worker, clock)
    assert ran == [1, 2]


def test_a_catch_may_take_nothing_of_the_error(
    driver: Driver, worker: Worker, clock: Clock, failing: Any, catch: Any, ran: list[Any]
) -> None:
    chain(failing.s()).catch(catch.s("tidy up")).dispatch()
    run_all(worker, clock)
    assert ran == ["tidy up"]


def test_a_dead_step_that_a_person_retries_goes_on_with_its_chain(
    driver: Driver, worker: Worker, clock: Clock, register: Register, step: Any, catch: Any, ran: list[Any]
) -> None:
    stock: list[int] = []

    @register(max_attempts=1)
    def needy() -> int:
        return stock[0]

    ids = chain(needy.s(), step.s(PREVIOUS), step.s(PREVIOUS)).catch(catch.s("caught")).dispatch().ids
    run_all(worker, clock)
    retry_all(driver, clock)
    run_all(worker, clock)
    assert ran == ["caught"], "it failed again, and was caught before"
    stock.append(7)
    retry_all(driver, clock)
    run_all(worker, clock)
    assert ran == ["caught", 7, 8]
    assert get_job(ids[0]) is None
    assert is_empty(driver)


def test_a_handler_that_fails_its_job_is_caught(
    driver: Driver, worker: Worker, clock: Clock, register: Register, catch: Any, ran: list[Any]
) -> None:
    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.fail("on purpose")

    chain(work.s()).catch(catch.s(PREVIOUS)).dispatch()
    run_all(worker, clock)
    assert [error["message"] for error in ran] == ["on purpose"]


def test_a_step_whose_worker_dies_is_caught(
    driver: Driver, worker: Worker, clock: Clock, register: Register, catch: Any, ran: list[Any], heard: Heard
) -> None:
    from django_jobqueue.jobs.records import ReserveLimit

    @register(max_attempts=1)
    def deadly() -> None: ...

    chain(deadly.s()).catch(catch.s(PREVIOUS)).dispatch()
    limit = ReserveLimit(rows=1, max_attempts=3)
    assert driver.reserve("default", "killed", limit, retry_after=90, now=clock.now).jobs
    clock.tick(91)
    run_all(worker, clock)
    assert [error["exception_class"] for error in ran] == ["django_jobqueue.exceptions.ReservationLost"]
    assert [sent["name"] for sent in heard.all("job_dispatched")] == ["tests.deadly", "tests.catch"]


@pytest.mark.parametrize("asks", [True, False])
def test_a_result_that_is_no_json_fails_only_the_step_that_asks_for_it(
    driver: Driver,
    worker: Worker,
    clock: Clock,
    register: Register,
    step: Any,
    catch: Any,
    ran: list[Any],
    asks: bool,
) -> None:
    """F43"""

    @register()
    def work() -> Any:
        ran.append("work")
        return {1, 2}

    ids = chain(work.s(), step.s(PREVIOUS if asks else 5)).catch(catch.s(PREVIOUS)).dispatch().ids
    run_all(worker, clock)
    assert ran[0] == "work"
    assert len(ran) == 2
    assert get_job(ids[0]) is None
    if not asks:
        assert ran[1] == 5
        return
    job = get_job(ids[1])
    assert job is not None
    assert (job.state, job.attempts) == ("failed", 1)
    assert "result of the step before is missing. result: a set is not JSON" in job.errors[0].message
    assert ran[1]["id"] == ids[1]


def test_a_chain_that_cannot_be_read_fails_its_job_before_it_runs(
    driver: Driver, worker: Worker, clock: Clock, step: Any, ran: list[Any]
) -> None:
    """F64"""
    from django_jobqueue.jobs.ids import new_job_id
    from django_jobqueue.jobs.records import NewJob

    job = NewJob(
        new_job_id(), "tests.step", "default", '{"args":[1],"kwargs":{}}', 1, max_attempts=1, flow='{"steps":7}'
    )
    driver.push([job])
    run_all(worker, clock)
    found = get_job(job.id)
    assert found is not None
    assert "The stored chain of the job cannot be read" in found.errors[0].message
    assert ran == []


# Crashes and losses


def test_when_the_next_step_cannot_be_stored_the_step_before_has_not_ended(
    database: Driver,
    worker: Worker,
    clock: Clock,
    step: Any,
    ran: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F08"""
    first, second = chain(step.s(1), step.s(2)).dispatch().ids
    insert = database._insert  # type: ignore[attr-defined]
    failures = [OperationalError("server closed the connection")] * 2

    def failing_insert(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return insert(*args)

    monkeypatch.setattr(database, "_insert", failing_insert)
    with pytest.raises(OperationalError):
        worker.work_once(now=clock.now)
    job = get_job(first)
    assert job is not None
    assert job.state == "reserved"
    assert get_job(second) is None
    failures.clear()
    run_all(worker, clock)
    assert ran == [1, 2]
    assert is_empty(database)


def test_a_worker_that_lost_a_step_stores_no_next_one(
    driver: Driver, worker: Worker, clock: Clock, register: Register, step: Any, ran: list[Any]
) -> None:
    """F04"""
    lost: list[bool] = []

    @register(max_attempts=5)
    def slow() -> None:
        if not lost:
            lost.append(True)
            driver.rescue(max_attempts=3, now=clock.after(1000))

    _first, second = chain(slow.s(), step.s(1)).dispatch().ids
    worker.work_once(now=clock.now)
    assert worker.stats.lost == 1
    assert get_job(second) is None
    clock.tick(1001)
    run_all(worker, clock)
    assert ran == [1]


# Atomic steps


def test_the_effects_of_an_atomic_step_and_the_next_step_are_committed_together(
    database: Driver, worker: Worker, clock: Clock, register: Register, step: Any, ran: list[Any]
) -> None:
    seen: list[Any] = []

    @register(atomic=True)
    def effect() -> int:
        Group.objects.create(name="effect")
        connection.on_commit(lambda: seen.append((Group.objects.count(), get_job(ids[1]) is not None)))
        return 7

    ids = chain(effect.s(), step.s(PREVIOUS)).dispatch().ids
    run_all(worker, clock)
    assert seen == [(1, True)]
    assert ran == [7]


def test_an_atomic_step_that_dies_is_caught_and_continued_by_a_retry(
    database: Driver, worker: Worker, clock: Clock, register: Register, step: Any, catch: Any, ran: list[Any]
) -> None:
    is_mended: list[bool] = []

    @register(atomic=True, max_attempts=1)
    def effect() -> None:
        Group.objects.create(name="effect")
        if not is_mended:
            raise ValueError("no stock")

    chain(effect.s(), step.s(1)).catch(catch.s("caught")).dispatch()
    run_all(worker, clock)
    assert (ran, Group.objects.count()) == (["caught"], 0)
    is_mended.append(True)
    retry_all(database, clock)
    run_all(worker, clock)
    assert (ran, Group.objects.count()) == (["caught", 1], 1)


# Across connections


@pytest.fixture
def two_connections(transactional_db: None, settings: Any) -> tuple[Driver, Driver]:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "fast": {"DRIVER": "memory"}}}
    return connections["default"], connections["fast"]


def test_a_step_of_another_connection_is_stored_there(
    two_connections: tuple[Driver, Driver],
    make_worker: Callable[..., Worker],
    clock: Clock,
    step: Any,
    ran: list[Any],
) -> None:
    _database, fast = two_connections
    there = step.using(connection="fast", queue="quick")
    first, second, third = chain(step.s(1), there.s(PREVIOUS), step.s(PREVIOUS)).dispatch().ids
    worker = make_worker()
    run_one_of(worker, clock, ran)
    assert get_job(second) is None, "it is on its way"
    worker.work_once(now=clock.tick())
    assert fast.get(second) is not None
    run_all(worker, clock)
    assert ran == [1, 2, 3]
    assert [get_job(job_id) for job_id in (first, second, third)] == [None] * 3


def run_one_of(worker: Worker, clock: Clock, ran: list[Any]) -> None:
    while not ran:
        assert worker.work_once(now=clock.tick())


def test_a_relay_that_runs_twice_stores_a_waiting_step_once(
    two_connections: tuple[Driver, Driver], make_worker: Callable[..., Worker], clock: Clock, step: Any, ran: list[Any]
) -> None:
    database, fast = two_connections
    chain(step.s(1), step.using(connection="fast").s(2)).dispatch()
    worker = make_worker()
    worker.work_once(now=clock.tick())
    (relay,) = database.peek("default", limit=10)
    assert relay.name == RELAY
    from django_jobqueue.dispatching.relay import relay as carry
    from django_jobqueue.jobs.payloads import decode

    args, _kwargs = decode(relay.payload, relay.format)
    for _ in range(2):
        carry(*args)
    assert len(fast.peek("default", limit=10)) == 1


def test_the_catch_may_be_on_another_connection(
    two_connections: tuple[Driver, Driver],
    make_worker: Callable[..., Worker],
    clock: Clock,
    failing: Any,
    catch: Any,
    ran: list[Any],
) -> None:
    chain(failing.s(1)).catch(catch.using(connection="fast").s("caught")).dispatch()
    run_all(make_worker(), clock)
    assert ran == ["caught"]


def test_a_step_for_a_connection_that_is_gone_waits_for_it_as_a_failing_relay(
    two_connections: tuple[Driver, Driver],
    make_worker: Callable[..., Worker],
    clock: Clock,
    step: Any,
    settings: Any,
    ran: list[Any],
) -> None:
    there = step.using(connection="fast")
    second = chain(step.s(1), there.s(2)).dispatch().ids[1]
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}}}
    worker = make_worker()
    worker.work_once(now=clock.tick())
    worker.work_once(now=clock.tick())
    assert ran == [1]
    assert is_uuid_in_a_scheduled_relay(second)


def test_a_relay_that_dies_is_caught_as_its_step_would_be(
    two_connections: tuple[Driver, Driver],
    make_worker: Callable[..., Worker],
    clock: Clock,
    step: Any,
    catch: Any,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    ran: list[Any],
) -> None:
    monkeypatch.setattr(flows, "RELAY_ATTEMPTS", 1)
    chain(step.s(1), step.using(connection="fast").s(2)).catch(catch.s("caught")).dispatch()
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}}}
    run_all(make_worker(), clock)
    assert ran == [1, "caught"]


def test_secrets_that_come_with_a_result_are_masked(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register()
    def sign_in() -> dict[str, str]:
        return {"token": "s3cr3t"}

    @register(max_attempts=1)
    def use(session: dict[str, str]) -> None:
        raise ValueError(f"refused {session['token']}")

    chain(sign_in.s(), use.s(PREVIOUS)).dispatch()
    run_all(worker, clock)
    (letter,) = driver.failed()
    record = driver.get(letter.id)
    assert record is not None
    assert "s3cr3t" not in record.exception_message
    assert "refused" in record.exception_message


def test_jobs_of_our_own_keep_no_results() -> None:
    names = (RELAY, SPREAD)
    assert [registry.get(name).keep_result for name in names] == [0, 0]


def is_uuid_in_a_scheduled_relay(job_id: UUID) -> bool:
    from django_jobqueue.models import Job

    (row,) = Job.objects.all()
    return row.name == RELAY and row.state == "scheduled" and job_id.hex in row.payload


def test_what_a_relay_carries_is_masked_where_it_is_shown(
    two_connections: tuple[Driver, Driver],
    make_worker: Callable[..., Worker],
    clock: Clock,
    step: Any,
    register: Register,
) -> None:
    from django_jobqueue.jobs.payloads import decode, values_at

    @register(sensitive=("pin",))
    def pay(pin: str) -> None: ...

    chain(step.s(1), pay.using(connection="fast").s("5512-9981")).dispatch()
    make_worker().work_once(now=clock.tick())
    (relay,) = two_connections[0].peek("default", limit=10)
    args, kwargs = decode(relay.payload, relay.format)
    assert values_at(relay.masked, args, kwargs) == args


def test_the_jobs_of_our_own_are_not_among_the_projects_handlers(worker: Worker) -> None:
    from django_jobqueue.jobs.registry import registry

    assert registry.find(RELAY) is not None
    assert RELAY not in [definition.name for definition in registry.definitions()]
