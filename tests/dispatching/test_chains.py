"""The dispatch of chains: everything is checked before anything is stored, and only the first step is a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_jobqueue import PREVIOUS, InvalidOption, InvalidPayload, UnknownJob, batch, chain, get_job, using
from django_jobqueue.drivers import Driver

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def step(register: Register) -> Any:
    @register()
    def step(value: Any = None) -> None: ...

    return step


def waiting(driver: Driver) -> int:
    return sum(size.waiting for size in driver.sizes().values())


def test_only_the_first_step_is_stored(driver: Driver, step: Any) -> None:
    dispatched = chain(step.s(1), step.s(2), step.s(3)).catch(step.s(4)).dispatch()
    assert dispatched.stored
    assert len(set(dispatched.ids)) == 3
    assert [get_job(job_id) is not None for job_id in dispatched.ids] == [True, False, False]
    assert waiting(driver) == 1


def test_a_chain_of_one_step_is_a_plain_job(driver: Driver, step: Any) -> None:
    (job_id,) = chain(step.s(1)).dispatch().ids
    assert get_job(job_id) is not None


def test_an_async_dispatch_does_the_same(memory: Driver, step: Any) -> None:
    from asgiref.sync import async_to_sync

    dispatched = async_to_sync(chain(step.s(1), step.s(2)).adispatch)()
    assert get_job(dispatched.ids[0]) is not None


def test_the_dispatch_of_a_chain_is_one_statement(database: Driver, step: Any) -> None:
    calls = [step.s(number) for number in range(20)]
    with CaptureQueriesContext(connection) as captured:
        chain(*calls).dispatch()
    assert len([query for query in captured.captured_queries if "INSERT" in query["sql"]]) == 1
    assert len(captured) <= 2  # the other tells the workers


def test_a_chain_of_a_transaction_that_is_rolled_back_leaves_nothing(database: Driver, step: Any) -> None:
    def dispatch_and_fail() -> None:
        with transaction.atomic():
            chain(step.s(1), step.s(2)).catch(step.s()).dispatch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dispatch_and_fail()
    assert waiting(database) == 0


REFUSED: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda step: chain(step.s(1), step.s(2, 3)), InvalidPayload, "too many positional arguments"),
    (lambda step: chain(step.s(1), step.s({1})), InvalidPayload, "value: a set is not JSON"),
    (lambda step: chain(step.s(PREVIOUS), step.s()), InvalidPayload, "value: PREVIOUS stands for"),
    (lambda step: chain(step.s(1), step.s()).catch(step.s(b"")), InvalidPayload, "value: bytes are not JSON"),
    (lambda step: chain(step.s(1), using("no.such").s()), UnknownJob, "no.such"),
    (lambda step: chain(step.s(1), *[step.s("x" * 400_000)] * 3), InvalidPayload, "PAYLOAD_LIMIT is 1048576"),
    (
        lambda step: chain(batch([step.s("x" * 400_000)] * 3), step.s(1)),
        InvalidPayload,
        "The batch that the chain begins with",
    ),
]


@pytest.mark.parametrize(("make", "error", "text"), REFUSED, ids=[str(index) for index in range(len(REFUSED))])
def test_a_step_that_cannot_be_stored_refuses_the_whole_chain(
    database: Driver, step: Any, make: Callable[[Any], Any], error: type[Exception], text: str
) -> None:
    with CaptureQueriesContext(connection) as captured, pytest.raises(error, match=text):
        make(step).dispatch()
    assert len(captured) == 0


@pytest.mark.parametrize(
    "make", [lambda step: chain(), lambda step: chain(step), lambda step: chain(step.s()).catch(7)]
)
def test_what_is_no_call_is_refused(make: Callable[[Any], Any], step: Any) -> None:
    with pytest.raises(InvalidOption, match=r"send_receipt\.s\(7\)"):
        make(step)


def test_previous_outside_of_a_chain_is_refused(memory: Driver, step: Any) -> None:
    with pytest.raises(InvalidPayload, match="only the steps of a chain"):
        step.dispatch([PREVIOUS])


def test_what_is_changed_after_the_dispatch_does_not_reach_a_later_step(
    memory: Driver, step: Any, register: Register
) -> None:
    seen = []

    @register()
    def look(items: list[int]) -> None:
        seen.append(items)

    from django_jobqueue.running.worker import Worker

    items = [1]
    chain(step.s(), look.s(items)).dispatch()
    items.append(2)
    worker = Worker(drivers=[memory])
    assert worker.work_once()
    assert worker.work_once()
    assert seen == [[1]]
