"""Dispatching to Redis, which no transaction of a database includes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

pytest.importorskip("django_redis", reason="django-redis is not installed")

from redis.exceptions import ConnectionError

from django_jobqueue import batch, chain, dispatch_many, get_batch, progress_token
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.exceptions import InvalidOption, InvalidPayload
from django_jobqueue.jobs import chunks
from django_jobqueue.operations.progress import HowFar, how_far
from django_jobqueue.running.timeouts import TimedOut
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.redis import entry, wipe

pytestmark = [pytest.mark.redis, pytest.mark.django_db(transaction=True)]

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def redis(settings: Any) -> Iterator[Driver]:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": entry(), "rows": {"DRIVER": "database"}}}
    yield connections["default"]
    wipe(connections["default"])


@pytest.fixture
def echo(register: Register) -> Any:
    @register()
    def echo(*args: Any, **kwargs: Any) -> None: ...

    return echo


def count(driver: Driver) -> int:
    return sum(size.ready + size.scheduled for size in driver.sizes().values())


class Failure(Exception):
    """What makes a transaction roll back."""


def test_a_job_is_there_after_the_outermost_commit_and_not_before(redis: Driver, echo: Any) -> None:
    """F32"""
    with transaction.atomic():
        Group.objects.create(name="row")
        with transaction.atomic():
            echo.dispatch()
            dispatch_many([echo.s(1), echo.s(2)])
        assert count(redis) == 0
    assert count(redis) == 3


def test_a_job_of_a_transaction_or_a_savepoint_that_rolls_back_never_was(redis: Driver, echo: Any) -> None:
    """F32"""
    with suppress(Failure), transaction.atomic():
        echo.dispatch()
        raise Failure
    with transaction.atomic():
        kept = echo.dispatch("kept")
        with suppress(Failure), transaction.atomic():
            echo.dispatch("undone")
            dispatch_many([echo.s(1)])
            raise Failure
    assert [record.id for record in redis.peek("default", limit=9)] == [kept.id]


@pytest.mark.parametrize("of", ["job", "batch", "chain"])
def test_what_waits_for_the_commit_is_waiting_on_a_page_too(redis: Driver, echo: Any, of: str) -> None:
    work = {"job": echo.using(), "batch": batch([echo.s()]), "chain": chain(echo.s(), echo.s())}[of]
    with transaction.atomic():
        token = progress_token(work.dispatch())
        assert how_far(token) == HowFar("waiting")
    found = how_far(token)
    assert found is not None
    assert found.state == "waiting"


def test_many_calls_keep_their_options_until_the_commit(redis: Driver, echo: Any) -> None:
    """F10"""
    with suppress(Failure), transaction.atomic():
        dispatch_many(echo.using(delay=60, queue="mail").s(number) for number in range(3))
        raise Failure
    assert redis.queues() == []
    with transaction.atomic():
        ids = dispatch_many(echo.using(delay=60, queue="mail").s(number) for number in range(3))
    found = [redis.get(job_id) for job_id in ids]
    assert {(record.queue, record.state) for record in found if record} == {("mail", "scheduled")}
    delays = [(record.available_at - record.created_at).total_seconds() for record in found if record]
    assert delays == [60] * 3


def test_a_dispatch_may_be_told_not_to_wait_for_the_commit(redis: Driver, echo: Any) -> None:
    at_once = echo.using(after_commit=False)
    with suppress(Failure), transaction.atomic():
        at_once.dispatch()
        dispatch_many([at_once.s(1), echo.s(2)])
        assert count(redis) == 2
        raise Failure
    assert count(redis) == 2


@pytest.mark.parametrize(
    "work",
    [
        lambda job: chain(job.s(1), job.s(2)),
        lambda job: batch([job.s(1), job.s(2)]),
        lambda job: batch([chain(job.s(1), job.s(2))]),
        lambda job: chain(batch([job.s(1)]), job.s(2)),
    ],
    ids=["chain", "batch", "batch of chains", "chain of batches"],
)
def test_so_may_a_chain_and_a_batch(redis: Driver, echo: Any, work: Any) -> None:
    with suppress(Failure), transaction.atomic():
        work(echo.using(after_commit=False)).dispatch()
        jobs = count(redis)
        assert jobs
        raise Failure
    assert count(redis) == jobs


def test_a_batch_stored_at_once_ends_with_its_jobs(redis: Driver, echo: Any) -> None:
    with suppress(Failure), transaction.atomic():
        stored = batch([echo.using(after_commit=False).s(number) for number in range(2)]).dispatch()
        while Worker().work_once():
            pass
        raise Failure
    found = get_batch(stored.id)
    assert found is not None
    assert (found.total, found.done, found.pending) == (2, 2, 0)


@pytest.mark.parametrize("of", ["batch", "chain"])
def test_the_jobs_of_a_batch_do_not_differ_in_whether_they_wait(redis: Driver, echo: Any, of: str) -> None:
    mixed = batch([echo.using(after_commit=False).s(1), echo.s(2)])
    with pytest.raises(InvalidOption, match=r"after_commit=False .* all of them or to none"):
        (mixed if of == "batch" else chain(mixed, echo.s(3))).dispatch()
    assert count(redis) == 0


def test_a_database_that_joins_the_transaction_does_so_whatever_it_is_told(redis: Driver, echo: Any) -> None:
    with suppress(Failure), transaction.atomic():
        echo.using(connection="rows", after_commit=False).dispatch()
        raise Failure
    assert count(connections["rows"]) == 0


@pytest.mark.parametrize("value", [1, "no"])
def test_after_commit_is_true_or_false(redis: Driver, echo: Any, value: Any) -> None:
    with pytest.raises(InvalidOption, match="after_commit"):
        echo.using(after_commit=value)


@pytest.mark.parametrize("error", [ConnectionError, TimedOut, KeyboardInterrupt])
def test_a_dispatch_that_fails_after_the_commit_is_raised_and_logged_with_all_others(
    redis: Driver,
    register: Register,
    echo: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    """F32: Django calls no other callback after one that raised, so that the first speaks for all."""

    @register(queue="mail", priority=5, sensitive=["password"])
    def invite(name: str, password: str) -> None: ...

    def gone(*given: Any, **more: Any) -> Any:
        raise error("gone")

    monkeypatch.setattr(redis, "push", gone)
    ids: list[Any] = []

    @transaction.atomic
    def work() -> None:
        ids.append(invite.using(metadata={"user": 7}).dispatch("ann", "hunter2").id)
        with suppress(Failure), transaction.atomic():
            echo.dispatch("undone")
            raise Failure
        ids.append(echo.dispatch(1).id)
        ids.extend(dispatch_many([echo.s(2), echo.s(3)]))

    with caplog.at_level(logging.ERROR, logger="django_jobqueue"), pytest.raises(error):
        work()
    lines = [record.getMessage() for record in caplog.records if record.name == "django_jobqueue"]
    for line, job_id in zip(lines, ids, strict=True):
        assert str(job_id) in line
    assert all(part in lines[0] for part in ("tests.invite", "'mail'", "priority 5", '{"user":7}', "ann", "gone"))
    assert "hunter2" not in lines[0]


@pytest.fixture
def lost(
    redis: Driver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[logging.LogRecord]]:
    """What is logged when a store takes so many calls after a commit, batches included, and then is gone."""

    def lost(act: Callable[[], Any], *, after: int = 0) -> list[logging.LogRecord]:
        calls = iter(range(after))

        def taking(method: Callable[..., Any]) -> Callable[..., Any]:
            def take(*given: Any, **more: Any) -> Any:
                if next(calls, None) is None:
                    raise ConnectionError("gone")
                return method(*given, **more)

            return take

        for name in ("push", "create_batch", "join_batch", "close_batch"):
            monkeypatch.setattr(redis, name, taking(getattr(redis, name)))
        with caplog.at_level(logging.ERROR, logger="django_jobqueue"), pytest.raises(ConnectionError):
            transaction.atomic(act)()
        monkeypatch.undo()
        return [record for record in caplog.records if record.name == "django_jobqueue"]

    return lost


Lost = Callable[..., list[logging.LogRecord]]


def test_a_batch_that_fails_after_the_commit_is_logged_with_its_options_and_callbacks(echo: Any, lost: Lost) -> None:
    made: list[Any] = []

    def act() -> None:
        night = batch([echo.s("member")], name="night", metadata={"user": 7}, allow_failures=True)
        night = night.then(echo.using(delay=60).s("T")).catch(echo.s("C", password="hunter2")).finally_(echo.s("F"))
        made.append(night.dispatch())

    whole, member = lost(act)
    assert (whole.event, whole.batch, whole.id, whole.connection) == (
        "dispatch_failed",
        "night",
        str(made[0].id),
        "default",
    )
    text = whole.getMessage()
    assert f"batch {made[0].id} (night) was not stored on 'default' after the commit: gone; 1 jobs" in text
    assert 'metadata {"user":7}, allow_failures True' in text
    then, catch, finally_ = (text.index(f"; {kind} tests.echo [") for kind in ("then", "catch", "finally_"))
    assert "delay 60.0" in text[then:catch]
    assert '"args":["T"]' in text[then:catch]
    assert '"args": ["C"]' in text[catch:finally_]
    assert '"args":["F"]' in text[finally_:]
    assert "hunter2" not in text
    assert "member" in member.getMessage()
    assert member.getMessage().endswith(f"; in the batch {made[0].id}")


def test_a_batch_without_jobs_that_fails_after_the_commit_is_logged(echo: Any, lost: Lost) -> None:
    (whole,) = lost(lambda: batch([]).finally_(echo.s("report")).dispatch())
    assert "0 jobs" in whole.getMessage()
    assert "; finally_ tests.echo [" in whole.getMessage()


def test_a_batch_that_was_stored_and_not_ended_is_not_lost(redis: Driver, echo: Any, lost: Lost) -> None:
    assert lost(lambda: batch([]).finally_(echo.s()).dispatch(), after=1) == []
    assert [closed.record.total for closed in redis.sweep_batches()] == [0]


def test_a_chain_that_fails_after_the_commit_is_logged_with_all_options_of_its_steps(echo: Any, lost: Lost) -> None:
    later = echo.using(delay=77, priority=3, queue="mail", connection="rows", metadata={"user": 7})
    steps = chain(echo.s("first"), later.s("second", token="hunter2"), echo.s("third")).catch(echo.s("caught"))
    (record,) = lost(steps.dispatch)
    text = record.getMessage()
    second, third, catch = (text.index(part) for part in ("; then tests", '"args":["third"]', "; catch tests"))
    assert "'default' after the commit: gone; queue 'default', priority 0, delay None" in text[:second]
    assert '"args":["first"]' in text[:second]
    told = text[second:third]
    assert "connection 'rows', queue 'mail', priority 3, delay 77.0" in told
    assert 'metadata {"user":7}' in told
    assert '"args": ["second"]' in told
    assert '"args":["caught"]' in text[catch:]
    assert "hunter2" not in text


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_a_batch_in_a_chain_that_fails_after_the_commit_is_logged_with_its_jobs(
    echo: Any, lost: Lost, is_first: bool
) -> None:
    inner = batch(
        [echo.using(delay=9).s("one"), chain(echo.s("two", api_key="hunter2"), echo.s("three"))], name="inner"
    )
    steps = [inner.then(echo.s("T")), echo.s("last")]
    (record,) = lost(chain(*(steps if is_first else reversed(steps))).catch(echo.s("caught")).dispatch)
    text = record.getMessage()
    for part in ("batch 'inner', metadata {}, allow_failures False; then tests.echo [", "delay 9.0", '"args":["T"]'):
        assert part in text
    for argument in ("one", "two", "three", "last", "caught"):
        assert f'["{argument}"]' in text
    assert "hunter2" not in text


def test_of_jobs_that_are_stored_in_part_the_others_are_logged(
    redis: Driver, echo: Any, lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 1)
    ids: list[Any] = []
    records = lost(lambda: ids.extend(dispatch_many([echo.s(1), echo.s(2), echo.s(3)])), after=1)
    assert count(redis) == 1
    assert [record.id for record in records] == [str(ids[1]), str(ids[2])]


def test_of_a_batch_that_is_stored_in_part_the_missing_jobs_are_logged_and_what_becomes_of_it(
    redis: Driver, echo: Any, lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 1)
    made: list[Any] = []
    records = lost(lambda: made.append(batch([echo.s(1), echo.s(2), echo.s(3)]).dispatch()), after=2)
    assert count(redis) == 1
    assert [record.id for record in records] == [str(job_id) for job_id in (made[0].id, *made[0].ids[1:])]
    told = records[0].getMessage()
    assert "has 3 new jobs, but 2 of them were not stored on 'default'" in told
    assert f"get_batch('{made[0].id}').cancel()" in told
    found = get_batch(made[0].id)
    assert found is not None
    assert found.cancel() == 3
    assert count(redis) == 0


@pytest.mark.parametrize(("after", "told"), [(0, "did not get its 1 new jobs"), (1, "but 1 of them were not stored")])
def test_jobs_that_could_not_be_added_to_a_batch_are_logged_with_it(
    redis: Driver, echo: Any, lost: Lost, after: int, told: str
) -> None:
    made = batch([echo.s(1)], name="night").dispatch()
    found = get_batch(made.id)
    assert found is not None
    whole, job = lost(lambda: found.add([echo.s("more")]), after=after)
    assert (whole.batch, whole.id) == ("night", str(made.id))
    assert told in whole.getMessage()
    assert job.getMessage().endswith(f"; in the batch {made.id}")


def test_the_error_takes_a_bounded_part_of_a_line(
    redis: Driver, echo: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*given: Any, **more: Any) -> Any:
        raise ConnectionError("gone\n" * 100_000)

    monkeypatch.setattr(redis, "push", gone)
    with caplog.at_level(logging.ERROR, logger="django_jobqueue"), pytest.raises(ConnectionError):
        transaction.atomic(echo.dispatch)()
    (line,) = (record.getMessage() for record in caplog.records if record.name == "django_jobqueue")
    assert len(line) < 1000
    assert "\n" not in line


def test_after_a_failure_the_next_transaction_is_as_any_other(
    redis: Driver, echo: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*given: Any, **more: Any) -> Any:
        raise ConnectionError("gone")

    @transaction.atomic
    def work() -> None:
        echo.dispatch()
        echo.dispatch()

    with monkeypatch.context() as patched:
        patched.setattr(redis, "push", gone)
        with pytest.raises(ConnectionError):
            work()
    caplog.clear()
    with transaction.atomic():
        echo.dispatch()
    assert count(redis) == 1
    assert caplog.records == []


def test_an_atomic_job_is_refused_at_the_dispatch(redis: Driver, register: Register) -> None:
    @register(atomic=True)
    def pay() -> None: ...

    with pytest.raises(InvalidOption, match=r"atomic.*'default'"):
        pay.dispatch()
    assert pay.using(connection="rows").dispatch().stored
    assert count(redis) == 0


@pytest.mark.parametrize("text", ["\ud800", b"\xff.txt".decode(errors="surrogateescape"), "a\x00b"])
def test_text_that_a_database_could_not_carry_is_refused_here_too(redis: Driver, echo: Any, text: str) -> None:
    """F36"""
    with pytest.raises(InvalidPayload):
        echo.dispatch(text)
    with pytest.raises(InvalidPayload):
        echo.dispatch({text: 1})
    assert count(redis) == 0


def test_a_job_runs_with_the_arguments_that_it_was_given(
    redis: Driver, register: Register, worker: Any, clock: Clock
) -> None:
    seen: list[Any] = []

    @register(name="tests.see")
    def see(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))

    see.dispatch("☃ \n\\", {"a": [1, None]}, key="ü")
    assert worker.work_once(now=clock.now)
    assert seen == [(("☃ \n\\", {"a": [1, None]}), {"key": "ü"})]
    assert count(redis) == 0
