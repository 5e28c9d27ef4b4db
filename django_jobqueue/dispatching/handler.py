"""``@job``, and the handler object it returns: still the function, and able to be dispatched.

The job's own arguments stand behind a positional-only slash in every method, so that a parameter of the
user's may have any name. ``Handler[C, P, R]``: C is what a direct call takes, P what a dispatch takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)
from uuid import UUID

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async

from ..exceptions import InvalidOption
from ..jobs.context import JobContext
from ..jobs.definition import Definition, define
from ..jobs.registry import registry
from ..jobs.retry import Backoff
from .discovery import resolve
from .dispatch import NO_OPTIONS, Dispatched, Options, Prepared, prepare, store, store_many

C = ParamSpec("C")
P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class JobOptions(TypedDict, total=False):
    """What ``@job`` takes; see the reference of the decorator."""

    name: str
    queue: str
    priority: int
    max_attempts: int
    backoff: Backoff
    timeout: float | timedelta | None
    retry_until: float | timedelta
    max_exceptions: int
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    give_up_on: type[BaseException] | tuple[type[BaseException], ...]
    atomic: bool
    settle: Literal["each", "batch"]
    keep_result: float | timedelta
    sensitive: Sequence[str]


class UsingOptions(TypedDict, total=False):
    """What ``using`` takes: options of one dispatch. ``delay`` is in seconds.

    ``after_commit=False`` stores at once what would wait for a commit; where a dispatch joins the transaction it
    changes nothing.
    """

    delay: float | timedelta | None
    available_at: datetime | None
    queue: str | None
    priority: int | None
    connection: str | None
    metadata: Mapping[str, Any] | None
    after_commit: bool | None


class Call(NamedTuple):
    """A job and its arguments, not dispatched yet: what ``.s(...)`` returns and ``dispatch_many`` takes."""

    target: Handler[Any, Any, Any] | NamedJob
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def prepare(self, flow: str | None = None) -> Prepared:
        return self.target._prepare(self.args, self.kwargs, flow)


# No docstring of the class: each handler has the one of its function, in a slot.
class Handler(Generic[C, P, R]):
    __slots__ = (
        "__doc__",
        "__name__",
        "__weakref__",
        "__wrapped__",
        "_is_coroutine",
        "_is_coroutine_marker",
        "_options",
        "definition",
    )

    def __init__(self, definition: Definition, options: Options = NO_OPTIONS) -> None:
        self.definition = definition
        self._options = options
        self.__wrapped__ = definition.func
        self.__name__ = getattr(definition.func, "__name__", definition.name)
        self.__doc__ = definition.func.__doc__
        if iscoroutinefunction(definition.func):
            markcoroutinefunction(self)

    def __call__(self, /, *args: C.args, **kwargs: C.kwargs) -> R:
        """Run the function here and now, like the plain function."""
        result: R = self.definition.func(*args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"<job {self.definition.name}>"

    def using(self, /, **options: Unpack[UsingOptions]) -> Handler[C, P, R]:
        """The same handler with options for its dispatches; raises InvalidOption."""
        return Handler(self.definition, self._options.changed(options))

    def dispatch(self, /, *args: P.args, **kwargs: P.kwargs) -> Dispatched:
        """Store a job; raises InvalidPayload before anything is stored."""
        return store(self._prepare(args, kwargs))

    async def adispatch(self, /, *args: P.args, **kwargs: P.kwargs) -> Dispatched:
        """``dispatch`` for async code, on the thread whose transaction sync code sees."""
        # Bound before: SyncToAsync takes no keyword argument "self".
        return await sync_to_async(partial(self.dispatch, *args, **kwargs))()

    def s(self, /, *args: P.args, **kwargs: P.kwargs) -> Call:
        """The call, to be dispatched later or together with others."""
        return Call(self, args, kwargs)

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], flow: str | None = None) -> Prepared:
        return prepare(self.definition, self._options, args, kwargs, flow)


class NamedJob:
    """A job known by name only, as ``using("name", …)`` returns it; the handler is looked up at each dispatch."""

    __slots__ = ("_options", "name")

    def __init__(self, name: str, options: Options = NO_OPTIONS) -> None:
        self.name = name
        self._options = options

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    def using(self, /, **options: Unpack[UsingOptions]) -> NamedJob:
        """The same job with options for its dispatches; raises InvalidOption."""
        return NamedJob(self.name, self._options.changed(options))

    def dispatch(self, /, *args: Any, **kwargs: Any) -> Dispatched:
        """Store a job; raises UnknownJob, or InvalidPayload, before anything is stored."""
        return store(self._prepare(args, kwargs))

    async def adispatch(self, /, *args: Any, **kwargs: Any) -> Dispatched:
        # Bound before: SyncToAsync takes no keyword argument "self".
        return await sync_to_async(partial(self.dispatch, *args, **kwargs))()

    def s(self, /, *args: Any, **kwargs: Any) -> Call:
        return Call(self, args, kwargs)

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], flow: str | None = None) -> Prepared:
        return prepare(resolve(self.name), self._options, args, kwargs, flow)


class _Decorator(Protocol):
    def __call__(self, func: Callable[P, R], /) -> Handler[P, P, R]: ...


class _ContextDecorator(Protocol):
    def __call__(
        self, func: Callable[Concatenate[JobContext, P], R], /
    ) -> Handler[Concatenate[JobContext, P], P, R]: ...


@overload
def job(func: Callable[P, R], /) -> Handler[P, P, R]: ...
@overload
def job(*, takes_context: Literal[True], **options: Unpack[JobOptions]) -> _ContextDecorator: ...
@overload
def job(*, takes_context: Literal[False] = False, **options: Unpack[JobOptions]) -> _Decorator: ...
def job(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Register a function as the handler of a job.

    Options: ``name`` (default: module and function), ``queue``, ``priority`` (-100 to 100, higher first),
    ``max_attempts``, ``backoff``, ``timeout`` (seconds per attempt), ``retry_until`` (seconds or timedelta from
    the time the job becomes available; limits further attempts, never the first), ``max_exceptions``,
    ``retry_on`` and ``give_up_on`` (exception classes), ``atomic``, ``settle`` ("each" or "batch"),
    ``keep_result`` (seconds or timedelta for which what the function returns is kept), ``sensitive`` (parameter
    names whose values are masked wherever they are shown) and ``takes_context``.
    Raises InvalidOption, at import, for what a worker could not run or find again.
    """
    if func is not None:
        return _register(func, options)
    return lambda decorated: _register(decorated, options)


