"""Functions as users write them, for definitions; none is registered anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any


def send(order_id: int, email: str = "", *, copies: int = 1) -> int:
    return copies


def other(order_id: int) -> None: ...


def greedy(queue: Any = None, delay: Any = None, name: Any = None, job: Any = None, self: Any = None) -> None: ...


def anything(*args: Any, **kwargs: Any) -> None: ...


def with_context(context: Any, order_id: int) -> tuple[Any, int]:
    return context, order_id


def context_second(order_id: int, context: Any) -> None: ...


def context_by_name(*, context: Any) -> None: ...


async def send_async(order_id: int) -> str:
    return "sent"


def generate() -> Iterator[int]:
    yield 1


async def generate_async() -> AsyncIterator[int]:
    yield 1


def factory() -> Any:
    def inner() -> None: ...

    return inner


class Mailer:
    def method(self) -> None: ...

    @staticmethod
    def static() -> None: ...

    @classmethod
    def of_class(cls) -> None: ...


class Callable:
    def __call__(self, order_id: int) -> int:
        return order_id


class Generating:
    def __call__(self) -> Iterator[int]:
        yield 1


class Task:
    """Looks like the Task of django.tasks, or of its backport."""

    __module__ = "django.tasks.base"

    def __call__(self) -> None: ...


anonymous = lambda: None  # noqa: E731
