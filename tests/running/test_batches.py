"""Batches that are dispatched and run: what they count, how they end, and what is called then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_jobqueue import (
    PREVIOUS,
    InvalidConnection,
    InvalidOption,
    InvalidPayload,
    JobContext,
    JobQueueError,
    batch,
    chain,
    get_batch,
    get_job,
)
from django_jobqueue.dispatching import batches
from django_jobqueue.dispatching.dispatch import store_many
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.operations.batches import FoundBatch
from django_jobqueue.running.rescuing import sweep
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import DATABASE, Clock
from tests.helpers.listening import Heard
from tests.helpers.notes import run_all
from tests.helpers.redis import REDIS, entry, wipe

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture(params=["memory", DATABASE, REDIS])
def driver(request: pytest.FixtureRequest, settings: Any) -> Iterator[Driver]:
    """The only queue connection, on each driver that keeps batches."""
    is_redis = request.param == "redis"
    settings.JOBQUEUE = {"CONNECTIONS": {"default": entry() if is_redis else {"DRIVER": request.param}}}
    yield connections["default"]
    if is_redis:
        wipe(connections["default"])


@pytest.fixture
def ran() -> list[Any]:
    """What the jobs did, in order."""
    return []


@pytest.fixture
def work(register: Register, ran: list[Any]) -> Any:
    """A job that notes its argument, and fails for good when that is "bad"."""

    @register(max_attempts=1)
    def work(what: Any = None) -> Any:
        ran.append(what)
        if what == "bad":
            raise ValueError("no stock")
        return what

    return work


@pytest.fixture
def called(register: Register) -> list[tuple[str, Any]]:
    """The callbacks that ran."""
    return []


@pytest.fixture
def callback(register: Register, called: list[tuple[str, Any]]) -> Any:
    @register()
    def callback(kind: str, numbers: Any = None) -> None:
        called.append((kind, numbers))

    return callback


def with_callbacks(made: Any, callback: Any, *arguments: Any) -> Any:
    return (
        made.then(callback.s("then", *arguments))
        .catch(callback.s("catch", *arguments))
        .finally_(callback.s("finally", *arguments))
    )


def found(batch_id: Any) -> FoundBatch:
    one = get_batch(batch_id)
    assert one is not None
    return one


def counts(batch_id: Any) -> dict[str, int]:
    one = found(batch_id)
    return {name: getattr(one, name) for name in ("total", "done", "failed", "cancelled", "pending", "percent")}


def is_empty(driver: Driver) -> bool:
    return not any(size.waiting or size.reserved for size in driver.sizes().values())


# Dispatch


def test_a_batch_tells_how_far_it_is(driver: Driver, worker: Worker, clock: Clock, work: Any) -> None:
    made = batch([work.s(1), work.s(2), work.s("bad")], name="night", metadata={"user": 7})
    dispatched = made.dispatch()
    assert len(set(dispatched.ids)) == 3
    one = found(dispatched.id)
    assert (one.id, one.name, one.metadata, one.state) == (dispatched.id, "night", {"user": 7}, "running")
    assert (one.connection, one.allow_failures, one.finished_at) == ("default", False, None)
    assert counts(dispatched.id) == {
        "total": 3, "done": 0, "failed": 0, "cancelled": 0, "pending": 3, "percent": 0,
    }  # fmt: skip
    worker.work_once(now=clock.tick())
    assert counts(dispatched.id)["percent"] == 33
    run_all(worker, clock)
    assert counts(dispatched.id) == {
        "total": 3, "done": 2, "failed": 1, "cancelled": 0, "pending": 0, "percent": 100,
    }  # fmt: skip
    assert found(dispatched.id).state == "finished"
    assert found(dispatched.id).finished_at is not None
    assert get_batch(str(dispatched.id), connection="default") is not None


def test_a_batch_that_never_was_is_none(driver: Driver) -> None:
    assert get_batch(new_job_id()) is None


def test_a_batch_without_jobs_ends_when_it_is_dispatched(
    driver: Driver, worker: Worker, clock: Clock, callback: Any, called: list[tuple[str, Any]], heard: Heard
) -> None:
    dispatched = with_callbacks(batch([]), callback).dispatch()
    assert found(dispatched.id).state == "finished"
    assert heard.one("batch_finished")["id"] == dispatched.id
    run_all(worker, clock)
    assert sorted(called) == [("finally", None), ("then", None)]


def test_a_batch_of_a_transaction_that_is_rolled_back_does_not_exist(
    database: Driver, worker: Worker, clock: Clock, work: Any, callback: Any, called: list[tuple[str, Any]]
) -> None:
    made = []

    def dispatch_and_fail() -> None:
        with transaction.atomic():
            made.append(with_callbacks(batch([work.s(1)]), callback).dispatch())
            made.append(with_callbacks(batch([]), callback).dispatch())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dispatch_and_fail()
    assert [get_batch(dispatched.id) for dispatched in made] == [None, None]
    assert is_empty(database)
    from django_jobqueue.models import BatchMember

    assert not BatchMember.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_batch_of_a_store_outside_of_the_transaction_waits_for_the_commit(memory: Driver, work: Any) -> None:
    with transaction.atomic():
        dispatched = batch([work.s(1)]).dispatch()
        assert get_batch(dispatched.id) is None
    assert found(dispatched.id).total == 1
    assert get_job(dispatched.ids[0]) is not None


def test_many_members_take_few_statements(database: Driver, work: Any) -> None:
    calls = [work.s(number) for number in range(2000)]
    with CaptureQueriesContext(connection) as captured:
        dispatched = batch(calls).dispatch()
    assert found(dispatched.id).total == 2000
    members = [query for query in captured.captured_queries if "batchmember" in query["sql"]]
    assert len(members) <= 5


REFUSED: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda work: batch([work.s(1), work.s({1})]), InvalidPayload, "what: a set is not JSON"),
    (lambda work: batch([work.s(1), work.s(PREVIOUS)]), InvalidPayload, "PREVIOUS stands for"),
    (lambda work: batch([work.s(1)]).then(work.s(b"")), InvalidPayload, "bytes are not JSON"),
    (lambda work: batch([work.s(1), work.using(connection="fast").s()]), InvalidOption, "'default' and 'fast'"),
    (lambda work: batch([chain(work.s(), work.using(connection="fast").s())]), InvalidOption, "one connection"),
    (lambda work: batch([chain(work.s(), batch([work.s()]))]), InvalidOption, "add its jobs to the outer one"),
    (lambda work: chain(work.s(), batch([work.s({1})])), InvalidPayload, "what: a set is not JSON"),
    (lambda work: chain(work.s(), batch([work.s("x" * 600_000)] * 2)), InvalidPayload, "PAYLOAD_LIMIT is 1048576"),
    (lambda work: batch([work]), InvalidOption, r"send_receipt\.s\(7\)"),
    (lambda work: batch([]).then(7), InvalidOption, r"send_receipt\.s\(7\)"),
    (lambda work: batch([], name="a\nb"), InvalidOption, "printable"),
    (lambda work: batch([], name="a" * 300), InvalidOption, "at most 255"),
    (lambda work: batch([], metadata=[1]), InvalidOption, "metadata must be a dictionary"),
    (lambda work: batch([], metadata={"a": b""}), InvalidPayload, "bytes are not JSON"),
    (lambda work: batch([], allow_failures="yes"), InvalidOption, "allow_failures must be True or False"),
]


@pytest.mark.parametrize(("make", "error", "text"), REFUSED, ids=[str(index) for index in range(len(REFUSED))])
def test_what_cannot_be_a_batch_is_refused_before_anything_is_stored(
    database: Driver, settings: Any, work: Any, make: Callable[[Any], Any], error: type[Exception], text: str
) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "fast": {"DRIVER": "memory"}}}
    with CaptureQueriesContext(connection) as captured, pytest.raises(error, match=text):
        make(work).dispatch()
    assert len(captured) == 0


def test_a_connection_that_keeps_no_batches_is_refused(
    memory: Driver, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(memory), "supports_batches", False)
    with pytest.raises(InvalidConnection, match="'default' keeps no batches"):
        batch([work.s(1)]).dispatch()


def test_an_async_dispatch_does_the_same(memory: Driver, work: Any) -> None:
    from asgiref.sync import async_to_sync

    dispatched = async_to_sync(batch([work.s(1)]).adispatch)()
    assert found(dispatched.id).total == 1


# The end


@pytest.mark.parametrize(
    ("whats", "allow_failures", "kinds"),
    [
        ([1, 2], False, ["finally", "then"]),
        ([1, "bad", 2], False, ["catch", "finally"]),
        (["bad", 1, "bad"], True, ["catch", "finally", "then"]),
    ],
)
def test_callbacks_run_once_when_all_have_ended(
    driver: Driver,
    worker: Worker,
    clock: Clock,
    work: Any,
    callback: Any,
    ran: list[Any],
    called: list[tuple[str, Any]],
    heard: Heard,
    whats: list[Any],
    allow_failures: bool,
    kinds: list[str],
) -> None:
    made = batch([work.s(what) for what in whats], name="night", allow_failures=allow_failures)
    dispatched = with_callbacks(made, callback, PREVIOUS).dispatch()
    run_all(worker, clock)
    assert ran == whats
    assert sorted(kind for kind, _numbers in called) == kinds
    failed = whats.count("bad")
    numbers = {"id": dispatched.id, "name": "night", "total": len(whats), "done": len(whats) - failed}
    numbers |= {"failed": failed, "cancelled": 0}
    assert [given for _kind, given in called] == [numbers] * len(kinds)
    sent = heard.one("batch_finished")
    assert sent == {**numbers, "connection": "default", "driver": driver.name, "sender": type(driver)}


def test_a_member_that_is_repeated_is_still_pending(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    outcomes: list[Exception | None] = [ValueError(), None]

    @register(max_attempts=2, backoff=60)
    def shaky() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    dispatched = batch([shaky.s()]).dispatch()
    worker.work_once(now=clock.now)
    assert counts(dispatched.id)["pending"] == 1
    worker.work_once(now=clock.tick(61))
    assert found(dispatched.id).state == "finished"


def test_an_atomic_member_leaves_with_its_effects(
    database: Driver, worker: Worker, clock: Clock, register: Register, callback: Any, called: list[tuple[str, Any]]
) -> None:
    seen: list[Any] = []

    @register(atomic=True)
    def effect() -> None:
        Group.objects.create(name="effect")
        connection.on_commit(lambda: seen.append((Group.objects.count(), counts(dispatched.id)["pending"])))

    dispatched = with_callbacks(batch([effect.s()]), callback).dispatch()
    run_all(worker, clock)
    assert seen == [(1, 0)]
    assert sorted(called) == [("finally", None), ("then", None)]


def test_a_retry_before_the_end_may_still_make_it_a_success(
    driver: Driver, worker: Worker, clock: Clock, register: Register, callback: Any, called: list[tuple[str, Any]]
) -> None:
    is_mended: list[bool] = []

    @register(max_attempts=1)
    def needy() -> None:
        if not is_mended:
            raise ValueError("no stock")

    @register()
    def late() -> None: ...

    dispatched = with_callbacks(batch([needy.s(), late.using(delay=3600).s()]), callback).dispatch()
    run_all(worker, clock)
    assert counts(dispatched.id)["failed"] == 1
    is_mended.append(True)
    driver.retry({driver.last_failed_number(): None}, now=clock.now)
    clock.tick(3600)
    run_all(worker, clock)
    assert counts(dispatched.id)["done"] == 2
    assert sorted(called) == [("finally", None), ("then", None)]


def test_a_retry_after_the_end_calls_nobody_again(
    driver: Driver, worker: Worker, clock: Clock, work: Any, callback: Any, called: list[tuple[str, Any]]
) -> None:
    dispatched = with_callbacks(batch([work.s("bad")]), callback).dispatch()
    run_all(worker, clock)
    driver.retry({driver.last_failed_number(): None}, now=clock.now)
    run_all(worker, clock)
    assert sorted(called) == [("catch", None), ("finally", None)]
    assert found(dispatched.id).state == "finished"


def test_a_member_whose_worker_dies_has_failed(
    driver: Driver, worker: Worker, clock: Clock, work: Any, callback: Any, called: list[tuple[str, Any]]
) -> None:
    from django_jobqueue.jobs.records import ReserveLimit

    dispatched = with_callbacks(batch([work.s(1)]), callback).dispatch()
    limit = ReserveLimit(rows=1, max_attempts=3)
    assert driver.reserve("default", "killed", limit, retry_after=90, now=clock.now).jobs
    clock.tick(91)
    run_all(worker, clock)
    assert counts(dispatched.id)["failed"] == 1
    assert sorted(called) == [("catch", None), ("finally", None)]


def test_a_worker_that_lost_a_member_does_not_count_it(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F04"""
    lost: list[bool] = []

    @register(max_attempts=5)
    def slow() -> None:
        if not lost:
            lost.append(True)
            driver.rescue(max_attempts=3, now=clock.after(1000))

    dispatched = batch([slow.s()]).dispatch()
    worker.work_once(now=clock.now)
    assert worker.stats.lost == 1
    assert counts(dispatched.id)["pending"] == 1
    clock.tick(1001)
    run_all(worker, clock)
    assert found(dispatched.id).state == "finished"


