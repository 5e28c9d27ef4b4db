"""queue_move: a queue changes its store, and no job is lost on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobqueue.drivers import Driver, connections
from django_jobqueue.exceptions import InvalidConnection
from django_jobqueue.jobs.flows import Callbacks, Flow, Step, readable
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import NewBatch, ReserveLimit
from django_jobqueue.operations import moving
from tests.drivers.contract import ids, new
from tests.edges.commands import run
from tests.helpers.redis import REDIS, entry, wipe

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture(params=["memory", REDIS])
def target(request: pytest.FixtureRequest, transactional_db: None, settings: Any) -> Iterator[Driver]:
    """The connection "other"; the jobs are in the database, on "default"."""
    options = {"DRIVER": "memory"} if request.param == "memory" else entry()
    settings.JOBQUEUE = {
        "CONNECTIONS": {"default": {"DRIVER": "database"}, "other": options},
        "QUEUES": {"mail": {"CONNECTION": "other"}},
        "KEEP_RESULTS": 60,  # of cancelled jobs too, which those that move are not
    }
    yield connections["other"]
    if request.param == "redis":
        wipe(connections["other"])


def move(source: str = "default", target: str = "other", queue: str = "mail", **more: Any) -> Any:
    return moving.move(queue, source=source, target=target)


def test_ready_and_scheduled_jobs_arrive_as_they_were(target: Driver) -> None:
    source = connections["default"]
    ready = new("a", queue="mail", rank=-5, max_attempts=4, metadata='{"user":7}', masked="[]", payload='{"a":1}')
    late, other = new("b", queue="mail", delay=3600), new("c")
    source.push([ready, late, other])
    due = source.get(late.id)
    assert due is not None
    assert move().moved == 2
    assert source.get_result(ready.id) is None
    first, second = target.waiting("mail", limit=9)
    assert (first.id, first.priority, first.max_attempts, first.metadata) == (ready.id, 5, 4, '{"user":7}')
    assert (first.payload, first.masked, first.state) == ('{"a":1}', "[]", "ready")
    assert (second.id, second.state, second.available_at) == (late.id, "scheduled", due.available_at)
    assert source.queues() == ["default"]


def test_what_follows_a_job_goes_with_it_and_to_the_new_connection_when_it_is_of_the_queue(target: Driver) -> None:
    steps = (Step("default", new("next", queue="mail")), Step("default", new("other", queue="slow")))
    connections["default"].push([new(queue="mail", flow=Flow(steps=steps).write())])
    assert move().moved == 1
    (record,) = target.waiting("mail", limit=9)
    assert [(step.job.name, step.connection) for step in readable(record.flow).steps] == [
        ("next", "other"),
        ("other", "default"),
    ]


def test_an_atomic_job_is_refused_where_no_transaction_includes_it(target: Driver, register: Register) -> None:
    @register(atomic=True)
    def book() -> None: ...

    source = connections["default"]
    source.push([new(book.definition.name, queue="mail")])
    with pytest.raises(InvalidConnection, match="is atomic"):
        move()
    assert len(source.waiting("mail", limit=9)) == 1


def test_a_member_of_a_batch_is_refused_and_stays(target: Driver) -> None:
    source = connections["default"]
    batch = NewBatch(id=new_job_id(), name="", metadata="", allow_failures=False, callbacks=Callbacks().write())
    member = new(queue="mail", flow=Flow(batch=batch.id).write())
    source.create_batch(batch, [member.id])
    source.push([member])
    with pytest.raises(InvalidConnection, match=f"{member.id} is a member of the batch {batch.id}"):
        move()
    assert [record.id for record in source.waiting("mail", limit=9)] == [member.id]
    assert target.queues() == []


def test_they_may_be_moved_back(target: Driver) -> None:
    jobs = [new(queue="mail") for _ in range(moving.PAGE + 3)]
    connections["default"].push(jobs)
    assert move().moved == len(jobs)
    assert move("other", "default").moved == len(jobs)
    assert target.queues() == []
    assert {job.id for job in connections["default"].waiting("mail", limit=500)} == ids(jobs)


def test_killed_half_way_and_run_again_it_loses_none_and_doubles_none(
    target: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = connections["default"]
    jobs = [new(queue="mail") for _ in range(5)]
    source.push(jobs)
    cancel, done = source.cancel, []

    def killed(job_id: Any) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(job_id)
        return cancel(job_id)

    with monkeypatch.context() as patched:
        patched.setattr(source, "cancel", killed)
        with pytest.raises(KeyboardInterrupt):
            move()
    assert move().moved == 3
    assert source.queues() == []
    assert sorted(job.id for job in target.waiting("mail", limit=9)) == sorted(ids(jobs))


@pytest.mark.parametrize("target", [REDIS], indirect=True)
def test_a_job_whose_removal_was_answered_in_vain_stays_at_its_new_place(
    target: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends the call again, and the second finds no job, as where a worker is faster."""
    from django_jobqueue.drivers.redis.scripts import SCRIPTS

    job = new(queue="mail")
    target.push([job])
    run = SCRIPTS["cancel"].run
    monkeypatch.setattr(SCRIPTS["cancel"], "run", lambda *given: [run(*given), run(*given)][1])
    assert move("other", "default").moved == 1
    assert target.queues() == []
    assert [record.id for record in connections["default"].waiting("mail", limit=9)] == [job.id]