def _register(func: Callable[..., Any], options: Mapping[str, Any]) -> Handler[Any, Any, Any]:
    if isinstance(func, Handler):
        raise InvalidOption(f"{func!r} is a job already; decorate the function once, with all options.")
    definition = define(func, options)
    registry.register(definition)
    return Handler(definition)


@overload
def dispatch(job: Handler[Any, P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Dispatched: ...
@overload
def dispatch(job: str | NamedJob, /, *args: Any, **kwargs: Any) -> Dispatched: ...
def dispatch(job: Any, /, *args: Any, **kwargs: Any) -> Dispatched:
    """Store a job of a handler, a ``handler.using(...)``, or a registered name.

    Raises UnknownJob, with near misses, when nothing would ever run it, and InvalidPayload for arguments that
    do not fit or cannot be carried; nothing is stored then.
    """
    dispatched: Dispatched = _target(job).dispatch(*args, **kwargs)
    return dispatched


@overload
async def adispatch(job: Handler[Any, P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Dispatched: ...
@overload
async def adispatch(job: str | NamedJob, /, *args: Any, **kwargs: Any) -> Dispatched: ...
async def adispatch(job: Any, /, *args: Any, **kwargs: Any) -> Dispatched:
    """``dispatch`` for async code."""
    dispatched: Dispatched = await _target(job).adispatch(*args, **kwargs)
    return dispatched


@overload
def dispatch_later(
    delay: float | timedelta, job: Handler[Any, P, Any], /, *args: P.args, **kwargs: P.kwargs
) -> Dispatched: ...
@overload
def dispatch_later(delay: float | timedelta, job: str | NamedJob, /, *args: Any, **kwargs: Any) -> Dispatched: ...
def dispatch_later(delay: float | timedelta, job: Any, /, *args: Any, **kwargs: Any) -> Dispatched:
    """Store a job that runs ``delay`` seconds, or a timedelta, from now at the earliest."""
    dispatched: Dispatched = _target(job).using(delay=delay).dispatch(*args, **kwargs)
    return dispatched


def dispatch_many(calls: Iterable[Call]) -> list[UUID]:
    """Store many calls, ``handler.s(...)``, in bounded chunks; return their ids (UUID) in order.

    Calls may be of different jobs. All are stored, or none when one of them is refused, where the store has
    transactions; others are checked before the first is stored.
    """
    return store_many(_prepared(call) for call in calls)


def using(name: str, /, **options: Unpack[UsingOptions]) -> NamedJob:
    """A job known by name, with options for its dispatches."""
    return NamedJob(name, NO_OPTIONS.changed(options))


def _prepared(call: object) -> Prepared:
    if not isinstance(call, Call):
        raise InvalidOption(f"dispatch_many() takes calls such as send_receipt.s(7), not {call!r}.")
    return call.prepare()


def _target(job: object) -> Any:
    if isinstance(job, Handler | NamedJob):
        return job
    if isinstance(job, str):
        return NamedJob(job)
    raise InvalidOption(f"dispatch() takes a handler made by @job, or the name of one, not {job!r}.")