def test_a_batch_whose_end_an_outage_prevented_is_ended_by_a_sweep(
    database: Driver,
    worker: Worker,
    clock: Clock,
    work: Any,
    callback: Any,
    called: list[tuple[str, Any]],
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatched = with_callbacks(batch([work.s(1)]), callback).dispatch()

    def away(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("server closed the connection")

    with monkeypatch.context() as patched:
        patched.setattr(database, "close_batch", away)
        run_all(worker, clock)
    assert worker.stats.processed == 1
    assert found(dispatched.id).state == "running"
    sweep(database)
    assert heard.one("batch_finished")["id"] == dispatched.id
    run_all(worker, clock)
    assert sorted(called) == [("finally", None), ("then", None)]
    sweep(database)
    assert len(heard.all("batch_finished")) == 1


def test_a_worker_sweeps(
    database: Driver, make_worker: Callable[..., Worker], work: Any, callback: Any, called: list[tuple[str, Any]]
) -> None:
    dispatched = with_callbacks(batch([work.s(1)]), callback).dispatch()
    (member,) = dispatched.ids
    database.cancel(member)
    assert found(dispatched.id).state == "running"
    make_worker(stop_when_empty=True).run()
    assert found(dispatched.id).state == "finished"
    assert called == [("finally", None)]


def test_a_callback_may_be_on_another_connection(
    transactional_db: None,
    settings: Any,
    make_worker: Callable[..., Worker],
    clock: Clock,
    work: Any,
    callback: Any,
    called: list[tuple[str, Any]],
) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "fast": {"DRIVER": "memory"}}}
    batch([work.s(1)]).then(callback.using(connection="fast", queue="quick").s("then")).dispatch()
    run_all(make_worker(), clock)
    assert called == [("then", None)]
    assert all(is_empty(driver) for driver in connections.all())


