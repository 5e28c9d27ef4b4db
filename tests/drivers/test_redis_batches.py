"""What only the Redis driver must cope with in batches: several steps for one dispatch, two stores, foreign bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("django_redis", reason="django-redis is not installed")

from redis.exceptions import ConnectionError

from django_jobqueue.drivers.redis import RedisDriver, batches
from django_jobqueue.drivers.redis.batches import AWAITED_SECONDS, MEMBERS_PER_CALL
from django_jobqueue.drivers.redis.scripts import SCRIPTS
from django_jobqueue.jobs.flows import Callbacks, Flow, Step
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import Complete, Fail, NewBatch, NewJob
from tests.drivers.contract import Clock, Store, attempt, ids, new
from tests.helpers.redis import redis_driver

pytestmark = [pytest.mark.redis, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def driver() -> Iterator[RedisDriver]:
    with redis_driver() as driver:
        yield driver


def create(store: Store, count: int, callbacks: Callbacks | None = None) -> tuple[UUID, list[NewJob]]:
    """A batch whose jobs are not pushed yet."""
    batch_id = new_job_id()
    jobs = [member(batch_id) for _ in range(count)]
    text = (callbacks or Callbacks()).write()
    batch = NewBatch(id=batch_id, name="", metadata="", allow_failures=False, callbacks=text)
    store.driver.create_batch(batch, ids(jobs), now=store.clock.now)  # type: ignore[arg-type]
    return batch_id, jobs


def member(batch_id: UUID, **changes: Any) -> NewJob:
    return new(flow=Flow(batch=batch_id).write(), **changes)


def counts(store: Store, batch_id: UUID) -> tuple[int, int, int, int, int]:
    record = store.driver.get_batch(batch_id)
    assert record is not None
    return record.total, record.pending, record.done, record.failed, record.cancelled


def keys_with_content(driver: RedisDriver) -> set[str]:
    tag = driver.keys.jobs.removesuffix("jobs")
    keys = driver.client.scan_iter(match=f"{tag}*")
    return {key.decode().removeprefix(tag) for key in keys if driver.client.ttl(key) == -1}


def before(monkeypatch: pytest.MonkeyPatch, script: str, act: Any) -> None:
    """Do something just before the next run of a script."""
    run, left = SCRIPTS[script].run, [act]

    def run_after(*given: Any) -> Any:
        if left:
            left.pop()()
        return run(*given)

    monkeypatch.setattr(SCRIPTS[script], "run", run_after)


def fail_once(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    def gone() -> None:
        raise ConnectionError("gone")

    before(monkeypatch, script, gone)


# A batch and its jobs are stored in several steps


def test_jobs_that_a_crash_kept_from_being_pushed_are_awaited_and_can_be_pushed_again(store: Store) -> None:
    batch_id, (first, second) = create(store, 2)
    store.push(first)
    assert store.driver.awaited_members(batch_id, [first.id, second.id]) == {second.id}
    assert store.push(first, second) == {second.id}
    assert store.driver.awaited_members(batch_id, [first.id, second.id]) == set()


def test_a_member_that_has_ended_is_not_stored_again(store: Store) -> None:
    batch_id, (first, second) = create(store, 2)
    store.push(first, second)
    done, failed = store.take()
    store.settle(Complete(done, batch=batch_id), Fail(failed, attempt(), batch=batch_id))
    assert store.push(first, second) == set()
    assert store.driver.queues() == []
    assert counts(store, batch_id) == (2, 0, 1, 1, 0)


def test_members_whose_jobs_never_come_are_cancelled_after_a_while(store: Store, clock: Clock) -> None:
    batch_id, (pushed, lost) = create(store, 2)
    store.push(pushed)
    store.settle(Complete(store.take_one(), batch=batch_id))
    clock.tick(AWAITED_SECONDS - 1)
    assert store.driver.sweep_batches(now=clock.now) == []
    assert counts(store, batch_id) == (2, 1, 1, 0, 0)
    clock.tick(1)
    assert [closed.record.id for closed in store.driver.sweep_batches(now=clock.now)] == [batch_id]
    assert counts(store, batch_id) == (2, 0, 1, 0, 1)
    assert store.push(lost) == set()


def test_a_batch_that_is_cancelled_before_its_jobs_are_pushed_lets_none_be_stored(store: Store) -> None:
    batch_id, jobs = create(store, 2)
    assert store.driver.cancel_batch(batch_id) == 2
    assert store.push(*jobs) == set()
    assert store.driver.queues() == []
    assert store.driver.close_batch(batch_id) is not None


def test_a_create_or_a_join_that_the_client_sent_twice_counts_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SCRIPTS["batch_add"].run
    monkeypatch.setattr(SCRIPTS["batch_add"], "run", lambda *given: [run(*given), run(*given)][1])
    batch_id, _jobs = create(store, 2)
    assert store.driver.join_batch(batch_id, [new_job_id()])
    assert counts(store, batch_id) == (3, 3, 0, 0, 0)


def test_a_batch_of_very_many_members_is_stored_in_pages(store: Store) -> None:
    batch_id, jobs = create(store, 2 * MEMBERS_PER_CALL + 1)
    assert counts(store, batch_id) == (len(jobs), len(jobs), 0, 0, 0)
    more = [new_job_id() for _ in range(MEMBERS_PER_CALL + 1)]
    assert store.driver.join_batch(batch_id, more)
    count = len(jobs) + len(more)
    assert store.driver.awaited_members(batch_id, more) == set(more)
    assert counts(store, batch_id) == (count, count, 0, 0, 0)
    assert store.driver.cancel_batch(batch_id, limit=10_000) == count
    assert counts(store, batch_id) == (count, 0, 0, 0, count)


def test_of_a_batch_that_a_crash_kept_from_beginning_nothing_is_left(
    store: Store, driver: RedisDriver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MEMBERS_PER_CALL", 2)
    run, calls = SCRIPTS["batch_add"].run, []

    def second_fails(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise ConnectionError("gone")
        return run(*given)

    monkeypatch.setattr(SCRIPTS["batch_add"], "run", second_fails)
    with pytest.raises(ConnectionError):
        create(store, 3)
    assert "members" in keys_with_content(driver)
    clock.tick(AWAITED_SECONDS)
    assert driver.sweep_batches(now=clock.now) == []
    assert keys_with_content(driver) == set()


def test_a_join_that_a_cancel_interrupts_leaves_nobody_pending(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id, _jobs = create(store, 1)
    monkeypatch.setattr(batches, "MEMBERS_PER_CALL", 2)
    before(monkeypatch, "batch_add", lambda: before(monkeypatch, "batch_add", lambda: driver.cancel_batch(batch_id)))
    assert not driver.join_batch(batch_id, [new_job_id() for _ in range(3)])
    assert driver.sweep_batches() != []
    assert counts(store, batch_id) == (3, 0, 0, 0, 3)


# Its end


def test_a_batch_that_moves_between_a_look_and_its_end_has_the_true_numbers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    finally_ = new("finally", payload='{"args":[{"$type":"previous"}],"kwargs":{}}')
    batch_id, jobs = create(store, 1, Callbacks(finally_=Step(store.driver.alias, finally_)))
    store.push(*jobs)
    store.settle(Complete(store.take_one(), batch=batch_id))
    late = member(batch_id)

    def join_and_cancel() -> None:
        assert store.driver.join_batch(batch_id, [late.id])
        store.push(late)
        store.driver.cancel(late.id)

    before(monkeypatch, "batch_close", join_and_cancel)
    closed = store.driver.close_batch(batch_id)
    assert closed is not None
    assert (closed.record.total, closed.record.cancelled) == (2, 1)
    (held,) = store.take()
    assert '"total":2' in held.payload
    assert '"cancelled":1' in held.payload


def test_a_batch_that_is_joined_between_a_look_and_its_end_stays_open(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id, _jobs = create(store, 0)
    before(monkeypatch, "batch_close", lambda: store.driver.join_batch(batch_id, [new_job_id()]))
    assert store.driver.close_batch(batch_id) is None
    assert store.driver.sweep_batches() == []
    assert counts(store, batch_id) == (1, 1, 0, 0, 0)


def test_a_cancel_leaves_what_a_worker_takes_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_id, jobs = create(store, 3)
    store.push(*jobs)
    before(monkeypatch, "batch_remove", store.take_one)
    assert store.driver.cancel_batch(batch_id) == 2
    assert counts(store, batch_id) == (3, 1, 0, 0, 2)


def test_a_retry_after_the_end_opens_nothing(store: Store) -> None:
    batch_id, jobs = create(store, 1)
    store.push(*jobs)
    store.settle(Fail(store.take_one(), attempt(), batch=batch_id))
    assert store.driver.close_batch(batch_id) is not None
    store.retry(store.driver.last_failed_number())
    store.settle(Complete(store.take_one(), batch=batch_id))
    assert store.driver.sweep_batches() == []
    assert counts(store, batch_id) == (1, 0, 1, 0, 0)


# Dead letters, which lie in another store


def test_a_crash_between_a_dead_letter_and_the_end_of_its_job_is_mended_with_its_catch_and_its_batch(
    store: Store, driver: RedisDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id, _jobs = create(store, 0)
    catch = new("catch", payload='{"args":[{"$type":"previous"}],"kwargs":{}}')
    deadly = new(flow=Flow(catch=Step(driver.alias, catch), batch=batch_id).write())
    driver.join_batch(batch_id, [deadly.id])
    store.push(deadly)
    held = store.take_one()
    fail_once(monkeypatch, "settle")
    with pytest.raises(ConnectionError):
        store.settle(Fail(held, attempt(), (catch,), batch_id))
    store.lose()
    assert counts(store, batch_id) == (1, 0, 0, 1, 0)
    caught = store.take_one()
    assert caught.id == catch.id
    assert '"ValueError"' in caught.payload
    assert [closed.record.id for closed in driver.sweep_batches()] == [batch_id]


@pytest.mark.parametrize("field", ["jobs", "bodies"])
def test_a_member_that_cannot_be_read_has_failed(store: Store, driver: RedisDriver, field: str) -> None:
    batch_id, jobs = create(store, 1)
    store.push(*jobs)
    key, job_id = getattr(driver.keys, field), jobs[0].id.hex
    name = driver.client.hget(key, job_id).replace(b"shop.work", b"\xff")
    driver.client.hset(key, job_id, name if field == "jobs" else b"\xff")
    assert store.take() == []
    assert counts(store, batch_id) == (1, 0, 0, 1, 0)


def test_a_cancelled_batch_waits_for_no_member_whose_job_is_lost(store: Store, driver: RedisDriver) -> None:
    """As when its bytes were damaged so much that nothing tells of its batch."""
    batch_id, jobs = create(store, 1)
    store.push(*jobs)
    driver.client.hset(driver.keys.jobs, jobs[0].id.hex, b"\xff")
    assert store.take() == []
    store.rescue()
    assert counts(store, batch_id) == (1, 1, 0, 0, 0)
    assert driver.cancel_batch(batch_id) == 1
    assert driver.close_batch(batch_id) is not None


@pytest.mark.parametrize("part", [b"shop.work", b"\ndefault\n"], ids=["name", "queue"])
def test_a_name_that_is_no_text_stops_no_cancel(store: Store, driver: RedisDriver, part: bytes) -> None:
    """The scripts read it, and Python does not."""
    batch_id, jobs = create(store, 2)
    store.push(*jobs)
    key, job_id = driver.keys.jobs, jobs[0].id.hex
    driver.client.hset(
        key, job_id, driver.client.hget(key, job_id).replace(part, part.replace(b"o", b"\xff").replace(b"e", b"\xff"))
    )
    driver.cancel_batch(batch_id)
    driver.sweep_batches()
    store.take()
    store.rescue()
    assert counts(store, batch_id)[:2] == (2, 0)


@pytest.mark.parametrize("of_a_later_version", [False, True])
def test_a_batch_that_cannot_be_read_stops_no_sweep(
    store: Store, driver: RedisDriver, of_a_later_version: bool
) -> None:
    broken, _jobs = create(store, 0)
    other, _jobs = create(store, 0)
    written = driver.client.hget(driver.keys.common[8], broken.hex)
    value = b"2" + written.removeprefix(b"1") if of_a_later_version else b"\xff"
    driver.client.hset(driver.keys.common[8], broken.hex, value)
    assert [closed.record.id for closed in driver.sweep_batches()] == [other]
    assert driver.get_batch(broken) is None


# What is left behind, and what it costs


@pytest.mark.parametrize("key", ["over", "cancelled"])
@pytest.mark.parametrize("name", [b"", b"\xff\x00", b"x" * 32])
def test_a_name_that_is_no_batch_stops_no_sweep(store: Store, driver: RedisDriver, key: str, name: bytes) -> None:
    batch_id, _jobs = create(store, 0)
    driver.client.zadd(getattr(driver.keys, key), {name: 0})
    assert [closed.record.id for closed in driver.sweep_batches(limit=2, now=store.clock.now)] == [batch_id]
    assert driver.client.zcard(getattr(driver.keys, key)) == 0


def test_nothing_is_left_of_batches_that_were_pruned(
    store: Store, driver: RedisDriver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch with many members goes in several calls."""
    monkeypatch.setattr(batches, "MOST_PRUNED_MEMBERS", 3)
    for _ in range(2):
        batch_id, jobs = create(store, 4)
        store.push(*jobs)
        failed, *_others = store.take(rows=1)
        store.settle(Fail(failed, attempt(), batch=batch_id))
        driver.cancel_batch(batch_id, now=clock.now)
        assert driver.close_batch(batch_id, now=clock.now) is not None
    clock.tick(10)
    assert [driver.prune_batches(older_than=10, now=clock.now) for _ in range(4)] == [0, 1, 1, 0]
    assert keys_with_content(driver) == set()


def test_a_job_without_a_batch_costs_no_look_at_batches(store: Store, driver: RedisDriver, clock: Clock) -> None:
    the_end = f"end-of-{driver.options.prefix}"
    batch_keys = set(driver.keys.common[8:])
    for script in SCRIPTS.values():
        driver.client.script_load(script.text)
    with driver.client.monitor() as monitor:
        store.push(new(), new(), new(max_attempts=1), new(delay=5))
        store.complete(store.take_one())
        store.release(store.take_one(), 5, attempt())
        clock.tick(5)
        store.stage()
        store.fail(store.take_one())
        store.retry(driver.last_failed_number())
        store.take_one()
        store.lose()
        driver.cancel(driver.peek("default", limit=1)[0].id)
        driver.clear("default", limit=5)
        driver.client.echo(the_end)
        seen = []
        while (command := monitor.next_command())["command"].split(" ") != ["ECHO", the_end]:
            if command["client_type"] == "lua" and command["command"].split(" ")[1:2]:
                seen.append(command["command"].split(" ")[1])
    assert driver.keys.jobs in seen
    assert not batch_keys.intersection(seen)
