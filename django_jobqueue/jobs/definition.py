"""A definition: a handler and what ``@job`` was told about it, checked when its module is imported."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from ..exceptions import InvalidOption, InvalidPayload
from .names import check_job_name, check_queue
from .retry import Backoff, check_backoff
from .times import seconds

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100
MAX_COUNT = 2**31 - 1  # what the columns hold
CONTEXT_PARAMETER = "context"


class Unset:
    """No value was given, where None is a value of its own."""

    def __repr__(self) -> str:
        return "UNSET"

    def __reduce__(self) -> str:
        return "UNSET"  # a copy is the one there is


UNSET: Final = Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Everything known of a handler. None, or UNSET for ``timeout``, means: as the settings say."""

    name: str
    func: Callable[..., Any]
    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    backoff: Backoff | None = None
    timeout: float | Unset | None = UNSET
    retry_until: float | None = None
    max_exceptions: int | None = None
    retry_on: tuple[type[BaseException], ...] = (BaseException,)
    give_up_on: tuple[type[BaseException], ...] = ()
    atomic: bool = False
    settle: Literal["each", "batch"] | None = None
    keep_result: float | None = None
    sensitive: frozenset[str] = frozenset()
    takes_context: bool = False
    signature: inspect.Signature = field(repr=False)
    parameter_names: tuple[str, ...] = field(repr=False)
    positional_counts: range = field(repr=False)
    required: frozenset[str] = field(repr=False)
    by_name: frozenset[str] = field(repr=False)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise InvalidPayload unless the handler can be called with these arguments."""
        # Binding takes longer than all else that a dispatch does before its statement.
        if not kwargs and len(args) in self.positional_counts:
            return
        if not args and self.required <= kwargs.keys() <= self.by_name:
            return
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidPayload(
                f"The job {self.name!r} cannot be called with these arguments: {error}. It takes {self.signature}."
            ) from None

    def call(self, context: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the handler as a worker does; what an ``async def`` handler returns is still to be awaited."""
        if self.takes_context:
            return self.func(context, *args, **kwargs)
        return self.func(*args, **kwargs)


def define(func: Callable[..., Any], options: Mapping[str, Any]) -> Definition:
    """The checked definition of ``func``; raises InvalidOption, which says what is wrong and what to do."""
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise InvalidOption(f"@job has no option {unknown[0]!r}; it takes {', '.join(sorted(_OPTIONS))}.")
    given = {key: value for key, value in options.items() if value is not None or key == "timeout"}
    name = _check_func(func, given.get("name"))
    label = f"@job on {name!r}"
    signature = _signature(func, label)
    takes_context = _flag(label, "takes_context", given)
    if takes_context:
        signature = _without_context(signature, label)
    sensitive = frozenset(_strings(label, "sensitive", given.get("sensitive", ())))
    _check_sensitive(label, sensitive, signature)
    return Definition(
        name=name,
        func=func,
        queue=check_queue(given.get("queue", "default")),
        priority=check_priority(given.get("priority", 0)),
        max_attempts=_count(label, "max_attempts", given),
        backoff=check_backoff(f"{label}: backoff", given["backoff"]) if "backoff" in given else None,
        timeout=check_timeout(f"{label}: timeout", given.get("timeout", UNSET)),
        retry_until=_retry_until(label, given),
        max_exceptions=_count(label, "max_exceptions", given),
        retry_on=_exceptions(label, "retry_on", given.get("retry_on", (BaseException,))),
        give_up_on=_exceptions(label, "give_up_on", given.get("give_up_on", ())),
        atomic=_flag(label, "atomic", given),
        settle=check_settle(f"{label}: settle", given["settle"]) if "settle" in given else None,
        keep_result=seconds(f"{label}: keep_result", given["keep_result"]) if "keep_result" in given else None,
        sensitive=sensitive,
        takes_context=takes_context,
        signature=signature,
        parameter_names=_positional_names(signature),
        positional_counts=_positional_counts(signature),
        required=_required(signature),
        by_name=_by_name(signature),
    )


_OPTIONS = frozenset(
    (
        "name",
        "queue",
        "priority",
        "max_attempts",
        "backoff",
        "timeout",
        "retry_until",
        "max_exceptions",
        "retry_on",
        "give_up_on",
        "atomic",
        "settle",
        "keep_result",
        "sensitive",
        "takes_context",
    )
)


def check_priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"priority must be a whole number, not {value!r}.")
    if not LOWEST_PRIORITY <= value <= HIGHEST_PRIORITY:
        raise InvalidOption(f"priority must be from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, not {value}.")
    return int(value)


def check_timeout(kind: str, value: object) -> float | Unset | None:
    """Seconds per attempt; None and infinity mean no limit."""
    if isinstance(value, Unset):
        return value
    if value is None or value == float("inf"):
        return None
    limit = seconds(kind, value)
    if limit == 0:
        raise InvalidOption(f"{kind} must be more than 0 seconds; None means no limit.")
    return limit


def check_settle(kind: str, value: object) -> Literal["each", "batch"]:
    if value == "each":
        return "each"
    if value == "batch":
        return "batch"
    raise InvalidOption(f'{kind} must be "batch" or "each", not {value!r}.')


