"""get_job: one job by its id, wherever it is, and cancelling it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobqueue import InvalidConnection, InvalidOption, chain, get_job
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.registry import registry
from django_jobqueue.operations import keeping
from django_jobqueue.operations.lookup import cancel
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.listening import Heard

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def plain(register: Register) -> Any:
    @register()
    def plain() -> None: ...

    return plain


def test_a_job_is_found_in_each_of_its_states(driver: Driver, worker: Worker, clock: Clock, register: Register) -> None:
    states: list[Any] = []

    @register(max_attempts=2, backoff=60)
    def work() -> None:
        states.append(look())
        raise ValueError("no stock")

    def look() -> tuple[str, int, int]:
        job = get_job(job_id)
        assert job is not None
        return job.state, job.attempts, len(job.errors)

    job_id = work.using(delay=300).dispatch().id
    states.append(look())
    driver.stage("default", now=clock.tick(300))
    states.append(look())
    worker.work_once(now=clock.now)
    states.append(look())
    worker.work_once(now=clock.tick(61))
    states.append(look())
    assert states == [
        ("scheduled", 0, 0),
        ("ready", 0, 0),
        ("reserved", 1, 0),
        ("scheduled", 1, 1),
        ("reserved", 2, 1),
        ("failed", 2, 2),
    ]


def test_a_job_that_succeeded_is_none(driver: Driver, worker: Worker, plain: Any) -> None:
    job_id = plain.dispatch().id
    worker.work_once()
    assert get_job(job_id) is None


def test_a_job_that_never_was_is_none(driver: Driver) -> None:
    assert get_job(new_job_id()) is None


def test_a_job_tells_of_itself(driver: Driver, register: Register) -> None:
    @register(max_attempts=4)
    def work() -> None: ...

    job_id = work.using(queue="mail", metadata={"user": 7}).dispatch().id
    job = get_job(job_id)
    assert job is not None
    assert (job.id, job.name, job.queue, job.connection) == (job_id, "tests.work", "mail", "default")
    assert (job.max_attempts, job.errors, job.metadata) == (4, (), {"user": 7})


def test_errors_are_kept_in_order_and_over_a_retry(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(max_attempts=2, backoff=0)
    def work() -> None:
        raise ValueError

    job_id = work.dispatch().id
    while worker.work_once(now=clock.tick()):
        pass
    driver.retry({driver.last_failed_number(): None}, now=clock.now)
    worker.work_once(now=clock.tick())
    job = get_job(job_id)
    assert job is not None
    assert [error.number for error in job.errors] == [1, 2, 1]
    assert job.attempts == 1


@pytest.mark.parametrize("form", [str, lambda job_id: job_id.hex, lambda job_id: str(job_id).upper()])
def test_an_id_may_be_text(memory: Driver, plain: Any, form: Callable[[Any], str]) -> None:
    job_id = plain.dispatch().id
    job = get_job(form(job_id))
    assert job is not None
    assert job.id == job_id


@pytest.mark.parametrize("wrong", ["", "7", "nope", 7, None, b"x"])
def test_what_is_no_id_is_refused(memory: Driver, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="is no job id; pass the UUID that dispatch returned"):
        get_job(wrong)


def test_each_connection_is_asked_in_order_unless_one_is_named(settings: Any, plain: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}, "fast": {"DRIVER": "memory"}}}
    job_id = plain.using(connection="fast").dispatch().id
    job = get_job(job_id)
    assert job is not None
    assert job.connection == "fast"
    assert get_job(job_id, connection="fast") is not None
    assert get_job(job_id, connection="default") is None
    with pytest.raises(InvalidConnection, match="'nope'"):
        get_job(job_id, connection="nope")


def test_a_job_that_a_retry_moves_meanwhile_is_found(
    driver: Driver, worker: Worker, clock: Clock, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the jobs and that at the dead letters."""

    @register(max_attempts=1)
    def work() -> None:
        raise ValueError

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    get = driver.get
    looks: list[Any] = []

    def get_between(wanted: Any) -> Any:
        looks.append(wanted)
        return None if len(looks) == 1 else get(wanted)

    monkeypatch.setattr(driver, "get", get_between)
    assert get_job(job_id) is not None


