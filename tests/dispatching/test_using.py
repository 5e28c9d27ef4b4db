"""using: the options of one dispatch, and jobs that are known by name only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobqueue import (
    InvalidOption,
    InvalidPayload,
    UnknownJob,
    adispatch,
    dispatch,
    dispatch_later,
    dispatch_many,
    get_job,
    using,
)
from django_jobqueue.dispatching.handler import NamedJob
from django_jobqueue.drivers import Driver
from tests.helpers.stored import stored

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


# using


def test_using_gives_options_to_one_dispatch_and_leaves_the_handler_alone(memory: Driver, register: Register) -> None:
    @register(queue="mail", priority=3)
    def plain() -> None: ...

    changed = plain.using(queue="low", priority=-5, metadata={"user": 7})
    first, second = stored(memory, changed.dispatch().id), stored(memory, plain.dispatch().id)
    assert (first.queue, first.priority, first.metadata) == ("low", -5, '{"user":7}')
    assert (second.queue, second.priority, second.metadata) == ("mail", 3, "")


def test_using_adds_to_what_was_given_before(memory: Driver, register: Register) -> None:
    @register()
    def plain() -> None: ...

    record = stored(memory, plain.using(queue="low").using(priority=5).using(queue="mail").dispatch().id)
    assert (record.queue, record.priority) == ("mail", 5)


def test_an_option_of_none_takes_back_what_was_given(memory: Driver, register: Register) -> None:
    @register()
    def plain() -> None: ...

    moment = datetime(2090, 1, 1, tzinfo=UTC)
    record = stored(memory, plain.using(delay=60).using(delay=None, available_at=moment).dispatch().id)
    assert record.available_at == moment


def test_a_delay_makes_a_scheduled_job(driver: Driver, register: Register) -> None:
    @register()
    def plain() -> None: ...

    for delay in (60, 60.0, timedelta(minutes=1)):
        record = stored(driver, plain.using(delay=delay).dispatch().id)
        assert record.state == "scheduled"
        assert record.available_at - record.created_at == timedelta(seconds=60)


@pytest.mark.parametrize("zero", [0, 0.0, timedelta(0)])
def test_a_delay_of_zero_is_a_delay_of_zero(driver: Driver, register: Register, zero: Any) -> None:
    """F42"""

    @register()
    def plain() -> None: ...

    record = stored(driver, plain.using(delay=zero).dispatch().id)
    assert (record.state, record.available_at) == ("ready", record.created_at)


def test_a_priority_of_zero_is_a_priority(memory: Driver, register: Register) -> None:
    """F42"""

    @register(priority=5)
    def plain() -> None: ...

    assert stored(memory, plain.using(priority=0).dispatch().id).priority == 0


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"delay": -1}, "delay must be between"),
        ({"delay": float("nan")}, "delay must be between"),
        ({"delay": "60"}, "delay must be seconds or a timedelta"),
        ({"delay": True}, "delay must be seconds or a timedelta"),
        ({"delay": 10**12}, "100 years"),
        ({"delay": 0, "available_at": datetime(2030, 1, 1, tzinfo=UTC)}, "say the same thing twice"),
        ({"available_at": datetime(2030, 1, 1, tzinfo=UTC).date()}, "must be a datetime"),
        ({"available_at": 60}, "for seconds from now use delay"),
        ({"priority": 101}, "from -100 to 100"),
        ({"priority": 1.5}, "whole number"),
        ({"queue": ""}, "must not be empty"),
        ({"queue": "a,b"}, "','"),
        ({"queue": "mail "}, "space"),
        ({"queue": "x" * 101}, "100"),
        ({"connection": "nope"}, "There is no connection 'nope'"),
        ({"metadata": [1]}, "metadata must be a dictionary"),
        ({"max_attempts": 3}, "using.. has no option 'max_attempts'"),
        ({"nope": 1}, "it takes delay, available_at, queue, priority, connection, metadata"),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_once(
    memory: Driver, register: Register, given: dict[str, Any], complaint: str
) -> None:
    @register()
    def plain() -> None: ...

    with pytest.raises(InvalidOption, match=complaint):
        plain.using(**given)
    with pytest.raises(InvalidOption, match=complaint):
        using("tests.plain", **given)
    assert memory.queues() == []


def test_delay_and_available_at_are_refused_over_several_calls_too(register: Register) -> None:
    @register()
    def plain() -> None: ...

    with pytest.raises(InvalidOption, match="say the same thing twice"):
        plain.using(delay=1).using(available_at=datetime(2030, 1, 1, tzinfo=UTC))


def test_metadata_is_refused_like_arguments(memory: Driver, register: Register) -> None:
    @register()
    def plain() -> None: ...

    with pytest.raises(InvalidPayload, match="metadata"):
        plain.using(metadata={"when": {1, 2}}).dispatch()
    with pytest.raises(InvalidPayload, match="PAYLOAD_LIMIT"):
        plain.using(metadata={"much": "x" * 2_000_000}).dispatch()
    assert memory.queues() == []


def test_metadata_is_what_it_was_when_it_was_given(memory: Driver, register: Register) -> None:
    @register()
    def plain() -> None: ...

    given = {"user": 1}
    handler = plain.using(metadata=given)
    given["user"] = 2
    found = get_job(handler.dispatch().id)
    assert found is not None
    assert found.metadata == {"user": 1}


# Jobs known by name


def test_a_name_is_looked_up_at_each_dispatch(memory: Driver, register: Register) -> None:
    later = using("tests.late", queue="low")
    assert isinstance(later, NamedJob)
    with pytest.raises(UnknownJob, match=r"'tests\.late'"):
        later.dispatch(1)

    @register()
    def late(number: int) -> None: ...

    record = stored(memory, later.dispatch(1).id)
    assert (record.name, record.queue) == ("tests.late", "low")


def test_an_unknown_name_is_refused_with_near_misses(memory: Driver, register: Register) -> None:
    @register(name="receipts.send")
    def plain() -> None: ...

    with pytest.raises(UnknownJob, match=r"Did you mean 'receipts\.send'"):
        dispatch("receipt.send", 1)
    with pytest.raises(UnknownJob):
        dispatch_later(5, "receipt.send", 1)
    with pytest.raises(UnknownJob):
        dispatch_many([using("receipt.send").s(1)])
    with pytest.raises(UnknownJob):
        asyncio.run(adispatch("receipt.send", 1))
    assert memory.queues() == []


@pytest.mark.parametrize("wrong", [None, 7, print, lambda: None, ["tests.plain"], b"tests.plain"])
def test_what_is_no_job_is_refused(memory: Driver, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="takes a handler made by @job, or the name of one"):
        dispatch(wrong)
    with pytest.raises(InvalidOption):
        dispatch_later(5, wrong)
    with pytest.raises(InvalidOption):
        asyncio.run(adispatch(wrong))


def test_a_handler_is_never_refused_as_unknown(memory: Driver, register: Register) -> None:
    """A check warns when its module is not among MODULES."""
    from django_jobqueue.jobs.registry import registry

    @register()
    def plain() -> None: ...

    registry.unregister("tests.plain")
    assert plain.dispatch().stored
