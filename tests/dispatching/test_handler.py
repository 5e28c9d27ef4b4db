"""What ``@job`` returns: still the function to whoever looks, and able to be dispatched whatever its parameters."""

from __future__ import annotations

import asyncio
import inspect
import sys
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asgiref.sync
import pytest

from django_jobqueue import (
    Dispatched,
    InvalidOption,
    InvalidPayload,
    UnknownJob,
    adispatch,
    dispatch,
    dispatch_later,
    dispatch_many,
    get_job,
    job,
    using,
)
from django_jobqueue.dispatching.handler import Call, Handler, NamedJob
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.context import JobContext
from django_jobqueue.jobs.payloads import decode

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


def stored(driver: Driver, job_id: Any) -> Any:
    record = driver.get(job_id)
    assert record is not None
    return record


def arguments(driver: Driver, job_id: Any) -> tuple[list[Any], dict[str, Any]]:
    record = stored(driver, job_id)
    return decode(record.payload, record.format)


# Inspection


def test_a_handler_is_called_like_its_function(register: Register) -> None:
    @register()
    def add(a: int, *, b: int = 2) -> int:
        return a + b

    assert add(1) == 3
    assert add(1, b=5) == 6
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        add()


def test_inspection_tells_the_truth(register: Register) -> None:
    def plain(a: int, *, b: str = "x") -> bytes:
        """Do it."""
        return b""

    signature = inspect.signature(plain)
    handler = register()(plain)
    assert inspect.signature(handler) == signature
    assert handler.__name__ == "plain"
    assert handler.__doc__ == "Do it."
    assert handler.__wrapped__ is plain
    assert inspect.unwrap(handler) is plain
    assert inspect.getdoc(handler) == "Do it."
    assert callable(handler)


def test_a_handler_without_a_docstring_has_none(register: Register) -> None:
    @register()
    def plain() -> None: ...

    assert plain.__doc__ is None


def test_the_signature_of_a_direct_call_has_the_context(register: Register) -> None:
    @register(takes_context=True)
    def work(context: JobContext, number: int) -> None: ...

    assert list(inspect.signature(work).parameters) == ["context", "number"]
    assert list(work.definition.signature.parameters) == ["number"]


def test_an_async_handler_is_known_as_one(register: Register) -> None:
    @register()
    async def fetch() -> str:
        return "page"

    @register()
    def plain() -> None: ...

    assert asgiref.sync.iscoroutinefunction(fetch)
    assert not asgiref.sync.iscoroutinefunction(plain)
    if sys.version_info >= (3, 12):
        assert inspect.iscoroutinefunction(fetch)
        assert not inspect.iscoroutinefunction(plain)
    assert asyncio.run(fetch()) == "page"


def test_a_handler_with_options_tells_the_truth_too(register: Register) -> None:
    @register()
    async def fetch(url: str) -> str:
        """Get it."""
        return "page"

    later = fetch.using(delay=60)
    assert isinstance(later, Handler)
    assert inspect.signature(later) == inspect.signature(fetch)
    assert (later.__name__, later.__doc__) == ("fetch", "Get it.")
    assert asgiref.sync.iscoroutinefunction(later)


def test_a_handler_has_slots_and_no_dictionary(register: Register) -> None:
    @register()
    def plain() -> None: ...

    assert not hasattr(plain, "__dict__")
    with pytest.raises(AttributeError):
        plain.delay = 60
    assert weakref.ref(plain)() is plain


def test_a_handler_shows_its_name(register: Register) -> None:
    @register(name="receipts.send")
    def plain() -> None: ...

    assert repr(plain) == "<job receipts.send>"
    assert repr(using("receipts.send")) == "<job receipts.send>"


def test_a_job_cannot_be_decorated_twice(register: Register) -> None:
    @register()
    def plain() -> None: ...

    with pytest.raises(InvalidOption, match="is a job already"):
        job(plain)


@pytest.mark.parametrize("option", ["unique", "concurrency", "rate", "fair", "schedule", "keep_result", "tries"])
def test_an_option_that_nothing_has_built_yet_is_refused(option: str) -> None:
    def plain() -> None: ...

    plain.__qualname__ = "plain"
    with pytest.raises(InvalidOption, match=option):
        job(**{option: 1})(plain)


# Any name of a parameter

NAMES = ("self", "job", "delay", "queue", "name", "args", "kwargs", "func", "options", "available_at", "definition")


@pytest.fixture
def greedy(register: Register) -> Any:
    @register()
    def greedy(
        self: Any = None,
        job: Any = None,
        delay: Any = None,
        queue: Any = None,
        name: Any = None,
        args: Any = None,
        kwargs: Any = None,
        func: Any = None,
        options: Any = None,
        available_at: Any = None,
        definition: Any = None,
    ) -> dict[str, Any]:
        return {key: value for key, value in locals().items() if value is not None}

    return greedy