@pytest.mark.parametrize("text", ["{", "[1]", '{"$type":"gone","value":1}', "null"])
def test_metadata_that_cannot_be_read_hides_no_job(database: Driver, plain: Any, text: str) -> None:
    """F64"""
    from django_jobqueue.models import Job

    job_id = plain.using(metadata={"a": 1}).dispatch().id
    Job.objects.update(metadata=text)
    job = get_job(job_id)
    assert job is not None
    assert job.metadata == {}


# Cancelling


@pytest.mark.parametrize("delay", [0, 60])
def test_a_job_that_waits_can_be_cancelled(driver: Driver, plain: Any, heard: Heard, delay: float) -> None:
    job_id = plain.using(queue="mail", delay=delay).dispatch().id
    job = get_job(job_id)
    assert job is not None
    assert job.cancel() is True
    assert get_job(job_id) is None
    assert heard.one("job_cancelled") == {
        "id": job_id,
        "name": "tests.plain",
        "queue": "mail",
        "connection": "default",
        "driver": driver.name,
        "sender": type(driver),
    }
    assert job.cancel() is False
    assert len(heard.all("job_cancelled")) == 1


def test_a_cancelled_job_that_keeps_its_result_says_so(driver: Driver, register: Register, heard: Heard) -> None:
    @register(keep_result=60)
    def work(number: int) -> None: ...

    job_id = work.using(metadata={"a": 1}).dispatch(7).id
    job = get_job(job_id)
    assert job is not None
    assert job.cancel() is True
    found = get_job(job_id)
    assert found is not None
    assert (found.state, found.has_ended, found.attempts, found.metadata) == ("cancelled", True, 0, {"a": 1})
    assert (found.result, found.started_at) == (None, None)
    assert found.result_error == "The job was cancelled before it came to an end."
    assert found.finished_at is not None
    assert found.cancel() is False
    assert len(heard.all("job_cancelled")) == 1


@pytest.mark.parametrize(("own", "is_kept"), [({}, True), ({"keep_result": 0}, False)])
def test_the_setting_keeps_cancelled_jobs_that_do_not_say_otherwise(
    memory: Driver, register: Register, settings: Any, own: dict[str, Any], is_kept: bool
) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "KEEP_RESULTS": 60}

    @register(**own)
    def work() -> None: ...

    job_id = work.dispatch().id
    assert cancel(job_id, connection="default")
    assert (get_job(job_id) is not None) is is_kept


def test_a_job_of_a_handler_that_is_gone_is_cancelled_and_kept_as_the_setting_says(
    memory: Driver, register: Register, settings: Any
) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "KEEP_RESULTS": 60}

    @register()
    def work() -> None: ...

    job_id = work.dispatch().id
    registry.unregister(work.definition.name)
    assert cancel(job_id, connection="default")
    found = get_job(job_id)
    assert found is not None
    assert found.state == "cancelled"


def test_job_modules_that_are_broken_keep_nobody_from_cancelling(
    memory: Driver, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> None:
        raise ImportError

    monkeypatch.setattr(keeping, "load_handlers", load)
    job_id = plain.dispatch().id
    assert cancel(job_id, connection="default")


def test_the_step_of_a_chain_that_is_cancelled_is_kept_and_those_behind_it_never_were(
    driver: Driver, register: Register, worker: Worker
) -> None:
    @register(keep_result=60)
    def work() -> None: ...

    first, second = chain(work.s(), work.s()).dispatch().ids
    assert cancel(first, connection="default")
    assert not worker.work_once()
    found = get_job(first)
    assert found is not None
    assert found.state == "cancelled"
    assert get_job(second) is None


def test_a_running_job_is_not_cancelled(driver: Driver, worker: Worker, register: Register, heard: Heard) -> None:
    answers: list[bool] = []

    @register()
    def work() -> None:
        job = get_job(job_id)
        assert job is not None
        answers.append(job.cancel())

    job_id = work.dispatch().id
    worker.work_once()
    assert answers == [False]
    assert heard.all("job_cancelled") == []
    assert worker.stats.processed == 1


def test_a_dead_letter_is_not_cancelled(driver: Driver, worker: Worker, register: Register) -> None:
    @register(max_attempts=1)
    def work() -> None:
        raise ValueError

    job_id = work.dispatch().id
    worker.work_once()
    assert cancel(job_id, connection="default") is False
    assert get_job(job_id) is not None


def test_an_unknown_connection_of_a_look_is_named(settings: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    assert list(connections) == ["default"]
    with pytest.raises(InvalidConnection):
        cancel(new_job_id(), connection="nope")
