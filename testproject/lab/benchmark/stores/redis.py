"""Redis, by redis-py: raw scripts on a sorted set and a hash, and the driver's own without a worker.

The small store has what a queue cannot do without: an order, a body, and a set of what is taken.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, ClassVar, cast

import redis
from django.db.models import QuerySet

from django_jobqueue.drivers import Driver
from django_jobqueue.drivers.redis import RedisDriver
from django_jobqueue.jobs.payloads import FORMAT
from django_jobqueue.jobs.records import Complete, NewJob, ReserveLimit
from django_jobqueue.models import FailedJob

from ...jobs import noop
from ...redis_connection import server_version
from .. import rows
from .base import BATCH, CHUNK, OWN_NAMES, QUEUE, QUEUES, Store, Table

READY, BODIES, TAKEN = "{jobqueue-bench}ready", "{jobqueue-bench}bodies", "{jobqueue-bench}taken"
RESERVE = """
local ids = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)
if #ids == 0 then return {} end
redis.call('ZREM', KEYS[1], unpack(ids))
local taken = {}
for _, id in ipairs(ids) do
  taken[#taken + 1] = ARGV[2]
  taken[#taken + 1] = id
end
redis.call('ZADD', KEYS[3], unpack(taken))
return {ids, redis.call('HMGET', KEYS[2], unpack(ids))}
"""
DELETE = """
redis.call('ZREM', KEYS[2], unpack(ARGV))
return redis.call('HDEL', KEYS[1], unpack(ARGV))
"""
SETTINGS = ("appendonly", "appendfsync", "maxmemory-policy")
CLEAR = 1_000


class Redis(Store):
    create_label: ClassVar[str] = "HSET and ZADD of a like job"
    create_many_label: ClassVar[str] = "HSET and ZADD in a pipeline"

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self._client: redis.Redis = cast(RedisDriver, driver).client

    @property
    def vendor(self) -> str:
        return "redis"

    def foreign(self) -> int:
        waiting = sum(
            not job.name.startswith(OWN_NAMES) for queue in QUEUES for job in self.driver.waiting(queue, limit=BATCH)
        )
        return waiting + self._letters().exclude(name__startswith=OWN_NAMES).count()

    def left(self) -> int:
        sizes = self.driver.sizes()
        return sum(
            size.waiting + size.reserved + size.failed
            for queue, size in sizes.items()
            if queue in QUEUES and queue != QUEUE
        )

    def clean(self) -> None:
        for queue in QUEUES:
            while self.driver.clear(queue, limit=CLEAR):
                pass
        self._letters().filter(name__startswith=OWN_NAMES).delete()
        self._client.delete(READY, BODIES, TAKEN)

    def _letters(self) -> QuerySet[FailedJob]:
        return self.failed_jobs

    def server(self) -> dict[str, str]:
        found = {name: str(cast(dict[str, Any], self._client.config_get(name)).get(name)) for name in SETTINGS}
        return {"server": server_version(self._client), "library": f"redis-py {redis.__version__}", **found}

    def create(self, index: int) -> None:
        self._create([index])

    def create_many(self, jobs: int) -> None:
        for first in range(0, jobs, CHUNK):
            self._create(range(first, min(jobs, first + CHUNK)))

    def _create(self, indexes: Iterable[int]) -> None:
        with self._client.pipeline(transaction=True) as pipeline:
            for index in indexes:
                pipeline.hset(BODIES, str(index), rows.payload(index))
                pipeline.zadd(READY, {str(index): 0})
            pipeline.execute()

    def raw_insert(self, jobs: int) -> float:
        """By the driver's own script, without a dispatch around it."""
        started = time.perf_counter()
        self._fill(jobs)
        rate = jobs / (time.perf_counter() - started)
        self.driver.clear(QUEUE, limit=jobs)
        return rate

    def raw_drain(self, jobs: int, table: Table, *, each: bool = False) -> float:
        return self._drain_like(jobs) if table == "like" else self._drain_slim(jobs, each=each)

    def _drain_slim(self, jobs: int, *, each: bool) -> float:
        self._client.delete(READY, BODIES, TAKEN)
        self.create_many(jobs)
        reserve, delete = self._client.register_script(RESERVE), self._client.register_script(DELETE)
        started, done = time.perf_counter(), 0
        while found := reserve(keys=[READY, BODIES, TAKEN], args=[BATCH, time.time()]):
            ids = found[0]
            for batch in [[job_id] for job_id in ids] if each else [ids]:
                delete(keys=[BODIES, TAKEN], args=batch)
            done += len(ids)
        rate = done / (time.perf_counter() - started)
        _check(done, jobs)
        return rate

    def _drain_like(self, jobs: int) -> float:
        """The driver's scripts, with nobody who runs the jobs."""
        self._fill(jobs)
        limit = ReserveLimit(rows=BATCH, max_attempts=3)
        started, done = time.perf_counter(), 0
        while reserved := self.driver.reserve(QUEUE, "bench", limit, retry_after=90).jobs:
            done += len(self.driver.settle([Complete(job) for job in reserved]))
        rate = done / (time.perf_counter() - started)
        _check(done, jobs)
        return rate

    def _fill(self, jobs: int) -> None:
        for first in range(0, jobs, CHUNK):
            indexes = range(first, min(jobs, first + CHUNK))
            self.driver.push(
                [_job(index, job_id) for index, job_id in zip(indexes, rows.job_ids(len(indexes)), strict=True)]
            )


def _job(index: int, job_id: Any) -> NewJob:
    return NewJob(id=job_id, name=noop.definition.name, queue=QUEUE, payload=rows.payload(index), format=FORMAT)


def _check(done: int, jobs: int) -> None:
    if done != jobs:
        raise RuntimeError(f"The raw loop took {done} jobs of {jobs}.")
