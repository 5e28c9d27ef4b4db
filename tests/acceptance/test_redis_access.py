"""Ways to a Redis that are django-redis' own: a user with few rights, and Sentinel, which knows the master."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("django_redis", reason="django-redis is not installed")

import redis
from redis.exceptions import NoPermissionError, ResponseError

from django_jobqueue.drivers.redis import RedisDriver
from django_jobqueue.jobs.flows import Callbacks, Flow, Step
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import Complete, Fail, NewBatch, Release, ReserveLimit
from django_jobqueue.running.stopping import Stopping
from lab.servers import Redis, free_port
from tests.drivers.contract import attempt, new
from tests.helpers.proxies import proxy
from tests.helpers.servers import private_redis, running
from tests.helpers.waiting import wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.django_db(transaction=True),
    pytest.mark.xdist_group("private server"),
]


@pytest.fixture
def server() -> Iterator[Redis]:
    with running(private_redis()) as server:
        yield server


def driver_on(settings: Any, **cache: Any) -> RedisDriver:
    settings.CACHES = {**settings.CACHES, "private": {"BACKEND": "django_redis.cache.RedisCache", **cache}}
    return RedisDriver("default", {"CACHE": "private", "PREFIX": "shop:", "DATABASE": "default"})


def run_one(driver: RedisDriver) -> set[UUID]:
    """A job from its dispatch to its end."""
    driver.push([new()])
    held = driver.reserve("default", "w1", ReserveLimit(rows=1, max_attempts=3), retry_after=90).jobs
    return driver.settle([Complete(job) for job in held])


def test_a_user_with_the_documented_rights_can_work(server: Redis, settings: Any) -> None:
    """Without the right to the channel too: idle workers poll then."""
    with closing(redis.Redis(port=server.port)) as admin:
        for name, channels in (("full", "resetchannels &{shop:}*"), ("quiet", "resetchannels")):
            rights = ["on", ">secret", "~{shop:}*", *channels.split(), "+@all", "-@dangerous", "+info"]
            admin.execute_command("ACL", "SETUSER", name, *rights)
    for name in ("full", "quiet"):
        location = f"redis://{name}:secret@127.0.0.1:{server.port}/0"
        driver = driver_on(settings, LOCATION=location, OPTIONS={"SOCKET_TIMEOUT": 10})
        assert driver.problems() == []
        assert driver.risks() == []
        assert len(run_one(driver)) == 1
        assert driver.release_worker("w1") == 0
        with pytest.raises(NoPermissionError):
            driver.client.set("other", "project")
        driver.close()


def master(port: int) -> str:
    """The name that one Sentinel gives it: django-redis keeps one pool for each name in a process."""
    return f"shop-{port}"


def test_a_full_server_refuses_dispatches_and_lets_workers_go_on(server: Redis, settings: Any) -> None:
    """F92"""
    driver = driver_on(settings, LOCATION=f"redis://127.0.0.1:{server.port}/0", OPTIONS={"SOCKET_TIMEOUT": 10})
    limit = ReserveLimit(rows=9, max_attempts=3)
    driver.push([new(payload="x" * 100_000, max_attempts=9) for _ in range(9)])
    waits = new(delay=3600)
    driver.push([waits])
    server.execute("CONFIG SET maxmemory 1")
    with pytest.raises(driver.outages, match="maxmemory"):
        driver.push([new()])
    assert driver.get(waits.id) is not None
    first, *others = driver.reserve("default", "w1", limit, retry_after=90).jobs
    assert driver.renew([first, *others], retry_after=90) == set()
    assert driver.stage("default", now=datetime.now(UTC) + timedelta(hours=2)) == 1
    record = attempt()
    assert len(driver.settle([Release(first, 0, record), Complete(others[0], (new(),)), Fail(others[1], record)])) == 3
    assert len(driver.hand_back(others[2:])) == 6
    driver.reserve("default", "w1", limit, retry_after=0.001)
    assert driver.rescue(max_attempts=9, now=datetime.now(UTC) + timedelta(hours=3))
    server.execute("CONFIG SET maxmemory 0")
    driver.push([new()])
    driver.close()


def test_a_server_that_has_become_a_replica_is_not_asked_again(server: Redis, settings: Any) -> None:
    """Its connections stay open: as after a fail-over behind one address, where new ones lead to the new master."""
    with running(private_redis()) as master, proxy("127.0.0.1", server.port, b"EVALSHA") as network:
        driver = driver_on(settings, LOCATION=f"redis://127.0.0.1:{network.port}/0", OPTIONS={"SOCKET_TIMEOUT": 10})
        driver.push([new()])
        network.lead_to(master.port)
        server.execute(f"REPLICAOF 127.0.0.1 {master.port}")
        with pytest.raises(ResponseError, match="read only replica"):
            driver.push([new()])
        assert len(run_one(driver)) == 1
        driver.close()


def test_a_full_server_lets_batches_end(server: Redis, settings: Any) -> None:
    """F92"""
    driver = driver_on(settings, LOCATION=f"redis://127.0.0.1:{server.port}/0", OPTIONS={"SOCKET_TIMEOUT": 10})

    def begun() -> NewBatch:
        callbacks = Callbacks(finally_=Step(driver.alias, new(queue="callbacks"))).write()
        return NewBatch(id=new_job_id(), name="", metadata="", allow_failures=False, callbacks=callbacks)

    done, cancelled, never_pushed = begun(), begun(), begun()
    for batch in (done, cancelled, never_pushed):
        flow = Flow(batch=batch.id).write()
        jobs = [new(flow=flow, queue=f"{batch.id}") for _ in range(3)]
        driver.create_batch(batch, [job.id for job in jobs])
        driver.push(jobs if batch is not never_pushed else [])
    held = driver.reserve(f"{done.id}", "w1", ReserveLimit(rows=9, max_attempts=3), retry_after=90).jobs
    server.execute("CONFIG SET maxmemory 1")
    driver.settle([Complete(job, batch=done.id) for job in held])
    assert driver.cancel_batch(cancelled.id, keep_for=lambda name: 60) == 3
    later = datetime.now(UTC) + timedelta(hours=2)
    driver.sweep_batches(now=later)
    for batch in (done, cancelled, never_pushed):
        driver.close_batch(batch.id, now=later)
    records = [driver.get_batch(batch.id) for batch in (done, cancelled, never_pushed)]
    assert [record.finished_at is not None for record in records if record] == [True] * 3
    assert [record.cancelled for record in records if record] == [0, 3, 3]
    assert driver.sizes()["callbacks"].ready == 3
    driver.close()


def test_a_full_server_lets_what_cannot_be_read_leave_the_queue(server: Redis, settings: Any) -> None:
    """F11, F92: whoever takes it with others goes on with the others."""
    driver = driver_on(settings, LOCATION=f"redis://127.0.0.1:{server.port}/0", OPTIONS={"SOCKET_TIMEOUT": 10})
    first, bad, last = jobs = [new(max_attempts=9) for _ in range(3)]
    driver.push(jobs)
    driver.client.hset(driver.keys.bodies, bad.id.hex, b"\xff\x00garbage")
    server.execute("CONFIG SET maxmemory 1")
    taken = driver.reserve("default", "w1", ReserveLimit(rows=9, max_attempts=9), retry_after=1).jobs
    assert [job.id for job in taken] == [first.id, last.id]
    record = attempt()
    assert driver.settle([Fail(job, record) for job in taken]) == {first.id, last.id}
    driver.rescue(max_attempts=9)
    assert {letter.id for letter in driver.failed()} == {job.id for job in jobs}
    assert driver.queues() == []
    driver.close()


@pytest.fixture
def sentinel_port(server: Redis, tmp_path: Path) -> Iterator[int]:
    port = free_port()
    file = tmp_path / "sentinel.conf"
    file.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\n"
        f"sentinel monitor {master(port)} 127.0.0.1 {server.port} 1\n"
        f"sentinel down-after-milliseconds {master(port)} 1000\n"
    )
    log = (tmp_path / "sentinel.log").open("wb")
    program = Redis.program() or "redis-server"
    process = subprocess.Popen([program, str(file), "--sentinel"], stdout=log, stderr=subprocess.STDOUT)

    def answers() -> bool:
        with closing(redis.Redis(port=port, socket_timeout=5)) as client:
            try:
                return bool(client.ping())
            except redis.exceptions.RedisError:
                return False

    try:
        wait_until(answers, "Sentinel answers")
        yield port
    finally:
        process.kill()
        process.wait()
        log.close()


def through_sentinel(settings: Any, port: int) -> RedisDriver:
    options = {
        "CLIENT_CLASS": "django_redis.client.SentinelClient",
        "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
        "SENTINELS": [("127.0.0.1", port)],
        "SOCKET_TIMEOUT": 10,
    }
    return driver_on(settings, LOCATION=f"redis://{master(port)}/0", OPTIONS=options)


def test_a_master_is_found_through_sentinel(sentinel_port: int, settings: Any) -> None:
    driver = through_sentinel(settings, sentinel_port)
    assert driver.problems() == []
    assert driver.risks() == []
    assert len(run_one(driver)) == 1
    stopping = Stopping()
    waiter = stopping.waiter()
    driver.listen(waiter)
    assert driver.ear is not None
    ear = driver.ear
    assert not waiter.pause(0, [ear])
    wait_until(lambda: driver.client.pubsub_numsub(driver.keys.channel)[0][1] == 1, "it is subscribed")
    RedisDriver("default", {"CACHE": driver.options.cache, "PREFIX": driver.options.prefix}).push([new()])
    assert waiter.pause(60, [ear])
    driver.unlisten(waiter)
    stopping.dismiss(waiter)
    driver.close()


@pytest.mark.slow
def test_after_a_fail_over_the_new_master_has_the_jobs(sentinel_port: int, server: Redis, settings: Any) -> None:
    driver = through_sentinel(settings, sentinel_port)
    with running(private_redis()) as replica:
        replica.execute(f"REPLICAOF 127.0.0.1 {server.port}")
        job = new()
        driver.push([job])
        assert driver.client.execute_command("WAIT", 1, 30_000) == 1
        with closing(redis.Redis(port=sentinel_port)) as sentinel:
            wait_until(lambda: len(sentinel.sentinel_slaves(master(sentinel_port))) == 1, "Sentinel knows the replica")
        server.kill()

        def is_back() -> bool:
            try:
                return driver.get(job.id) is not None
            except driver.outages:
                driver.close()
                return False

        wait_until(is_back, "the replica has taken over")
        assert len(run_one(driver)) == 1
        driver.close()
