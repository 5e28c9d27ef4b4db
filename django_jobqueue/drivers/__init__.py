"""Where jobs wait: the configured connections, one driver instance per process, made on first use.

Drivers are imported by path, so that dispatching code loads no model before the apps are ready. All threads
share an instance, so a driver keeps no state of a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from ..conf import DEFAULT, get_settings
from ..exceptions import InvalidConnection
from .base import Driver
from .cached_progress import CachedProgress

if TYPE_CHECKING:
    from .ledger import Ledger

DRIVERS = {
    "database": "django_jobqueue.drivers.database.DatabaseDriver",
    "memory": "django_jobqueue.drivers.memory.MemoryDriver",
    "redis": "django_jobqueue.drivers.redis.RedisDriver",
}
#: What to install for a driver whose client library is missing, by the name of that.
EXTRAS = {"django_redis": "redis", "redis": "redis"}


class Connections:
    """Configured connections by name, in the shape of Django's ``caches``: ``connections["default"]``."""

    def __init__(self) -> None:
        self._drivers: dict[str, Driver] = {}
        self._lock = Lock()

    def __getitem__(self, alias: str) -> Driver:
        driver = self._drivers.get(alias)
        if driver is None:
            with self._lock:
                driver = self._drivers.get(alias) or self._make(alias)
                self._drivers[alias] = driver
        return driver

    def __iter__(self) -> Iterator[str]:
        return iter(get_settings().connections)

    def all(self) -> list[Driver]:
        """Every configured connection, in the order of the setting."""
        return [self[alias] for alias in self]

    def reset(self) -> None:
        """Forget the drivers, for settings that changed."""
        self._drivers.clear()

    def _make(self, alias: str) -> Driver:
        configured = get_settings().connections
        if alias not in configured:
            raise InvalidConnection(
                f'There is no queue connection {alias!r}; JOBQUEUE["CONNECTIONS"] has {", ".join(configured)}.'
            )
        options = dict(configured[alias])
        name = options.pop("DRIVER")
        try:
            driver_class = import_string(DRIVERS.get(name, name))
        except ImportError as error:
            if error.name in EXTRAS:
                raise InvalidConnection(
                    f"The queue connection {alias!r} needs {error.name.replace('_', '-')}, which is not installed; "
                    f'run: pip install "django-jobqueue[{EXTRAS[error.name]}]"'
                ) from error
            raise InvalidConnection(
                f"The queue connection {alias!r} names the driver {name!r}, which cannot be imported: {error}. "
                f"Use {', '.join(map(repr, DRIVERS))}, or the dotted path of a Driver class."
            ) from error
        if not (isinstance(driver_class, type) and issubclass(driver_class, Driver)):
            raise InvalidConnection(f"The driver {name!r} of the queue connection {alias!r} is no Driver class.")
        driver: Driver = driver_class(alias, options)
        settings = get_settings()
        driver.notifies = settings.notify
        if settings.progress_cache is not None:
            driver.progress = CachedProgress(settings.progress_cache, driver, settings.prune["PROGRESS"])
        return driver


connections = Connections()


def ledgers_of(drivers: Iterable[Driver]) -> list[Ledger]:
    """What their databases keep beside the jobs: one for each database, however many connections are there."""
    found: dict[str, Ledger] = {}
    for driver in drivers:
        if driver.ledger is not None:
            found.setdefault(driver.ledger.database, driver.ledger)
    return list(found.values())


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting in {"JOBQUEUE", "DATABASES", "CACHES"}:
        connections.reset()


setting_changed.connect(_reset, dispatch_uid="django_jobqueue.drivers")

__all__ = ["DEFAULT", "Driver", "connections", "ledgers_of"]