# Members that do something with their batch


def test_a_job_may_add_jobs_to_its_own_batch(
    driver: Driver,
    worker: Worker,
    clock: Clock,
    register: Register,
    work: Any,
    callback: Any,
    ran: list[Any],
    called: list[tuple[str, Any]],
) -> None:
    @register(takes_context=True)
    def finder(context: JobContext) -> None:
        assert context.batch_id is not None
        ids = found(context.batch_id).add([work.s(1), chain(work.s(2), work.s(PREVIOUS))])
        assert len(ids) == 2

    dispatched = with_callbacks(batch([finder.s()]), callback, PREVIOUS).dispatch()
    run_all(worker, clock)
    assert sorted(ran) == [1, 2, 2]
    assert counts(dispatched.id)["total"] == 3
    assert sorted((kind, numbers["done"]) for kind, numbers in called) == [("finally", 3), ("then", 3)]


def test_a_job_of_no_batch_has_no_batch_id(driver: Driver, worker: Worker, clock: Clock, register: Register) -> None:
    seen = []

    @register(takes_context=True)
    def plain(context: JobContext) -> None:
        seen.append(context.batch_id)

    plain.dispatch()
    run_all(worker, clock)
    assert seen == [None]


def test_nothing_is_added_to_a_batch_that_has_ended(driver: Driver, work: Any) -> None:
    one = found(batch([]).dispatch().id)
    with pytest.raises(JobQueueError, match="has ended, or was cancelled"):
        one.add([work.s(1)])
    assert is_empty(driver)


