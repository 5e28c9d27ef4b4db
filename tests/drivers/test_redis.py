"""What only the Redis driver must cope with: two stores, scripts, foreign bytes, other projects."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import timedelta
from threading import Thread
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, DataError, connections
from django.db.models import QuerySet

pytest.importorskip("django_redis", reason="django-redis is not installed")

from redis.crc import key_slot
from redis.exceptions import ConnectionError, ReadOnlyError, ResponseError

from django_jobqueue.drivers import ledgers_of
from django_jobqueue.drivers.redis import RedisDriver, wire
from django_jobqueue.drivers.redis import store as redis_store
from django_jobqueue.drivers.redis.driver import HOLD_SECONDS
from django_jobqueue.drivers.redis.letters import escaped
from django_jobqueue.drivers.redis.scripts import SCRIPTS
from django_jobqueue.jobs.chunks import CHUNK_BYTES
from django_jobqueue.jobs.flows import Callbacks, Flow, Step, readable
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import Complete, Fail, NewBatch, NewResult, Release, Report, ReserveLimit
from django_jobqueue.models import FailedJob
from tests.drivers.contract import Clock, Store, at_once, attempt, ids, new
from tests.helpers.redis import redis_driver

pytestmark = [pytest.mark.redis, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def driver() -> Iterator[RedisDriver]:
    with redis_driver() as driver:
        yield driver


def everything_of(driver: RedisDriver) -> dict[bytes, Any]:
    """The keys of a connection that stay, without its prefix, and how much each holds."""
    tag = f"{{{driver.options.prefix}}}".encode()
    sizes = {b"hash": driver.client.hlen, b"zset": driver.client.zcard}
    keys = [key for key in driver.client.scan_iter(match=tag + b"*") if driver.client.ttl(key) == -1]
    return {key.removeprefix(tag): sizes[driver.client.type(key)](key) for key in keys}


# The client


def test_of_a_pool_that_can_only_close_all_at_once_none_is_closed() -> None:
    """The blocking pools of redis-py before its version 7."""
    closed: list[object] = []
    wire.close_idle(SimpleNamespace(disconnect=lambda: closed.append("all")))
    wire.close_idle(SimpleNamespace(disconnect=lambda inuse_connections=True: closed.append(inuse_connections)))
    assert closed == [False]


@pytest.mark.parametrize(
    "error",
    [
        ReadOnlyError("You can't write against a read only replica."),
        ResponseError("ERR Error running script (call to f_1): @user_script:60: -READONLY You can't write against a"),
    ],
    ids=["Redis 7", "Redis 6.2"],
)
def test_what_a_replica_says_is_known(error: ResponseError) -> None:
    assert wire._is_of_replica(error)
    assert not wire._is_of_replica(ResponseError("ERR unknown command"))


# Sizes


def test_the_scripts_of_a_retry_are_bounded_in_bytes(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a hundred megabytes would keep all others waiting."""
    letters = store.bury(*(new(payload="x" * 900_000) for _ in range(6)))
    sizes: list[int] = []
    run = driver.store.run

    def record(name: str, queues: Any, arguments: Any, *keys: str) -> Any:
        sizes.append(sum(len(str(argument)) for argument in arguments))
        return run(name, queues, arguments, *keys)

    monkeypatch.setattr(driver.store, "run", record)
    assert len(store.retry(*(letter.number for letter in letters))) == 6
    assert CHUNK_BYTES // 2 < max(sizes) < CHUNK_BYTES + 10_000


# What is left behind


def test_nothing_is_left_of_jobs_that_have_ended(store: Store, driver: RedisDriver, clock: Clock) -> None:
    store.push(new(), new(queue="mail", delay=60), new(max_attempts=1))
    completed, failed = store.take_one(), store.take_one()
    store.complete(completed)
    store.release(failed, 10, attempt())
    clock.tick(60)
    store.stage()
    store.stage("mail")
    store.fail(store.take_one())
    store.complete(store.take_one("mail"))
    assert everything_of(driver) == {}


def test_keys_share_one_hash_slot_whatever_the_queue_is_called(driver: RedisDriver) -> None:
    """F91"""
    keys = [*driver.keys.common, *driver.keys.of(["mail", "}{", "{other}", "ü"]), driver.keys.answered("host:1:}{")]
    assert len({key_slot(key.encode()) for key in keys}) == 1


def walk_a_batch(store: Store) -> None:
    """Every step of one, with members in two queues."""
    driver, batch_id = store.driver, new_job_id()
    flow = Flow(batch=batch_id).write()
    jobs = [new(flow=flow), new(flow=flow), new(flow=flow, queue="mail"), new(flow=flow, queue="other", delay=5)]
    callbacks = Callbacks(finally_=Step(driver.alias, new(queue="callbacks"))).write()
    batch = NewBatch(id=batch_id, name="", metadata="", allow_failures=False, callbacks=callbacks)
    driver.create_batch(batch, [job.id for job in jobs[:3]], now=store.clock.now)
    driver.join_batch(batch_id, [jobs[3].id])
    driver.awaited_members(batch_id, [job.id for job in jobs])
    store.push(*jobs)
    first, second = store.take(rows=2)
    store.settle(
        Complete(first, (new(flow=flow, queue="next"),), batch=batch_id), Fail(second, attempt(), (), batch_id)
    )
    driver.cancel(jobs[2].id)
    driver.cancel_batch(batch_id, now=store.clock.now)
    driver.sweep_batches(now=store.clock.now)
    assert driver.prune_batches(older_than=0, now=store.clock.now) == 1


