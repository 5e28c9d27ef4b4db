"""A store that can be out of reach: the memory driver, whose calls raise when a test says so."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from django.db import OperationalError

from django_jobqueue.drivers import connections
from django_jobqueue.drivers.memory import MemoryDriver
from tests.helpers.fixtures import FLAKY

REACHING = (
    "push",
    "queues",
    "stage",
    "reserve",
    "renew",
    "hand_back",
    "settle",
    "rescue",
    "rescue_in_hand",
    "release_worker",
)


class FlakyDriver(MemoryDriver):
    """``fail(...)`` plans what the next calls raise; ``calls`` counts all of them, ``closed`` the closes."""

    outages: ClassVar[tuple[type[BaseException], ...]] = (OperationalError,)

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        self.calls: Counter[str] = Counter()
        self.closed = 0
        self.before: dict[str, Callable[[], None]] = {}
        self._planned: dict[str, list[BaseException]] = {}
        self._is_down = False

    def fail(self, method: str, *errors: BaseException) -> None:
        """The next calls of ``method`` raise these, one each."""
        self._planned.setdefault(method, []).extend(errors)

    def go_down(self) -> None:
        """Every call fails until ``come_back``."""
        self._is_down = True

    def come_back(self) -> None:
        self._is_down = False

    def is_busy(self, error: BaseException) -> bool:
        return "locked" in str(error)

    def close(self) -> None:
        self.closed += 1

    def reach(self, method: str) -> None:
        self.calls[method] += 1
        if hook := self.before.get(method):
            hook()
        if self._is_down:
            raise OperationalError("server closed the connection")
        if planned := self._planned.get(method):
            raise planned.pop(0)


def _reaching(method: str) -> Callable[..., Any]:
    def call(self: FlakyDriver, *args: Any, **kwargs: Any) -> Any:
        self.reach(method)
        return getattr(MemoryDriver, method)(self, *args, **kwargs)

    return call


for _method in REACHING:
    setattr(FlakyDriver, _method, _reaching(_method))


@pytest.fixture
def flaky(settings: Any) -> Any:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": FLAKY}}}
    return connections["default"]


@pytest.fixture
def two(settings: Any) -> Any:
    """A store that can fail, and another, "other", that cannot."""
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": FLAKY}, "other": {"DRIVER": "memory"}}}
    return connections["default"]


def outage() -> OperationalError:
    return OperationalError("server closed the connection")


def locked() -> OperationalError:
    return OperationalError("database is locked")


def complaints(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was said of the store, as level and event."""
    return [
        (record.levelname, getattr(record, "event", ""))
        for record in caplog.records
        if record.levelno >= logging.WARNING
    ]


LOST_AND_BACK = [("ERROR", "store_lost"), ("WARNING", "store_back")]