def test_a_job_of_another_connection_is_not_added(memory: Driver, settings: Any, work: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}, "fast": {"DRIVER": "memory"}}}
    one = found(batch([work.s(1)]).dispatch().id)
    with pytest.raises(InvalidOption, match="'fast'"):
        one.add([work.using(connection="fast").s(1)])


def test_a_cancelled_batch_runs_nothing_that_has_not_begun(
    driver: Driver,
    worker: Worker,
    clock: Clock,
    register: Register,
    work: Any,
    callback: Any,
    ran: list[Any],
    called: list[tuple[str, Any]],
) -> None:
    @register(takes_context=True)
    def stopper(context: JobContext) -> None:
        ran.append(found(context.batch_id).cancel())
        with pytest.raises(JobQueueError):
            found(context.batch_id).add([work.s()])

    dispatched = with_callbacks(batch([stopper.s(), work.s(1), work.using(delay=60).s(2)]), callback).dispatch()
    run_all(worker, clock)
    assert ran == [2]
    assert found(dispatched.id).state == "cancelled"
    assert counts(dispatched.id)["cancelled"] == 2
    assert counts(dispatched.id)["done"] == 1
    assert called == [("finally", None)]


def test_a_batch_whose_jobs_all_wait_ends_when_it_is_cancelled(driver: Driver, work: Any, heard: Heard) -> None:
    dispatched = batch([work.s(number) for number in range(3)]).dispatch()
    assert found(dispatched.id).cancel() == 3
    assert found(dispatched.id).finished_at is not None
    assert heard.one("batch_finished")["cancelled"] == 3
    assert found(dispatched.id).cancel() == 0
    assert len(heard.all("batch_finished")) == 1
    assert is_empty(driver)


