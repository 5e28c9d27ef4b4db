"""Atomic jobs: the handler's writes and the job's end are one transaction."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction

from django_jobqueue import JobContext, get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.exceptions import InvalidOption
from django_jobqueue.models import FailedJob, Job
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock, at_once, new
from tests.helpers.errors import ERRORS, Load
from tests.helpers.listening import Heard

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


def effects() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def steal(driver: Driver, clock: Clock) -> None:
    """Let the reservations end, and another worker rescue the jobs."""
    driver.rescue(max_attempts=3, now=clock.after(1000))


def test_the_effects_and_the_end_are_committed_together(
    database: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    seen = []

    @register(atomic=True)
    def work() -> None:
        Group.objects.create(name="effect")
        transaction.on_commit(lambda: seen.append((effects(), Job.objects.count())))

    work.dispatch()
    worker.work_once(now=clock.now)
    assert seen == [(["effect"], 0)]
    assert heard.names() == ["job_dispatched", "job_starting", "job_processed"]
    assert worker.stats.processed == 1


def test_nobody_sees_the_effects_while_the_handler_runs(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("readers of a SQLite test database may wait for its writer")
    seen = []

    @register(atomic=True)
    def work() -> None:
        Group.objects.create(name="effect")
        seen.extend(at_once(1, lambda: (effects(), Job.objects.count())))

    work.dispatch()
    worker.work_once(now=clock.now)
    assert seen == [([], 1)]


def test_a_handler_that_raises_undoes_its_own_writes_only(
    database: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    @register(atomic=True, max_attempts=2, backoff=10)
    def work() -> None:
        Group.objects.create(name="effect")
        raise ValueError("after the write")

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts, job.errors[0].message) == ("scheduled", 1, "after the write")
    assert effects() == []
    worker.work_once(now=clock.tick(11))
    assert effects() == []
    assert FailedJob.objects.get().job_id == job_id
    assert [sent["dead_lettered"] for sent in heard.all("job_failed")] == [False, True]


@pytest.mark.parametrize("ends_with", ["release", "fail"])
def test_what_a_handler_asks_of_its_job_undoes_its_writes_too(
    database: Driver, worker: Worker, clock: Clock, register: Register, ends_with: str
) -> None:
    @register(atomic=True, takes_context=True)
    def work(context: JobContext) -> None:
        Group.objects.create(name="effect")
        if ends_with == "release":
            context.release(60)
        context.fail("on purpose")

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts) == {"release": ("scheduled", 0), "fail": ("failed", 1)}[ends_with]
    assert effects() == []


@pytest.mark.parametrize("mode", ["raise", "release"])
def test_a_failure_is_written_under_the_lock_of_the_handlers_transaction(
    database: Driver, worker: Worker, clock: Clock, register: Register, mode: str
) -> None:
    """Between the handler's end and the outcome nobody else can take the job: there is one transaction."""
    begun = []

    def count_begins(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(("SAVEPOINT", "ROLLBACK TO", "UPDATE", "INSERT", "DELETE")):
            begun.append((sql.split()[0], connection.in_atomic_block))
        return execute(sql, params, many, context)

    @register(atomic=True, takes_context=True, max_attempts=3, backoff=0)
    def work(context: JobContext) -> None:
        begun.clear()
        if mode == "release":
            context.release()
        raise ValueError

    work.dispatch()
    with connection.execute_wrapper(count_begins):
        worker.work_once(now=clock.now)
    assert begun
    assert all(inside for _, inside in begun)


def test_a_job_that_was_lost_before_its_start_is_not_run(
    database: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    @register(atomic=True)
    def work() -> None:
        Group.objects.create(name="effect")

    job_id = work.dispatch().id

    def steal_first(**sent: Any) -> None:
        steal(database, clock)

    from django_jobqueue.signals import job_starting

    job_starting.connect(steal_first)
    try:
        worker.work_once(now=clock.now)
    finally:
        job_starting.disconnect(steal_first)
    assert effects() == []
    job = get_job(job_id)
    assert job is not None
    assert job.state == "ready"
    assert heard.names()[-1] == "job_lost"
    assert (worker.stats.processed, worker.stats.lost) == (0, 1)


def test_when_the_end_is_refused_nothing_is_kept(
    database: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    @register(atomic=True)
    def work() -> None:
        Group.objects.create(name="effect")

    work.dispatch()
    monkeypatch.setattr(database, "settle", lambda settlements, **given: set())
    worker.work_once(now=clock.now)
    assert effects() == []
    assert (worker.stats.processed, worker.stats.lost) == (0, 1)
    assert heard.names()[-1] == "job_lost"


def test_an_end_that_cannot_be_stored_undoes_the_effects(
    database: Driver, worker: Worker, clock: Clock, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    @register(atomic=True, max_attempts=3)
    def work() -> None:
        Group.objects.create(name="effect")

    job_id = work.dispatch().id
    settle = database.settle
    refused = [IntegrityError("once")]

    def refuse_once(settlements: Any, **given: Any) -> Any:
        if refused:
            raise refused.pop()
        return settle(settlements, **given)

    monkeypatch.setattr(database, "settle", refuse_once)
    worker.work_once(now=clock.now)
    assert effects() == []
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("scheduled", 1)


def test_a_transaction_that_is_left_open_is_rolled_back_and_fails_the_attempt(
    database: Driver, worker: Worker, clock: Clock, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    @register(atomic=True, max_attempts=1)
    def work() -> None:
        transaction.atomic().__enter__()
        Group.objects.create(name="effect")

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    assert not connection.in_atomic_block
    assert connection.get_autocommit()
    assert effects() == []
    job = get_job(job_id)
    assert job is not None
    assert job.state == "failed"
    assert "left a transaction open" in job.errors[0].message


def test_an_error_swallowed_inside_the_transaction_does_not_count_as_success(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(atomic=True, max_attempts=1)
    def work() -> None:
        Group.objects.create(name="effect")
        try:
            with transaction.atomic(savepoint=False):
                Group.objects.create(name="effect")
        except IntegrityError:
            pass

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    assert effects() == []
    job = get_job(job_id)
    assert job is not None
    assert job.state == "failed"


def test_a_connection_that_the_handler_closes_fails_the_attempt(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(atomic=True, max_attempts=1)
    def work() -> None:
        Group.objects.create(name="effect")
        connection.close()

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    assert effects() == []
    job = get_job(job_id)
    assert job is not None
    assert job.state == "failed"


def test_a_transaction_that_the_database_ended_fails_the_attempt_by_its_token(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """As after a deadlock: what the handler raised is kept although its transaction is gone."""
    if connection.vendor == "sqlite":
        pytest.skip("has no sessions that another could end")
    kill = {"postgresql": "SELECT pg_terminate_backend(pg_backend_pid())", "mysql": "KILL CONNECTION_ID()"}

    @register(atomic=True, max_attempts=2, backoff=60)
    def work() -> None:
        Group.objects.create(name="effect")
        with connection.cursor() as cursor:
            cursor.execute(kill[connection.vendor])
            cursor.execute("SELECT 1")

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    assert effects() == []
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("scheduled", 1)
    assert job.errors[0].exception_class == "django.db.utils.OperationalError"


def test_an_on_commit_callback_that_raises_makes_a_dead_letter_and_keeps_the_effects(
    database: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    """F33: another attempt would double the effects."""

    @register(atomic=True, max_attempts=5, queue="mail", priority=4)
    def work() -> None:
        Group.objects.create(name="effect")
        transaction.on_commit(lambda: 1 / 0)

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    assert effects() == ["effect"]
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts, job.queue) == ("failed", 1, "mail")
    assert job.errors[0].exception_class == "ZeroDivisionError"
    assert heard.one("job_failed")["dead_lettered"] is True
    assert (worker.stats.processed, worker.stats.failed) == (0, 1)


def test_a_durable_block_is_an_error_in_an_atomic_job(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(atomic=True, max_attempts=1)
    def work() -> None:
        with transaction.atomic(durable=True):
            Group.objects.create(name="effect")

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.errors[0].exception_class) == ("failed", "RuntimeError")


def test_a_durable_block_works_in_every_other_job(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register()
    def work() -> None:
        with transaction.atomic(durable=True):
            Group.objects.create(name="effect")

    work.dispatch()
    worker.work_once(now=clock.now)
    assert effects() == ["effect"]


def test_jobs_dispatched_by_an_atomic_job_exist_when_it_commits_only(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register()
    def follow() -> None: ...

    @register(atomic=True, max_attempts=2, backoff=0)
    def work() -> None:
        follow.dispatch()
        if Group.objects.count() == 0:
            raise ValueError

    work.dispatch()
    worker.work_once(now=clock.now)
    assert not Job.objects.filter(name="tests.follow").exists()
    Group.objects.create(name="there")
    worker.work_once(now=clock.tick())
    assert Job.objects.filter(name="tests.follow").count() == 1


def test_an_async_handler_is_part_of_the_transaction(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(atomic=True, max_attempts=1)
    async def work(fails: bool) -> None:
        await Group.objects.acreate(name=f"effect-{fails}")
        if fails:
            raise ValueError

    work.dispatch(True)
    work.dispatch(False)
    while worker.work_once(now=clock.now):
        pass
    assert effects() == ["effect-False"]
    assert FailedJob.objects.count() == 1


def test_an_atomic_job_on_a_store_without_transactions_fails_with_the_cure(
    memory: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(atomic=True, max_attempts=1)
    def work() -> None:
        raise AssertionError

    with pytest.raises(InvalidOption, match="atomic=True"):
        work.dispatch()
    stored = new("tests.work", max_attempts=1)  # before the handler became atomic
    memory.push([stored])
    worker.work_once(now=clock.now)
    job = get_job(stored.id)
    assert job is not None
    assert (job.state, job.errors[0].exception_class) == ("failed", "django_jobqueue.exceptions.InvalidConnection")
    assert "atomic=True" in job.errors[0].message


def test_an_unreadable_payload_of_an_atomic_job_fails_like_any_other(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(atomic=True, max_attempts=1)
    def work() -> None: ...

    job_id = work.dispatch().id
    Job.objects.update(payload="{")
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert job.errors[0].exception_class == "django_jobqueue.exceptions.InvalidPayload"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_is_raised_fails_the_job_and_the_next_one_runs(
    database: Driver, worker: Worker, clock: Clock, register: Register, error: BaseException
) -> None:
    """F25"""

    @register(atomic=True, max_attempts=1)
    def work(fails: bool) -> None:
        Group.objects.create(name=f"effect {fails}")
        if fails:
            raise error

    work.dispatch(True)
    work.dispatch(False)
    while worker.work_once(now=clock.now):
        pass
    assert FailedJob.objects.get().exception_class.endswith(type(error).__name__)
    assert effects() == ["effect False"]


def test_a_failed_job_keeps_none_of_its_objects_alive(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F58"""
    watched: list[weakref.ref[Load]] = []
    alive = []

    @register(atomic=True, max_attempts=1)
    def work() -> None:
        alive.append([reference() for reference in watched if reference() is not None])
        load = Load()
        watched.append(weakref.ref(load))
        raise ValueError("with a local")

    for _ in range(3):
        work.dispatch()
    gc.collect()
    gc.disable()
    try:
        while worker.work_once(now=clock.now):
            pass
    finally:
        gc.enable()
    assert alive == [[], [], []]