def check_count(kind: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
        raise InvalidOption(f"{kind} must be a whole number of at least 1, not {value!r}.")
    return value


def _count(label: str, option: str, given: Mapping[str, Any]) -> int | None:
    return check_count(f"{label}: {option}", given[option]) if option in given else None


def _flag(label: str, option: str, given: Mapping[str, Any]) -> bool:
    value = given.get(option, False)
    if not isinstance(value, bool):
        raise InvalidOption(f"{label}: {option} must be True or False, not {value!r}.")
    return value


def _strings(label: str, option: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise InvalidOption(f"{label}: {option} must be a tuple of parameter names, not {value!r}.")
    return tuple(str(item) for item in value)


def _exceptions(label: str, option: str, value: object) -> tuple[type[BaseException], ...]:
    found = value if isinstance(value, tuple | list) else (value,)
    for item in found:
        if not (isinstance(item, type) and issubclass(item, BaseException)):
            raise InvalidOption(f"{label}: {option} must be a tuple of exception classes, not {value!r}.")
    return tuple(found)


def _retry_until(label: str, given: Mapping[str, Any]) -> float | None:
    """Seconds from the time a job becomes available during which a further attempt may start."""
    value = given.get("retry_until")
    if value is None:
        return None
    if not isinstance(value, int | float | timedelta):
        raise InvalidOption(f"{label}: retry_until is a timedelta or seconds from available_at, not {value!r}.")
    return seconds(f"{label}: retry_until", value)


def _check_func(func: object, name: object) -> str:
    """The name of the job, after refusing what a worker could not find again under it."""
    if isinstance(func, staticmethod | classmethod | property):
        raise InvalidOption(f"@job cannot take {func!r}; define a function at the top of the module.")
    if _is_django_task(func):
        raise InvalidOption(
            f"@job cannot take the django.tasks Task {func!r}; decorate the plain function, or use one of the two."
        )
    if not callable(func) or isinstance(func, type):
        raise InvalidOption(f"@job takes a function, not {func!r}.")
    if _is_generator(func):
        raise InvalidOption(f"@job cannot take the generator {func!r}: nothing would run it. Return instead of yield.")
    qualified = getattr(func, "__qualname__", None)
    if qualified is None:
        if name is None:
            raise InvalidOption(f'{func!r} has no name of its own; give one: @job(name="…").')
        return check_job_name(name)
    where = f"{func.__module__}.{qualified}"
    if "<lambda>" in qualified:
        raise InvalidOption(f"@job cannot take a lambda ({where}); define a function at the top of the module.")
    if "." in qualified:
        raise InvalidOption(
            f"@job cannot take {where}: only a function at the top of a module can be found again by a worker. "
            "Move it there, and call the method from it."
        )
    if func.__module__ == "__main__":
        raise InvalidOption(
            f"@job cannot take {where}: a worker has another __main__. Move the function to a jobs.py of an app."
        )
    return check_job_name(where if name is None else name)


def _is_generator(func: Callable[..., Any]) -> bool:
    is_function = inspect.isroutine(func) or isinstance(func, functools.partial)
    called = func if is_function else type(func).__call__
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def _is_django_task(func: object) -> bool:
    """By the class' name, since django.tasks exists from Django 6.0 on, and as a backport under another name."""
    return any(kind.__name__ == "Task" and "tasks" in kind.__module__ for kind in type(func).__mro__)


def _signature(func: Callable[..., Any], label: str) -> inspect.Signature:
    try:
        return inspect.signature(func)
    except (ValueError, TypeError) as error:
        raise InvalidOption(f"{label}: the signature cannot be read ({error}); wrap it in a function.") from None


def _without_context(signature: inspect.Signature, label: str) -> inspect.Signature:
    first, *others = signature.parameters.values() or [None]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if first is None or first.name != CONTEXT_PARAMETER or first.kind not in positional:
        raise InvalidOption(f'{label}: with takes_context the first parameter must be "{CONTEXT_PARAMETER}".')
    return signature.replace(parameters=[parameter for parameter in others if parameter is not None])


def _positional_names(signature: inspect.Signature) -> tuple[str, ...]:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name, parameter in signature.parameters.items() if parameter.kind in positional)


def _positional_counts(signature: inspect.Signature) -> range:
    """With how many arguments, all of them positional, a function can be called."""
    parameters = signature.parameters.values()
    if any(
        parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty for parameter in parameters
    ):
        return range(0)
    positional = [signature.parameters[name] for name in _positional_names(signature)]
    fewest = sum(parameter.default is parameter.empty for parameter in positional)
    takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    return range(fewest, sys.maxsize if takes_any else len(positional) + 1)


def _required(signature: inspect.Signature) -> frozenset[str]:
    """The parameters without which a function cannot be called."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return frozenset(
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in several
    )


def _by_name(signature: inspect.Signature) -> frozenset[str]:
    """The parameters that may be given as keyword arguments; ``**kwargs`` take others too."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(name for name, parameter in signature.parameters.items() if parameter.kind in named)


def _check_sensitive(label: str, sensitive: frozenset[str], signature: inspect.Signature) -> None:
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    unknown = sorted(sensitive - set(signature.parameters))
    if unknown and not takes_any:
        raise InvalidOption(f"{label}: sensitive names {unknown[0]!r}, which is no parameter of it.")


def origin(func: Callable[..., Any]) -> tuple[object, ...]:
    """What makes two functions "the same one, imported again"."""
    if isinstance(func, functools.partial):
        return (*origin(func.func), repr(func.args), repr(func.keywords))
    kind = type(func)
    qualified = getattr(func, "__qualname__", None)
    if qualified is None:
        return (kind.__module__, kind.__qualname__)
    return (func.__module__, qualified)