@pytest.mark.parametrize("name", NAMES)
def test_an_argument_may_have_any_name(memory: Driver, greedy: Any, name: str) -> None:
    """F42"""
    given = {name: 7}
    calls = [
        greedy.dispatch(**given),
        greedy.using(delay=0).dispatch(**given),
        dispatch(greedy, **given),
        dispatch("tests.greedy", **given),
        dispatch_later(5, greedy, **given),
        dispatch_later(5, "tests.greedy", **given),
        using("tests.greedy").dispatch(**given),
        asyncio.run(greedy.adispatch(**given)),
        asyncio.run(adispatch(greedy, **given)),
        asyncio.run(adispatch("tests.greedy", **given)),
        asyncio.run(using("tests.greedy").adispatch(**given)),
        *(Dispatched(job_id, True) for job_id in dispatch_many([greedy.s(**given), using("tests.greedy").s(**given)])),
    ]
    assert [arguments(memory, done.id) for done in calls] == [([], given)] * len(calls)
    assert greedy(**given) == given


def test_an_argument_of_any_name_reaches_the_handler(
    memory: Driver, worker: Any, register: Register
) -> None:
    """F42"""
    seen: list[Any] = []

    @register()
    def take(self: int, job: int, delay: int, queue: int, context: int, call: int) -> None:
        seen.append((self, job, delay, queue, context, call))

    take.dispatch(self=1, job=2, delay=3, queue=4, context=5, call=6)
    worker.work_once()
    assert seen == [(1, 2, 3, 4, 5, 6)]


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
    with pytest.raises(UnknownJob, match="'tests.late'"):
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


# dispatch, dispatch_later, adispatch, s


def test_a_dispatch_says_what_it_did(driver: Driver, register: Register) -> None:
    @register()
    def plain() -> None: ...

    done = plain.dispatch()
    assert isinstance(done, Dispatched)
    assert done.stored is True
    assert stored(driver, done.id).id == done.id
    with pytest.raises(AttributeError):
        done.stored = False  # type: ignore[misc]


def test_a_handler_with_options_can_be_dispatched_by_the_function_too(memory: Driver, register: Register) -> None:
    @register()
    def plain(number: int) -> None: ...

    assert stored(memory, dispatch(plain.using(queue="low"), 1).id).queue == "low"
    assert stored(memory, dispatch(using("tests.plain", queue="low"), 1).id).queue == "low"


@pytest.mark.parametrize("delay", [300, timedelta(minutes=5)])
def test_dispatch_later_is_a_dispatch_with_a_delay(memory: Driver, register: Register, delay: Any) -> None:
    @register()
    def plain(number: int) -> None: ...

    for target in (plain, "tests.plain", plain.using(queue="low"), using("tests.plain", queue="low")):
        record = stored(memory, dispatch_later(delay, target, 1).id)
        assert record.available_at - record.created_at == timedelta(minutes=5)
        assert record.queue == ("default" if target in (plain, "tests.plain") else "low")


def test_dispatch_later_refuses_a_second_time_for_one_job(memory: Driver, register: Register) -> None:
    @register()
    def plain() -> None: ...

    with pytest.raises(InvalidOption, match="say the same thing twice"):
        dispatch_later(5, plain.using(available_at=datetime(2090, 1, 1, tzinfo=UTC)))


def test_adispatch_stores_a_job(memory: Driver, register: Register) -> None:
    @register()
    def plain(number: int) -> None: ...

    async def ask() -> list[Dispatched]:
        return [
            await plain.adispatch(1),
            await adispatch(plain, 1),
            await adispatch("tests.plain", number=1),
            await using("tests.plain").adispatch(1),
            await plain.using(delay=60).adispatch(1),
        ]

    done = asyncio.run(ask())
    assert [stored(memory, one.id).state for one in done] == ["ready"] * 4 + ["scheduled"]


def test_adispatch_refuses_wrong_arguments(memory: Driver, register: Register) -> None:
    @register()
    def plain(number: int) -> None: ...

    with pytest.raises(InvalidPayload, match="number"):
        asyncio.run(plain.adispatch())


def test_a_call_is_a_value_that_stores_nothing(memory: Driver, register: Register) -> None:
    @register()
    def plain(number: int, *, mode: str = "") -> None: ...

    call = plain.using(queue="low").s(7, mode="x")
    assert isinstance(call, Call)
    assert (call.args, call.kwargs) == ((7,), {"mode": "x"})
    assert memory.queues() == []
    (job_id,) = dispatch_many([call])
    assert stored(memory, job_id).queue == "low"
