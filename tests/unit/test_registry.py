"""Definitions and the registry: what may be a handler, under which name, called with what."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import pickle
from datetime import timedelta
from types import FunctionType
from typing import Any

import pytest

from django_jobqueue.exceptions import InvalidOption, InvalidPayload, UnknownJob
from django_jobqueue.jobs.definition import UNSET, Definition, define
from django_jobqueue.jobs.registry import Registry, Resolver
from tests.unit import handlers


@pytest.fixture
def registry() -> Registry:
    return Registry()


def refusal(func: Any, **options: Any) -> str:
    with pytest.raises(InvalidOption) as caught:
        define(func, options)
    return str(caught.value)


# What may be a handler


def test_a_function_has_the_name_of_its_place_and_the_settings_for_the_rest() -> None:
    found = define(handlers.send, {})
    assert found.name == "tests.unit.handlers.send"
    assert (found.queue, found.priority) == ("default", 0)
    assert (found.max_attempts, found.backoff, found.timeout, found.settle) == (
        None,
        None,
        UNSET,
        None,
    )
    assert (found.retry_on, found.give_up_on) == ((BaseException,), ())
    assert not found.atomic


def test_a_coroutine_function_is_taken() -> None:  # F81
    assert define(handlers.send_async, {}).name == "tests.unit.handlers.send_async"


def test_a_callable_object_is_taken_under_a_name() -> None:  # F81
    assert define(handlers.Callable(), {"name": "call"}).call(None, [7], {}) == 7
    assert "give one" in refusal(handlers.Callable())


def test_a_partial_is_taken_under_a_name() -> None:  # F81
    partial = functools.partial(handlers.send, copies=3)
    assert define(partial, {"name": "send.three"}).call(None, [7], {}) == 3
    assert "give one" in refusal(partial)


@pytest.mark.parametrize(  # F81
    "func",
    [
        handlers.generate,
        handlers.generate_async,
        functools.partial(handlers.generate),
        handlers.Generating(),
    ],
    ids=["generator", "async generator", "partial", "callable object"],
)
def test_a_generator_is_refused(func: Any) -> None:
    assert "generator" in refusal(func, name="generate")


@pytest.mark.parametrize(  # F80
    "func",
    [
        handlers.Mailer.method,
        handlers.Mailer().method,
        handlers.Mailer.static,
        handlers.Mailer.of_class,
        handlers.factory(),
    ],
    ids=["function of a class", "bound method", "static method", "class method", "closure"],
)
@pytest.mark.parametrize("options", [{}, {"name": "given"}], ids=["unnamed", "named"])
def test_what_a_worker_could_not_find_again_is_refused(func: Any, options: Any) -> None:
    assert "top of a module" in refusal(func, **options)


@pytest.mark.parametrize("kind", [staticmethod, classmethod, property])  # F81
def test_a_decorated_attribute_of_a_class_is_refused(kind: Any) -> None:
    assert "top of the module" in refusal(kind(handlers.send))


def test_a_lambda_is_refused() -> None:  # F80
    assert "lambda" in refusal(handlers.anonymous, name="given")


def test_a_function_of_main_is_refused() -> None:  # F80
    func = FunctionType(handlers.send.__code__, {"__name__": "__main__"}, "send")
    assert func.__module__ == "__main__"
    assert "__main__" in refusal(func, name="given")


def test_a_task_of_django_is_refused() -> None:
    assert "django.tasks" in refusal(handlers.Task(), name="given")


@pytest.mark.parametrize("func", [handlers.Mailer, 7, None, "send"])
def test_what_is_no_function_is_refused(func: Any) -> None:
    assert "takes a function" in refusal(func)


@pytest.mark.parametrize("name", ["", "a,b", "x" * 256, 7])  # F86
def test_a_name_that_cannot_be_stored_is_refused(name: Any) -> None:
    assert "job name" in refusal(handlers.send, name=name)


# Options


def test_options_are_taken_in_every_form() -> None:
    found = define(
        handlers.send,
        {
            "name": "mail.send",
            "queue": "mail",
            "priority": -100,
            "max_attempts": 1,
            "backoff": [1, timedelta(minutes=1)],
            "timeout": timedelta(minutes=2),
            "retry_until": timedelta(hours=6),
            "max_exceptions": 3,
            "retry_on": OSError,
            "give_up_on": [ValueError, LookupError],
            "atomic": True,
            "settle": "each",
            "sensitive": ["email"],
        },
    )
    assert (found.name, found.queue, found.priority) == ("mail.send", "mail", -100)
    assert (found.max_attempts, found.max_exceptions) == (1, 3)
    assert (found.backoff, found.timeout, found.retry_until) == ((1.0, 60.0), 120.0, 21600.0)
    assert (found.retry_on, found.give_up_on) == ((OSError,), (ValueError, LookupError))
    assert (found.atomic, found.settle, found.sensitive) == (True, "each", frozenset(["email"]))


@pytest.mark.parametrize("timeout", [None, float("inf")])
def test_no_limit_of_time_is_not_the_settings_limit(timeout: float | None) -> None:
    assert define(handlers.send, {"timeout": timeout}).timeout is None


def test_zero_is_a_value_where_it_can_be_one() -> None:  # F42
    found = define(handlers.send, {"priority": 0, "backoff": 0, "retry_until": 0})
    assert (found.priority, found.backoff, found.retry_until) == (0, 0.0, 0.0)


@pytest.mark.parametrize(  # F42, F52
    ("option", "value"),
    [
        ("priority", 101),
        ("priority", -101),
        ("priority", 1.5),
        ("priority", True),
        ("max_attempts", 0),
        ("max_attempts", -1),
        ("max_attempts", 2.0),
        ("max_attempts", True),
        ("max_attempts", 2**31),
        ("max_exceptions", 0),
        ("backoff", -1),
        ("backoff", [10, -1]),
        ("backoff", "10"),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", float("nan")),
        ("timeout", "60"),
        ("retry_until", -1),
        ("retry_until", True),
        ("retry_until", "6h"),
        ("retry_on", "OSError"),
        ("retry_on", [OSError()]),
        ("give_up_on", 7),
        ("atomic", 1),
        ("settle", "all"),
        ("sensitive", "email"),
        ("sensitive", ["emial"]),
        ("takes_context", "yes"),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_name(option: str, value: Any) -> None:
    assert option in refusal(handlers.send, **{option: value})


def test_a_queue_that_cannot_be_stored_is_refused() -> None:
    assert "queue name" in refusal(handlers.send, queue="a,b")


def test_an_unknown_option_is_refused_with_those_there_are() -> None:
    found = refusal(handlers.send, tries=3)
    assert "'tries'" in found
    assert "max_attempts" in found


def test_sensitive_may_name_any_keyword_that_the_handler_takes() -> None:
    assert define(handlers.anything, {"sensitive": ("pin",)}).sensitive == frozenset(["pin"])


# Calls


@pytest.mark.parametrize(  # F82
    ("args", "kwargs", "named"),
    [
        ([], {}, "order_id"),
        ([1, "a", 2], {}, "too many"),
        ([1], {"emial": "a"}, "emial"),
        ([1], {"order_id": 2}, "order_id"),
    ],
    ids=["missing", "surplus", "misspelt", "twice"],
)
def test_a_call_that_the_handler_cannot_take_is_refused(args: list[Any], kwargs: dict[str, Any], named: str) -> None:
    definition = define(handlers.send, {"name": "mail.send"})
    with pytest.raises(InvalidPayload, match=named) as caught:
        definition.bind(args, kwargs)
    assert "'mail.send'" in str(caught.value)
    assert "copies" in str(caught.value)  # the signature, as the cure
    definition.bind([1, "a"], {"copies": 2})


@pytest.mark.parametrize(
    "function",
    [
        lambda: None,
        lambda a: None,
        lambda a, b=1: None,
        lambda a, /, b=1: None,
        lambda *items: None,
        lambda a, *items: None,
        lambda a, *, b: None,
        lambda a, *, b=1: None,
        lambda a=1, **others: None,
    ],
)
def test_a_call_is_refused_exactly_when_python_would(function: Any) -> None:
    definition = define(functools.partial(function), {"name": "mail.send"})
    for count in range(5):
        for kwargs in ({}, {"a": 1}, {"b": 2}, {"c": 2}, {"a": 1, "b": 2}, {"a": 1, "c": 2}, {"items": 3}):
            args = list(range(count))
            try:
                inspect.signature(function).bind(*args, **kwargs)
            except TypeError:
                with pytest.raises(InvalidPayload):
                    definition.bind(args, kwargs)
            else:
                definition.bind(args, kwargs)


def test_arguments_named_like_options_reach_the_handler() -> None:  # F42
    names = ["queue", "delay", "name", "job", "self"]
    define(handlers.greedy, {}).bind([], dict.fromkeys(names, 1))


def test_the_context_is_no_argument_of_a_call() -> None:
    definition = define(handlers.with_context, {"takes_context": True})
    definition.bind([7], {})
    with pytest.raises(InvalidPayload):
        definition.bind(["context", 7], {})
    assert definition.parameter_names == ("order_id",)
    assert definition.call("context", [7], {}) == ("context", 7)


@pytest.mark.parametrize("func", [handlers.context_second, handlers.context_by_name, handlers.factory])
def test_the_context_is_the_first_parameter(func: Any) -> None:
    assert '"context"' in refusal(func, takes_context=True)


# The registry


def test_a_definition_is_found_by_its_name(registry: Registry) -> None:
    definition = define(handlers.send, {"name": "mail.send"})
    registry.register(definition)
    assert registry.get("mail.send") is registry.find("mail.send") is definition


def test_an_unknown_name_is_refused_with_the_nearest(registry: Registry) -> None:
    registry.register(define(handlers.send, {"name": "mail.send"}))
    assert registry.find("mail.sned") is None
    with pytest.raises(UnknownJob, match=r"'mail\.sned'.*Did you mean 'mail\.send'"):
        registry.get("mail.sned")
    with pytest.raises(UnknownJob) as caught:
        registry.get("unlike anything")
    assert "Did you mean" not in str(caught.value)


# F80
def test_two_functions_under_one_name_are_refused_with_both_places(registry: Registry) -> None:
    registry.register(define(handlers.send, {"name": "send"}))
    with pytest.raises(InvalidOption, match="'send'") as caught:
        registry.register(define(handlers.other, {"name": "send"}))
    for place in ("tests.unit.handlers.send", "tests.unit.handlers.other", "handlers.py:"):
        assert place in str(caught.value)
    assert registry.get("send").func is handlers.send


def test_a_function_imported_again_replaces_itself(registry: Registry) -> None:  # F80
    registry.register(define(handlers.send, {}))
    again = importlib.reload(handlers).send
    registry.register(define(again, {"priority": 5}))
    found = registry.get("tests.unit.handlers.send")
    assert found.func is again
    assert found.priority == 5


def test_two_partials_of_one_function_are_two_handlers(registry: Registry) -> None:  # F80
    def definition(copies: int) -> Definition:
        return define(functools.partial(handlers.send, copies=copies), {"name": "send"})

    registry.register(definition(1))
    registry.register(definition(1))
    with pytest.raises(InvalidOption, match="Two handlers"):
        registry.register(definition(2))


def test_definitions_are_listed_by_name(registry: Registry) -> None:
    for name in "cab":
        registry.register(define(handlers.send, {"name": name}))
    assert [definition.name for definition in registry.definitions()] == ["a", "b", "c"]


def test_an_unregistered_name_is_free_again(registry: Registry) -> None:
    registry.register(define(handlers.send, {"name": "send"}))
    registry.unregister("send")
    registry.unregister("send")
    registry.register(define(handlers.other, {"name": "send"}))
    assert registry.get("send").func is handlers.other


def test_a_copy_of_unset_is_unset() -> None:
    assert copy.deepcopy(UNSET) is pickle.loads(pickle.dumps(UNSET)) is UNSET  # noqa: S301 - our own bytes


# Resolvers


def resolver(find: Any, kept: dict[str, float] | None = None, sources: list[str] | None = None) -> Resolver:
    return Resolver(find, (kept or {}).get, lambda: sources or [])


def test_a_resolver_is_asked_for_names_that_nobody_registered(registry: Registry) -> None:
    registered, resolved = define(handlers.send, {}), define(handlers.other, {"name": "other"})
    asked: list[str] = []

    def resolve(name: str) -> Definition | None:
        asked.append(name)
        return resolved if name == "resolved" else None

    registry.register(registered)
    registry.add_resolver(resolver(resolve))
    assert registry.find(registered.name) is registry.get(registered.name) is registered
    assert registry.find("resolved") is registry.get("resolved") is resolved
    assert registry.find("neither") is None
    with pytest.raises(UnknownJob):
        registry.get("neither")
    assert asked == ["resolved", "resolved", "neither", "neither"]
    assert registry.definitions() == [registered]


def test_what_a_resolver_knows_of_its_jobs_is_asked_without_finding_any(registry: Registry) -> None:
    def resolve(name: str) -> Definition | None:
        raise AssertionError("asked")

    registry.register(define(handlers.send, {"name": "own", "keep_result": 5}))
    registry.register(define(handlers.other, {"name": "silent"}))
    registry.add_resolver(resolver(resolve, {}, ["a"]))
    registry.add_resolver(Resolver(resolve, resolve, list))  # type: ignore[arg-type]
    registry.add_resolver(resolver(resolve, {"resolved": 7.0, "own": 8.0}, ["b", "c"]))
    assert [registry.keep_result(name) for name in ("own", "silent", "resolved", "none")] == [5, None, 7, None]
    assert registry.sources() == ["a", "b", "c"]


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3)])
def test_a_resolver_that_raises_finds_nothing_and_says_why_when_asked_again(
    registry: Registry, error: BaseException
) -> None:
    def resolve(name: str) -> Definition | None:
        raise error

    registry.add_resolver(resolver(resolve))
    assert registry.find("send") is None
    with pytest.raises(type(error)):
        registry.get("send")