def walk_what_is_kept_beside(store: Store) -> None:
    """Results, reports, and bytes that are set aside."""
    driver, now = store.driver, store.clock.now
    store.push(new(), new(queue="other"), new("broken", queue="mail"))
    held = store.take_one()
    store.renew(held)
    driver.still_held([(held.id, held.token)])
    driver.progress.write([Report(held.id, held.token, 5, "begun")], now=now)
    result = NewResult(value="1", error="", started_at=now, finished_at=now, keep_for=5)
    store.settle(Complete(held, result=result))
    assert driver.get_result(held.id, now=now) is not None
    (waits,) = driver.waiting("mail", limit=5)
    driver.client.hset(driver.keys.bodies, waits.id.hex, b"\xff")
    assert store.take("mail") == []
    store.clock.tick(5)
    assert driver.prune_results(now=store.clock.now) == 1
    assert driver.progress.prune(older_than=5, limit=5, now=store.clock.now) == 1
    store.rescue()


def test_scripts_touch_the_keys_that_they_declare_and_no_other(store: Store, driver: RedisDriver, clock: Clock) -> None:
    """F91: other tests may use the server meanwhile."""
    the_end = f"end-of-{driver.options.prefix}"
    for script in SCRIPTS.values():
        driver.client.script_load(script.text)
    with driver.client.monitor() as monitor:
        store.push(new("a"), new("b"), new("c", queue="mail", delay=5), new(max_attempts=1))
        a, b = store.take(rows=2)
        store.settle(Complete(a, (new("then", queue="other"),)), Release(b, 5, attempt()))
        clock.tick(5)
        store.stage()
        store.stage("mail")
        store.fail(store.take_one())
        store.lose()
        store.hand_back(*store.take("mail"))
        store.take_one("other")
        store.lose()
        driver.sizes()
        driver.peek("default", limit=5)
        driver.cancel(driver.peek("other", limit=1)[0].id)
        driver.clear("mail", limit=5)
        walk_a_batch(store)
        walk_what_is_kept_beside(store)
        driver.client.echo(the_end)
        declared: set[str] | None = None
        checked, ran = 0, set()
        while True:
            seen = monitor.next_command()
            words = seen["command"].split(" ")
            if words == ["ECHO", the_end]:
                break
            if seen["client_type"] != "lua":
                is_ours = words[0] == "EVALSHA" and driver.options.prefix in seen["command"]
                declared = set(words[3 : 3 + int(words[2])]) if is_ours else None
                ran |= {words[1]} if is_ours else set()
            elif declared is not None and words[0] not in {"TIME", "PUBLISH"}:
                assert words[1] in declared, seen["command"]
                checked += 1
    assert checked > 50
    assert ran == {script._digest for script in SCRIPTS.values()}


def test_a_server_that_has_lost_the_scripts_is_given_them_again(store: Store, driver: RedisDriver) -> None:
    """As after a restart: every script, called by a digest that the server does not know."""
    store.push(new())
    for script in SCRIPTS.values():
        script._digest = script._digest[::-1]
    try:
        store.push(new(delay=5))
        store.release(store.take_one())
        assert store.driver.sizes(now=store.clock.now)["default"].waiting == 2
    finally:
        for script in SCRIPTS.values():
            script._digest = script._digest[::-1]


def test_a_connection_that_the_server_has_closed_costs_no_call(store: Store, driver: RedisDriver) -> None:
    """The one that is kept from call to call, as after a restart."""
    store.push(new())
    ((_, kept),) = driver.store._wire._kept.values()
    with closing(driver.client.client()) as other:
        other.execute_command("CLIENT", "KILL", "ADDR", "{}:{}".format(*kept._sock.getsockname()))
    job = store.dispatch()
    assert driver.get(job.id) is not None