def test_a_job_that_a_worker_takes_meanwhile_ends_where_it_is(target: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    source = connections["default"]
    source.push([new("taken", queue="mail"), new("moved", queue="mail")])
    waiting = source.waiting

    def overtaken(queue: str, *, limit: int) -> Any:
        found = waiting(queue, limit=limit)
        source.reserve(queue, "w1", ReserveLimit(rows=1, max_attempts=3), retry_after=90)
        return found

    monkeypatch.setattr(source, "waiting", overtaken)
    result = move()
    assert (result.moved, result.reserved) == (1, 1)
    assert [job.name for job in target.waiting("mail", limit=9)] == ["moved"]


def test_a_moved_job_has_the_time_for_retries_that_its_handler_says(target: Driver, register: Register) -> None:
    @register(name="tests.limited", retry_until=60, queue="mail")
    def limited() -> None: ...

    limited.using(connection="default").dispatch()
    move()
    (held,) = target.reserve("mail", "w1", ReserveLimit(rows=1, max_attempts=3), retry_after=90).jobs
    assert held.retry_until is not None
    assert held.attempt == 1


@pytest.mark.parametrize("target", [REDIS], indirect=True)  # no other process sees the memory of this one
def test_the_command_says_what_it_did_and_what_is_left_to_do(target: Driver) -> None:
    connections["default"].push([new(queue="mail"), new()])
    ran = run("queue_move", "mail", "--from", "default", "--to", "other")
    assert (ran.code, ran.lines, ran.err) == (0, ["Moved 1 job of the queue 'mail' from 'default' to 'other'."], "")
    ran = run("queue_move", "default", "--from", "default", "--to", "other", "--json")
    assert ran.records[0]["moved"] == 1
    assert "New jobs do not go there yet" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mail", "--from", "default", "--to", "default"), "already"),
        (("mail", "--from", "default", "--to", "absent"), "no queue connection 'absent'"),
        (("a,b", "--from", "default", "--to", "other"), "lists of queues"),
    ],
)
def test_what_cannot_be_moved_is_refused(
    transactional_db: None, settings: Any, arguments: tuple[str, ...], said: str
) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "other": {"DRIVER": "database"}}}
    ran = run("queue_move", *arguments)
    assert ran.code != 0
    assert said in ran.error


@pytest.mark.parametrize("source", ["default", "other"])
def test_more_than_fits_in_one_statement_arrives_bit_by_bit(
    target: Driver, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a crash leaves fewer jobs in both places; and MariaDB takes 16 MiB at once."""
    old, new_place = connections[source], connections["default" if source == "other" else "other"]
    old.push([new(queue="mail", payload="x" * 900_000) for _ in range(20)])
    pushed: list[int] = []
    push = new_place.push

    def record(jobs: Any, **given: Any) -> Any:
        pushed.append(len(jobs))
        return push(jobs, **given)

    monkeypatch.setattr(new_place, "push", record)
    assert move(source, new_place.alias).moved == 20
    assert pushed == [4] * 5
    assert new_place.sizes()["mail"].ready == 20
    assert old.queues() == []