def test_a_batch_whose_last_member_is_cancelled_by_itself_ends(driver: Driver, work: Any, heard: Heard) -> None:
    dispatched = batch([work.s(1)]).dispatch()
    job = get_job(dispatched.ids[0])
    assert job is not None
    assert job.cancel()
    assert found(dispatched.id).state == "finished"
    assert heard.one("batch_finished")["cancelled"] == 1


def test_members_that_keep_their_result_are_kept_when_their_batch_is_cancelled(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(keep_result=60)
    def kept() -> None: ...

    @register(keep_result=60, takes_context=True, backoff=60)
    def stopper(context: JobContext) -> None:
        assert found(context.batch_id).cancel() == 1
        raise ValueError("again")

    dispatched = batch([stopper.s(), kept.s()]).dispatch()
    worker.work_once(now=clock.now)
    sweep(driver)
    jobs = [get_job(job_id) for job_id in dispatched.ids]
    assert [(job.state, job.attempts) for job in jobs if job is not None] == [("cancelled", 1), ("cancelled", 0)]


def test_a_large_batch_is_cancelled_in_steps(memory: Driver, work: Any) -> None:
    dispatched = batch([work.s(number) for number in range(1200)]).dispatch()
    assert found(dispatched.id).cancel() == 1200


# Chains in batches


def test_a_chain_in_a_batch_is_one_member(
    driver: Driver,
    worker: Worker,
    clock: Clock,
    work: Any,
    callback: Any,
    ran: list[Any],
    called: list[tuple[str, Any]],
) -> None:
    steps = chain(work.s(1), work.s(PREVIOUS), work.s(3))
    dispatched = with_callbacks(batch([steps, work.s(10)]), callback).dispatch()
    seen = []
    while worker.work_once(now=clock.tick()):
        seen.append(counts(dispatched.id)["pending"])
    assert sorted(ran) == [1, 1, 3, 10]
    assert seen[:4] == [2, 1, 1, 0]
    assert counts(dispatched.id)["total"] == 2
    assert sorted(called) == [("finally", None), ("then", None)]


def test_a_chain_that_dies_in_a_batch_is_one_failure_and_caught_by_both(
    driver: Driver,
    worker: Worker,
    clock: Clock,
    work: Any,
    callback: Any,
    ran: list[Any],
    called: list[tuple[str, Any]],
) -> None:
    steps = chain(work.s(1), work.s("bad"), work.s(3)).catch(callback.s("chain"))
    dispatched = with_callbacks(batch([steps]), callback).dispatch()
    run_all(worker, clock)
    assert ran == [1, "bad"]
    assert counts(dispatched.id)["failed"] == 1
    assert sorted(called) == [("catch", None), ("chain", None), ("finally", None)]


def test_the_step_that_has_its_turn_is_cancelled_with_the_batch(
    driver: Driver, worker: Worker, clock: Clock, work: Any, ran: list[Any]
) -> None:
    dispatched = batch([chain(work.s(1), work.using(delay=60).s(2), work.s(3))]).dispatch()
    run_all(worker, clock)
    assert found(dispatched.id).cancel() == 1
    assert is_empty(driver)
    clock.tick(61)
    run_all(worker, clock)
    assert ran == [1]


# Batches in chains


def test_a_batch_is_a_step_of_a_chain(
    driver: Driver,
    worker: Worker,
    clock: Clock,
    work: Any,
    callback: Any,
    ran: list[Any],
    called: list[tuple[str, Any]],
) -> None:
    middle = with_callbacks(batch([work.s(2), work.s(3)], name="middle"), callback)
    last = callback.s("last", PREVIOUS)
    ids = chain(work.s(1), middle, last, work.s(4)).dispatch().ids
    assert get_batch(ids[1]) is None
    run_all(worker, clock)
    assert ran[0] == 1
    assert sorted(ran[1:3]) == [2, 3]
    assert ran[3] == 4
    assert found(ids[1]).state == "finished"
    numbers = {"id": ids[1], "name": "middle", "total": 2, "done": 2, "failed": 0, "cancelled": 0}
    assert sorted(called, key=str) == [("finally", None), ("last", numbers), ("then", None)]
    assert is_empty(driver)


@pytest.mark.parametrize("place", ["first", "last", "alone", "twice"])
def test_a_batch_may_be_any_step(
    driver: Driver, worker: Worker, clock: Clock, work: Any, ran: list[Any], place: str
) -> None:
    numbers = [work.s(1), work.s(2)]
    steps = {
        "first": [batch(numbers), work.s(3)],
        "last": [work.s(3), batch(numbers)],
        "alone": [batch(numbers)],
        "twice": [batch(numbers), batch([]), batch([work.s(3)])],
    }[place]
    chain(*steps).dispatch()
    run_all(worker, clock)
    wanted = {"first": [1, 2, 3], "last": [3, 1, 2], "alone": [1, 2], "twice": [1, 2, 3]}[place]
    assert ran == wanted
    assert is_empty(driver)


def test_a_batch_that_fails_in_a_chain_stops_and_is_caught_once(
    driver: Driver,
    worker: Worker,
    clock: Clock,
    work: Any,
    callback: Any,
    ran: list[Any],
    called: list[tuple[str, Any]],
) -> None:
    steps = chain(batch([work.s("bad"), work.s(1)], name="photos"), work.s(2)).catch(callback.s("chain", PREVIOUS))
    (batch_id, _last) = steps.dispatch().ids
    run_all(worker, clock)
    assert sorted(ran, key=str) == [1, "bad"]
    message = "Of 2 jobs of the batch 1 failed, 0 were cancelled."
    error = {"id": batch_id, "name": "photos", "exception_class": "", "message": message}
    assert called == [("chain", error)]
    assert is_empty(driver)


def test_a_batch_in_a_chain_is_spread_out_once(
    driver: Driver, worker: Worker, clock: Clock, work: Any, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker crashes between the storing of the batch and the end of the job that stored it."""
    chain(batch([work.s(1)]), work.s(2)).dispatch()
    settle = driver.settle
    with monkeypatch.context() as patched:
        patched.setattr(driver, "settle", lambda *args, **kwargs: set())
        worker.work_once(now=clock.tick())
    assert driver.settle == settle
    clock.tick(1000)
    run_all(worker, clock)
    assert ran == [1, 2]
    assert is_empty(driver)


@pytest.mark.parametrize("driver", [REDIS], indirect=True)
def test_a_batch_in_a_chain_that_a_crash_kept_from_its_jobs_is_spread_out_by_another_attempt(
    driver: Driver, worker: Worker, clock: Clock, work: Any, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is stored, and of its jobs the first one."""
    chain(batch([work.s(1), work.s(2), work.s(3)]), work.s(4)).dispatch()

    def store_first(prepared: Iterable[Any]) -> None:
        store_many([next(iter(prepared))])
        raise OSError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(batches, "store_many", store_first)
        run_all(worker, clock)
    assert ran == [1]
    clock.tick(1000)
    run_all(worker, clock)
    assert ran == [1, 2, 3, 4]
    assert is_empty(driver)