def test_a_fork_takes_no_connection_of_its_parent(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F73: the two would read each other's answers."""
    store.push(new())
    ((_, parents),) = driver.store._wire._kept.values()
    monkeypatch.setattr(wire, "os", SimpleNamespace(getpid=lambda: os.getpid() + 1))
    store.push(new())
    ((_, own),) = driver.store._wire._kept.values()
    assert own is not parents
    driver.client.connection_pool.release(parents)


def test_a_connection_that_its_pool_has_given_up_is_left(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the one of Sentinel gives up those to a master that was replaced."""
    store.push(new())
    ((_, old),) = driver.store._wire._kept.values()
    pool = driver.client.connection_pool
    owns = pool.owns_connection
    monkeypatch.setattr(pool, "owns_connection", lambda connection: connection is not old and owns(connection))
    store.push(new())
    ((_, other),) = driver.store._wire._kept.values()
    assert other is not old
    assert old._sock is None


def test_a_call_that_is_interrupted_leaves_the_next_one_no_answer(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the timeout of a job, at any moment."""
    store.push(new("first"))
    ((_, kept),) = driver.store._wire._kept.values()

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(kept, "read_response", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.push(new("second"))
    assert [job.name for job in driver.peek("default", limit=9)] == ["first", "second"]


def test_a_small_pool_keeps_all_its_connections_for_others(settings: Any) -> None:
    """Whoever sized it has counted those that are in use, and knows of none that is kept."""
    cache = settings.CACHES["redis"]
    options = {**cache.get("OPTIONS", {}), "CONNECTION_POOL_KWARGS": {"max_connections": 1}}
    settings.CACHES = {
        **settings.CACHES,
        "small": {**cache, "LOCATION": f"{cache['LOCATION']}?client_name=small", "OPTIONS": options},
    }
    with redis_driver(CACHE="small") as driver:
        driver.push([new()])
        assert driver.client.ping()


# Jobs and time


def test_jobs_with_the_same_arguments_are_as_many_jobs(store: Store, clock: Clock) -> None:
    """F05"""
    jobs = [new("add", payload='{"args":[1],"kwargs":{}}', delay=delay) for delay in (1, 1, 1, None, None)]
    store.push(*jobs)
    clock.tick(2)
    store.stage()
    reservations = store.take()
    assert ids(reservations) == ids(jobs)
    store.fail(reservations[0])
    assert store.renew(*reservations[1:]) == set()


def test_what_was_taken_is_registered_in_the_same_step(store: Store, driver: RedisDriver) -> None:
    """F07: a worker that dies when the answer arrives has left nothing in between."""
    job = store.dispatch()
    reservation = store.take_one()
    assert driver.client.zrange(driver.keys.reserved, 0, -1) == [f"{job.id.hex}default".encode()]
    store.lose()
    again = store.take_one()
    assert (again.id, again.attempt) == (job.id, 2)
    assert store.complete(reservation) == set()


def test_a_reserve_whose_answer_was_lost_on_its_way_takes_nothing_twice(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends a command again on a fresh connection: the first one may have been carried out."""
    jobs = [new(max_attempts=5) for _ in range(4)]
    store.push(*jobs)
    run, lost = SCRIPTS["reserve"].run, [True]

    def again(*given: Any) -> Any:
        answer = run(*given)
        return run(*given) if lost and lost.pop() else answer

    monkeypatch.setattr(SCRIPTS["reserve"], "run", again)
    first = store.take(rows=2)
    assert [job.id for job in first] == [job.id for job in jobs[:2]]
    assert ids(store.take()) == ids(jobs[2:])
    assert {job.attempt for job in first} == {1}
    assert driver.sizes(now=store.clock.now)["default"].reserved == 4


@pytest.mark.parametrize("by", ["a dispatch", "a retry"])
def test_a_job_that_ends_before_its_push_is_sent_again_is_not_stored_again(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The answer to the first call was lost on its way, and a worker was fast."""
    letters = store.bury(new()) if by == "a retry" else []
    run, ended = SCRIPTS["push"].run, []

    def again(*given: Any) -> Any:
        run(*given)
        ended.extend(at_once(1, lambda: store.complete(store.take_one())))
        return run(*given)

    monkeypatch.setattr(SCRIPTS["push"], "run", again)
    if letters:
        store.retry(letters[0].number)
    else:
        store.dispatch()
    assert len(ended) == 1
    assert driver.queues() == []


def test_a_reservation_expires_by_its_own_age_and_not_by_the_jobs(store: Store, clock: Clock) -> None:
    """F12"""
    job = store.dispatch(delay=500)
    clock.tick(500)
    store.stage()
    reservation = store.take_one()
    clock.tick(80)
    assert store.rescue() == []
    assert store.take(worker="w2") == []
    assert store.complete(reservation) == {job.id}


def test_a_host_whose_clock_is_wrong_steals_nothing(driver: RedisDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """F48: moments are written and compared by the clock of Redis."""
    late = new(delay=3600)
    driver.push([new(), late])
    (held,) = driver.reserve("default", "w1", ReserveLimit(rows=5, max_attempts=3), retry_after=60).jobs
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86_400)
    assert driver.rescue(max_attempts=3) == []
    assert driver.stage("default") == 0
    assert driver.settle([Complete(held)]) == {held.id}
    record = driver.get(late.id)
    assert record is not None
    assert 3590 < (record.available_at - record.created_at).total_seconds() < 3610


def test_a_job_for_the_last_moment_there_is_keeps_it(store: Store) -> None:
    from datetime import UTC, datetime

    moment = datetime.max.replace(tzinfo=UTC)
    job = store.dispatch(available_at=moment)
    assert store.get(job).available_at == moment
    assert store.stage() == 0


# Dead letters, which lie in another store


def lose_redis(monkeypatch: pytest.MonkeyPatch, driver: RedisDriver, name: str) -> None:
    """The next call of a script fails as when the server is gone."""
    run = SCRIPTS[name].run
    errors = [ConnectionError("gone")]

    def gone(*given: Any) -> Any:
        if errors:
            raise errors.pop()
        return run(*given)

    monkeypatch.setattr(SCRIPTS[name], "run", gone)


def stop_before(
    monkeypatch: pytest.MonkeyPatch, store: Store, owner: object, name: str, meanwhile: Callable[[], object]
) -> None:
    """Before the next call of this, whoever makes it is stopped for longer than it holds on."""
    call = getattr(owner, name)

    def stopped(*given: Any) -> Any:
        monkeypatch.undo()
        store.clock.tick(HOLD_SECONDS + 100)
        meanwhile()
        return call(*given)

    monkeypatch.setattr(owner, name, stopped)


def test_a_crash_between_the_dead_letter_and_the_end_of_the_job_is_mended_by_a_rescue(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.push(new("failed"), new("beside"))
    failed, beside = store.take()
    lose_redis(monkeypatch, driver, "settle")
    with pytest.raises(ConnectionError):
        store.fail(failed)
    assert driver.failed_count() == 1
    store.complete(beside)
    assert store.lose() == []
    assert driver.queues() == []
    (letter,) = driver.failed()
    assert (letter.id, letter.exception_message) == (failed.id, "boom")


def lose_answers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The client sends each call of a script again, since the connection broke before the answer."""
    run = SCRIPTS[name].run
    monkeypatch.setattr(SCRIPTS[name], "run", lambda *given: [run(*given), run(*given)][1])


def test_ends_whose_answer_was_lost_on_its_way_are_told_as_what_they_were(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [new(), new()]
    store.push(*jobs)
    completed, released = store.take()
    lose_answers(monkeypatch, "settle")
    assert store.settle(Complete(completed), Release(released, 0, attempt())) == ids(jobs)
    assert store.get(released).attempts == 1
    assert store.hand_back(store.take_one()) == {released.id}


@pytest.mark.parametrize("end", ["fails", "is lost"])
def test_the_dead_letter_of_a_job_stays_when_the_answer_was_lost_on_its_way(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The job is gone: the second call finds nothing held, as after a rescue by another."""
    job = store.dispatch(max_attempts=1)
    held = store.take_one()
    lose_answers(monkeypatch, "settle")
    assert (store.fail(held) if end == "fails" else ids(store.lose())) == {job.id}
    assert driver.queues() == []
    assert [letter.id for letter in driver.failed()] == [job.id]


def test_a_worker_that_tries_again_after_such_a_crash_leaves_one_dead_letter(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.dispatch()
    failed = store.take_one()
    lose_redis(monkeypatch, driver, "settle")
    with pytest.raises(ConnectionError):
        store.fail(failed)
    assert store.fail(failed) == {failed.id}
    assert driver.queues() == []
    assert driver.failed_count() == 1


def test_a_dead_letter_that_the_database_does_not_take_leaves_the_job_where_it_is(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.push(new("done"), new("failed"))
    done, failed = store.take()

    def refuse(*given: Any) -> None:
        raise DatabaseError("out of reach")

    with monkeypatch.context() as patched:
        patched.setattr(driver.dead_letters, "insert", refuse)
        with pytest.raises(driver.outages):
            store.settle(Complete(done), Fail(failed, attempt()))
        assert store.renew(done, failed) == set()
    assert store.settle(Complete(done), Fail(failed, attempt())) == {done.id, failed.id}
    assert driver.failed_count() == 1


def test_nobody_takes_a_job_whose_dead_letter_is_being_written(
    store: Store, driver: RedisDriver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may be slow, and the reservation nearly over."""
    job = store.dispatch(max_attempts=5)
    held = store.take_one(retry_after=1)
    insert, rescued = driver.dead_letters.insert, []

    def slowly(*given: Any) -> None:
        clock.tick(20)
        rescued.extend(store.rescue())
        insert(*given)

    monkeypatch.setattr(driver.dead_letters, "insert", slowly)
    assert store.fail(held) == {job.id}
    assert rescued == []
    assert driver.queues() == []
    assert driver.failed_count() == 1


def test_a_dead_letter_by_which_a_rescue_has_ended_its_job_meanwhile_is_not_replaced(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was stopped for longer than it held on, right after it had looked for such a row."""
    if connections[driver.database].vendor == "sqlite":
        pytest.skip("SQLite has one writer: nobody ends a job meanwhile")
    job = store.dispatch(max_attempts=1)
    old = store.take_one()
    rescued: list[UUID] = []

    def rescue() -> None:
        rescued.extend(ids(store.rescue()))
        connections.close_all()

    def in_another_thread() -> None:
        other = Thread(target=rescue)
        other.start()
        other.join(60)

    stop_before(monkeypatch, store, driver.dead_letters, "insert", in_another_thread)
    assert store.fail(old) == set()
    assert rescued == [job.id]
    assert [letter.id for letter in driver.failed()] == [job.id]
    assert driver.queues() == []


def test_a_dead_letter_of_a_job_that_was_lost_meanwhile_is_taken_back(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was stopped for longer than it held on, after it had written the dead letter."""
    job = store.dispatch(max_attempts=5)
    old = store.take_one()
    insert = driver.dead_letters.insert

    def stopped(*given: Any) -> None:
        insert(*given)
        store.clock.tick(HOLD_SECONDS + 100)
        with monkeypatch.context() as patched:
            patched.setattr(driver.dead_letters, "settled_before", lambda *given: {})
            store.rescue(max_attempts=5)

    monkeypatch.setattr(driver.dead_letters, "insert", stopped)
    assert store.fail(old) == set()
    assert driver.failed_count() == 0
    assert store.get(job).state == "ready"


def test_a_dead_letter_by_which_a_rescue_removed_its_job_is_not_taken_back(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that wrote it was stopped for longer than it held on, before it ended the job."""
    job = store.dispatch(max_attempts=5)
    old = store.take_one()
    stop_before(monkeypatch, store, SCRIPTS["settle"], "run", lambda: store.rescue(max_attempts=5))
    assert store.fail(old) == set()
    assert driver.queues() == []
    assert [letter.id for letter in driver.failed()] == [job.id]


def test_a_worker_that_is_late_with_a_dead_letter_leaves_that_of_the_rescue(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped before it wrote its own, which took the place of the one by which the job had ended."""
    job = store.dispatch(max_attempts=1)
    old = store.take_one()
    rescued: list[UUID] = []
    stop_before(monkeypatch, store, driver.dead_letters, "store", lambda: rescued.extend(ids(store.rescue())))
    assert store.fail(old) == set()
    assert rescued == [job.id]
    assert driver.queues() == []
    assert [letter.id for letter in driver.failed()] == [job.id]


def test_a_rescue_that_is_late_with_a_dead_letter_keeps_that_of_the_worker(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker goes on when the rescue has found none, and loses the job to it: then it takes nothing back."""
    job = store.dispatch(max_attempts=1)
    old = store.take_one()
    keep = driver.dead_letters.store

    def overtaken(*given: Any) -> Any:
        monkeypatch.undo()
        keep(*kept_by_worker)
        return keep(*given)

    def stopped(*given: Any) -> Any:
        kept_by_worker[:] = given
        monkeypatch.undo()
        store.clock.tick(HOLD_SECONDS + 100)
        monkeypatch.setattr(driver.dead_letters, "store", overtaken)
        assert ids(store.rescue()) == {job.id}
        return {job.id}

    kept_by_worker: list[Any] = []
    monkeypatch.setattr(driver.dead_letters, "store", stopped)
    assert store.fail(old) == set()
    assert driver.queues() == []
    assert [letter.id for letter in driver.failed()] == [job.id]


def test_a_dead_letter_that_is_taken_back_while_a_rescue_looks_leaves_the_job(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = store.dispatch(max_attempts=5)
    failed = store.take_one()
    lose_redis(monkeypatch, driver, "settle")
    with pytest.raises(ConnectionError):
        store.fail(failed)
    update = QuerySet.update

    def taken_back(rows: Any, **values: Any) -> int:
        if rows.model is FailedJob:
            FailedJob.objects.all().delete()
        return update(rows, **values)

    monkeypatch.setattr(QuerySet, "update", taken_back)
    assert ids(store.lose(max_attempts=5)) == {job.id}
    assert store.get(job).state == "ready"
    assert driver.failed_count() == 0


def test_a_dead_letter_that_is_retried_before_its_job_has_left_takes_the_place_of_that(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a rescue is about to remove the job, since it has its dead letter: one of the two must remain."""
    store.dispatch()
    failed = store.take_one()
    lose_redis(monkeypatch, driver, "settle")
    with pytest.raises(ConnectionError):
        store.fail(failed)
    settled_before = driver.dead_letters.settled_before

    def retried(*given: Any) -> Any:
        found = settled_before(*given)
        number = driver.last_failed_number()
        assert store.retry(number) == {number}
        return found

    monkeypatch.setattr(driver.dead_letters, "settled_before", retried)
    assert store.lose() == []
    record = store.get(failed)
    assert (record.state, record.retries, record.attempts) == ("ready", 1, 0)
    assert driver.failed_count() == 0
    assert store.complete(failed) == set()
    assert driver.sizes(now=store.clock.now)["default"].ready == 1


def test_a_rescue_that_was_interrupted_is_repeated(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = store.dispatch(max_attempts=1)
    store.take_one()
    lose_redis(monkeypatch, driver, "settle")
    with pytest.raises(ConnectionError):
        store.lose()
    assert store.rescue() == []  # held for a while by whoever was interrupted
    store.clock.tick(HOLD_SECONDS)
    store.rescue()
    assert driver.queues() == []
    assert [letter.id for letter in driver.failed()] == [job.id]


def test_a_crash_in_a_retry_may_run_the_job_twice_and_never_not_at_all(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F15"""
    (dead,) = store.bury(new())
    push_back = driver._push_back

    def crash(*given: Any) -> None:
        push_back(*given)
        raise DatabaseError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(driver, "_push_back", crash)
        with pytest.raises(DatabaseError):
            store.retry(dead.number)
    assert driver.failed() == [dead]
    assert store.retry(dead.number) == {dead.number}
    assert ids(store.take()) == {dead.id}
    assert driver.failed_count() == 0


@pytest.mark.parametrize("end", ["fails", "is lost"])
def test_what_an_interrupted_retry_has_left_goes_with_the_next_end_of_the_job(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    (dead,) = store.bury(new(max_attempts=5))
    push_back = driver._push_back

    def crash(*given: Any) -> None:
        push_back(*given)
        raise DatabaseError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(driver, "_push_back", crash)
        with pytest.raises(DatabaseError):
            store.retry(dead.number)
    reservation = store.take_one()
    if end == "fails":
        store.fail(reservation)
        assert [letter.retries for letter in driver.failed()] == [1]
    else:
        assert ids(store.lose()) == {dead.id}
        assert driver.failed_count() == 0


# What is no job


def test_bytes_that_are_no_job_become_a_dead_letter_and_stop_nobody(
    store: Store, driver: RedisDriver, clock: Clock
) -> None:
    """F11"""
    store.push(new("first", delay=1), new("last", delay=3))
    scheduled = driver.keys.of(["default"])[-1]
    middle = (clock.after(2).timestamp()) * 1_000_000
    driver.client.zadd(scheduled, {b"\xff\x00garbage": middle})
    clock.tick(5)
    assert store.stage() == 2
    assert store.order() == ["first", "last"]
    store.rescue()
    (letter,) = driver.failed()
    record = driver.get(letter.id)
    assert record is not None
    assert (letter.queue, letter.name) == ("default", "unreadable")
    assert "\\xff\\x00garbage" in record.payload
    store.rescue()
    assert driver.failed_count() == 1


@pytest.mark.parametrize("field", ["jobs", "bodies"])
@pytest.mark.parametrize("value", [b"\xff\xfe", b"", b"99 what a later version writes", b"1 ready"])
def test_a_job_that_cannot_be_read_leaves_the_queue_with_its_id(
    store: Store, driver: RedisDriver, field: str, value: bytes
) -> None:
    store.push(new("first"), new("broken"), new("last"))
    broken = driver.peek("default", limit=3)[1]
    driver.client.hset(getattr(driver.keys, field), broken.id.hex, value)
    assert [job.name for job in store.take()] == ["first", "last"]
    store.rescue()
    assert [letter.id for letter in driver.failed()] == [broken.id]
    assert driver.sizes(now=store.clock.now)["default"].waiting == 0
    assert driver.client.hlen(driver.keys.unreadable) == 0


def test_a_reserved_job_that_cannot_be_read_becomes_a_dead_letter_when_it_is_rescued(
    store: Store, driver: RedisDriver
) -> None:
    store.push(new("broken"), new("other"))
    broken, other = store.take()
    driver.client.hset(driver.keys.jobs, broken.id.hex, b"\xff")
    assert ids(store.lose()) == {other.id}
    assert [(letter.id, letter.queue) for letter in driver.failed()] == [(broken.id, "default")]
    store.complete(store.take_one())
    assert driver.queues() == []


@pytest.mark.parametrize("is_reserved", [False, True], ids=["ready", "reserved"])
def test_a_name_that_is_no_text_stops_nobody(store: Store, driver: RedisDriver, is_reserved: bool) -> None:
    """The scripts read it, and Python does not."""
    store.push(new("broken"), new("other"))
    broken, other = store.take() if is_reserved else driver.peek("default", limit=2)
    form = driver.client.hget(driver.keys.jobs, broken.id.hex)
    driver.client.hset(driver.keys.jobs, broken.id.hex, form.replace(b"broken", b"\xff\xfe"))
    if not is_reserved:
        assert ids(store.take()) == {other.id}
    store.lose()
    assert [letter.id for letter in driver.failed()] == [broken.id]
    assert store.get(other).state == "ready"


def test_a_stray_entry_of_a_job_that_is_elsewhere_is_dropped(store: Store, driver: RedisDriver) -> None:
    store.dispatch()
    held = store.take_one()
    ready = driver.keys.of(["default"])[-2]
    driver.client.zadd(ready, {f"{0:017}{held.id.hex}": 0})
    assert store.take(worker="w2") == []
    assert store.complete(held) == {held.id}


def test_two_dead_letters_of_different_bytes_are_two(store: Store, driver: RedisDriver) -> None:
    ready = driver.keys.of(["default"])[-2]
    driver.client.zadd(ready, {b"\xff": 0, b"\xfe" * 40: 0})
    store.take()
    store.rescue()
    assert driver.failed_count() == 2
    assert all(isinstance(letter.id, UUID) for letter in driver.failed())


HEX = b"0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("member", "queue"),
    [
        (HEX + b"que\x00ue", "que\\x00ue"),
        (HEX + b"q" * 500, "q" * 100),
        (HEX + b"\xff", "\\xff"),
        (HEX.upper() + b"mail", "mail"),
        (HEX, ""),
        (b"\xff\x00", ""),
    ],
    ids=["NUL", "long", "no text", "no id of ours", "empty", "short"],
)
def test_a_bad_member_of_the_reserved_ones_stops_no_rescue(
    store: Store, driver: RedisDriver, member: bytes, queue: str
) -> None:
    """F11"""
    job = store.dispatch()
    store.take_one()
    driver.client.zadd(driver.keys.reserved, {member: 1})
    assert ids(store.lose()) == {job.id}
    (letter,) = driver.failed()
    record = driver.get(letter.id)
    assert record is not None
    assert (letter.queue, letter.name) == (queue, "unreadable")
    assert escaped(member[:32]) in record.payload
    assert escaped(member[32:]) in record.payload
    store.rescue()
    assert driver.failed_count() == 1
    assert driver.client.hlen(driver.keys.unreadable) == 0


FORM = "1 reserved 0 5 5 5 {attempts} 0 0 0 {format} 1   5 {until} 1   \n{queue}\n{name}\n{worker}"
SOUND = {
    "attempts": "1",
    "format": "1",
    "until": "7",
    "queue": "default",
    "name": "strange",
    "worker": "w1",
}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a\x00b"},
        {"name": "n" * 256},
        {"queue": "a\x00b"},
        {"queue": "q" * 101},
        {"format": "40000"},
        {"attempts": "3000000000"},
        {"attempts": "9" * 400},
        {"until": ""},
        {"worker": "w\x00"},
        {"worker": "w" * 1000},
    ],
    ids=lambda changes: "-".join(f"{key}{len(value)}" for key, value in changes.items()),
)
def test_a_reserved_form_that_no_row_could_hold_stops_no_rescue(
    store: Store, driver: RedisDriver, changes: dict[str, str]
) -> None:
    """F11"""
    job = store.dispatch()
    store.take_one()
    strange = UUID(HEX.decode())
    values = {**SOUND, **changes}
    driver.client.hset(driver.keys.jobs, strange.hex, FORM.format(**values))
    driver.client.hset(driver.keys.bodies, strange.hex, "1 0 0  {}")
    driver.client.hset(driver.keys.queues, values["queue"], 1)
    driver.client.zadd(driver.keys.reserved, {f"{strange.hex}{values['queue']}": 7})
    assert job.id in ids(store.lose())
    assert [letter.id for letter in driver.failed()] == [strange]
    store.take_one()
    assert driver.client.hlen(driver.keys.jobs) == 1


@pytest.mark.parametrize("body", [b'1 0 0  {"args":["\x00"]}', b"1 1 0  \x00{}", b"1 0 1  \x00{}", b"1 0 0 1 \x00{}"])
@pytest.mark.parametrize("is_reserved", [False, True], ids=["ready", "reserved"])
def test_a_body_with_a_nul_is_no_job(store: Store, driver: RedisDriver, body: bytes, is_reserved: bool) -> None:
    """F11"""
    store.push(new(max_attempts=1 if is_reserved else None), new())
    jobs = [store.take_one(), store.take_one()] if is_reserved else driver.peek("default", limit=2)
    broken, other = jobs
    driver.client.hset(driver.keys.bodies, broken.id.hex, body)
    if not is_reserved:
        assert ids(store.take()) == {other.id}
    assert other.id in ids(store.lose())
    (letter,) = driver.failed()
    record = driver.get(letter.id)
    assert record is not None
    assert letter.id == broken.id
    assert "\\x00" in record.payload


def test_a_nul_in_the_errors_is_kept_as_an_escape(store: Store, driver: RedisDriver) -> None:
    job = store.dispatch(max_attempts=1)
    store.take_one()
    record = json.dumps({**asdict(attempt()), "message": "a\x00b"})
    driver.client.hset(driver.keys.errors, job.id.hex, f"1\n{record}")
    store.lose()
    assert next(error.message for error in store.get(job).errors.last) == "a\x00b"


def refusing(driver: RedisDriver, monkeypatch: pytest.MonkeyPatch, is_refused: Callable[[FailedJob], bool]) -> None:
    """A database that does not take every text, as one that has another encoding than UTF-8."""
    bulk_create = QuerySet.bulk_create

    def create(self: Any, rows: list[FailedJob], *given: Any, **more: Any) -> Any:
        if any(map(is_refused, rows)):
            raise DataError("invalid byte sequence")
        return bulk_create(self, rows, *given, **more)

    monkeypatch.setattr(QuerySet, "bulk_create", create)


def test_a_dead_letter_that_the_database_refuses_is_kept_in_ascii_and_stops_no_other(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, strange, last = new("first", max_attempts=1), new("Ж", max_attempts=1), new("last", max_attempts=1)
    store.push(first, strange, last)
    for _ in range(3):
        store.take_one()
    refusing(driver, monkeypatch, lambda row: not row.name.isascii())
    assert ids(store.lose()) == {first.id, strange.id, last.id}
    assert {letter.id: letter.name for letter in driver.failed()} == {
        first.id: "first",
        strange.id: "\\u0416",
        last.id: "last",
    }
    assert driver.queues() == []


def test_a_dead_letter_that_the_database_refuses_in_any_form_leaves_its_job_and_stops_no_other(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.push(new("refused", max_attempts=1), new("dead", max_attempts=1), new("lives"))
    refused, dead, lives = (store.take_one() for _ in range(3))
    with monkeypatch.context() as patched:
        refusing(driver, patched, lambda row: row.name == "refused")
        assert ids(store.lose()) == {dead.id, lives.id}
        assert f"The dead letter of the job {refused.id} cannot be stored." in caplog.text
        assert store.fail(store.take_one()) == {lives.id}
    store.clock.tick(HOLD_SECONDS)
    assert ids(store.rescue()) == {refused.id}
    assert driver.failed_count() == 3


@pytest.mark.parametrize("text", ["x" * 20_000_000, "\u20ac" * 6_000_000], ids=["ascii", "others"])
def test_a_body_that_is_longer_than_a_database_takes_is_cut(store: Store, driver: RedisDriver, text: str) -> None:
    """MySQL ends the connection over it, as if it were down."""
    store.dispatch(max_attempts=1)
    held = store.take_one()
    driver.client.hset(driver.keys.bodies, held.id.hex, f"1 0 0  {text}")
    assert ids(store.lose()) == {held.id}
    assert len(store.get(held).payload) <= 100_000


def test_an_entry_under_a_wrong_queue_takes_no_job_from_its_worker(store: Store, driver: RedisDriver) -> None:
    store.dispatch()
    held = store.take_one()
    driver.client.zadd(driver.keys.reserved, {f"{held.id.hex}other": 1})
    assert store.rescue() == []
    assert store.complete(held) == {held.id}
    assert everything_of(driver) == {}


def test_a_rank_beyond_every_number_stops_nobody(store: Store, driver: RedisDriver, clock: Clock) -> None:
    """The scripts would be refused by the server, at every look."""
    broken, other = new(delay=1), new(delay=1)
    store.push(broken, other)
    form = driver.client.hget(driver.keys.jobs, broken.id.hex).replace(b"1 scheduled 0", b"1 scheduled " + b"9" * 400)
    driver.client.hset(driver.keys.jobs, broken.id.hex, form)
    clock.tick(1)
    assert store.stage() == 1
    store.rescue()
    assert [letter.id for letter in driver.failed()] == [broken.id]


def test_bytes_among_the_ready_ones_do_not_keep_anybody_from_counting(store: Store, driver: RedisDriver) -> None:
    store.dispatch()
    driver.client.zadd(driver.keys.of(["default"])[-2], {b"\xff": -1})
    driver.client.hset(driver.keys.queues, "other", "no number")
    assert driver.sizes(now=store.clock.after(7))["default"].oldest == 7


def test_a_number_of_jobs_that_is_none_keeps_nobody_from_storing_and_ending_them(
    store: Store, driver: RedisDriver
) -> None:
    store.push(new(), new())
    driver.client.hset(driver.keys.queues, "default", "no number")
    store.push(new())
    assert driver.sizes(now=store.clock.now)["default"].ready == 3
    driver.client.hset(driver.keys.queues, "default", "no number")
    assert len(store.settle(*map(Complete, store.take()))) == 3
    assert driver.queues() == []


def test_a_chain_whose_next_step_is_no_job_ends_and_is_no_outage(store: Store, driver: RedisDriver) -> None:
    """What redis-py refuses to send would look like a server that is out of reach, for ever."""
    step = {"id": HEX.decode(), "connection": driver.alias, "name": "next", "queue": None, "payload": "", "format": 1}
    store.push(new(max_attempts=1, flow=json.dumps({"catch": step})), new(max_attempts=1))
    store.take_one(), store.take_one()
    assert len(store.lose()) == 2
    assert driver.failed_count() == 2


# What takes long


def test_to_count_many_priorities_takes_many_short_calls(
    store: Store, driver: RedisDriver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server serves others between them."""
    monkeypatch.setattr(redis_store, "RANKS_PER_CALL", 4)
    store.push(*(new(rank=rank) for rank in range(8)))
    clock.tick(3)
    store.push(*(new(rank=rank - 5) for rank in range(3)), *(new(queue="mail", rank=rank) for rank in range(3)))
    calls, run = [], SCRIPTS["sizes"].run

    def counted(*given: Any) -> Any:
        calls.append(given)
        return run(*given)

    monkeypatch.setattr(SCRIPTS["sizes"], "run", counted)
    sizes = driver.sizes(now=clock.after(2))
    assert {name: (size.ready, size.oldest) for name, size in sizes.items()} == {"default": (11, 5), "mail": (3, 2)}
    assert len(calls) == 3


def test_what_version_1_wrote_is_read(store: Store, driver: RedisDriver, clock: Clock) -> None:
    """Jobs that wait while a project is upgraded."""
    job_id = UUID("01a22997-d6ca-72f8-9a7f-25667748bd4a")
    keys = driver.keys.of(["mail"])
    moment = int(clock.now.timestamp()) * 1_000_000
    form = f"1 ready -5 {moment} {moment} {moment} 1 1 0 2 1 4 {moment + 7}   0  \nmail\nshop.jobs.sync\n"
    record = json.dumps(asdict(attempt()))
    driver.client.hset(driver.keys.jobs, job_id.hex, form)
    driver.client.hset(driver.keys.bodies, job_id.hex, '1 10 2  {"user":7}[]{"args":["☃"],"kwargs":{}}')
    driver.client.hset(driver.keys.errors, job_id.hex, f"1\n{record}")
    driver.client.hset(driver.keys.queues, "mail", 1)
    driver.client.zadd(keys[-2], {f"{moment:017}{job_id.hex}": -5})
    assert driver.get(job_id) == driver.peek("mail", limit=1)[0]
    (held,) = store.take("mail")
    assert (held.id, held.name, held.queue, held.rank) == (job_id, "shop.jobs.sync", "mail", -5)
    assert (held.attempt, held.exceptions, held.crashes, held.max_attempts) == (2, 1, 0, 4)
    assert (held.payload, held.metadata, held.masked) == ('{"args":["☃"],"kwargs":{}}', '{"user":7}', "[]")
    assert held.retry_until == clock.now + timedelta(microseconds=7)
    store.fail(held)
    record_of_it = store.get(held)
    assert (record_of_it.retries, record_of_it.errors.total) == (2, 2)


@pytest.mark.parametrize("field", ["jobs", "bodies"])
def test_what_a_later_version_wrote_is_not_guessed_at(store: Store, driver: RedisDriver, field: str) -> None:
    """As after a step back to an older release: whatever looks the same may mean something else."""
    store.push(new("first"), new("later"), new("last"))
    later = driver.peek("default", limit=3)[1]
    key = getattr(driver.keys, field)
    written = driver.client.hget(key, later.id.hex)
    driver.client.hset(key, later.id.hex, b"2" + written.removeprefix(b"1"))
    assert driver.get(later.id) is None
    assert [job.name for job in store.take()] == ["first", "last"]
    store.rescue()
    letter = driver.get(later.id)
    assert letter is not None
    assert (letter.state, letter.name) == ("failed", "unreadable")
    assert escaped(b"2" + written.removeprefix(b"1")) in letter.payload


def test_a_result_of_a_later_version_is_none(store: Store, driver: RedisDriver) -> None:
    store.dispatch()
    held, now = store.take_one(), store.clock.now
    result = NewResult(value="1", error="", started_at=now, finished_at=now, keep_for=60)
    store.settle(Complete(held, result=result))
    assert driver.get_result(held.id, now=now) is not None
    written = driver.client.hget(driver.keys.common[6], held.id.hex)
    later = written.replace(b'"version": "1"', b'"version": "2"')
    assert later != written
    driver.client.hset(driver.keys.common[6], held.id.hex, later)
    assert driver.get_result(held.id, now=now) is None


def test_workers_are_listed_and_asked_through_the_database_of_the_dead_letters(driver: RedisDriver) -> None:
    assert [ledger.database for ledger in ledgers_of([driver])] == ["default"]


def test_a_retry_before_the_end_in_redis_leaves_the_catch_its_turn(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is killed when the dead letter is stored, and a person is faster than the rescue."""
    catch = new("catch")
    store.push(new(flow=Flow(catch=Step(driver.alias, catch)).write()))
    held = store.take_one()

    def killed(*given: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(driver, "_end", killed)
        with pytest.raises(KeyboardInterrupt):
            store.fail(held)
    (letter,) = driver.failed()
    driver.retry({letter.number: None}, now=store.clock.now)
    again = store.take_one()
    assert readable(again.flow).catch is not None


# Other projects


def test_two_prefixes_on_one_server_never_see_each_others_jobs(store: Store, driver: RedisDriver) -> None:
    """F92"""
    job = store.dispatch()
    with redis_driver("other") as other:
        theirs = Store(other, store.clock)
        assert other.queues() == []
        assert theirs.take() == []
        assert other.get(job.id) is None
        assert other.cancel(job.id) is None
        theirs.dispatch()
        theirs.take_one()
        store.take_one()
        theirs.lose()
        assert theirs.driver.sizes(now=store.clock.now)["default"].ready == 1
        assert driver.sizes(now=store.clock.now)["default"].reserved == 1


def test_the_caches_own_prefix_and_serializer_leave_jobs_alone(
    store: Store, driver: RedisDriver, settings: Any
) -> None:
    cache = settings.CACHES["redis"]
    options = {
        **cache["OPTIONS"],
        "SERIALIZER": "django_redis.serializers.json.JSONSerializer",
        "COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor",
    }
    settings.CACHES = {**settings.CACHES, "redis": {**cache, "KEY_PREFIX": "cache", "VERSION": 7, "OPTIONS": options}}
    job = store.dispatch()
    same = RedisDriver("default", {"CACHE": "redis", "PREFIX": driver.options.prefix})
    assert same.get(job.id) == driver.get(job.id)


def test_dead_letters_are_rows_of_the_connections_own(store: Store, driver: RedisDriver) -> None:
    (dead,) = store.bury(new())
    assert FailedJob.objects.get().connection == driver.alias
    with redis_driver("other") as other:
        assert other.failed() == []
        assert other.forget([dead.number]) == set()
