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
    adispatch,
    dispatch,
    dispatch_later,
    dispatch_many,
    job,
    using,
)
from django_jobqueue.dispatching.handler import Call, Handler
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.context import JobContext
from tests.helpers.stored import arguments, stored

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


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


@pytest.mark.parametrize("option", ["unique", "concurrency", "rate", "fair", "schedule", "tries"])
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


def test_an_argument_of_any_name_reaches_the_handler(memory: Driver, worker: Any, register: Register) -> None:
    """F42"""
    seen: list[Any] = []

    @register()
    def take(self: int, job: int, delay: int, queue: int, context: int, call: int) -> None:
        seen.append((self, job, delay, queue, context, call))

    take.dispatch(self=1, job=2, delay=3, queue=4, context=5, call=6)
    worker.work_once()
    assert seen == [(1, 2, 3, 4, 5, 6)]


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
