"""The ``JOBQUEUE`` setting: read late, checked as a whole, forgotten when the setting changes.

One frozen value holds everything; nobody else reads ``django.conf.settings.JOBQUEUE``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from .exceptions import InvalidOption
from .jobs.definition import check_count, check_settle, check_timeout
from .jobs.names import check_name, check_queue
from .jobs.retry import Backoff, Exponential, check_backoff
from .jobs.times import seconds

DEFAULT = "default"
MAX_CONNECTION_NAME = 100
DEFAULT_BACKOFF = Exponential()
SHORTEST_RETRY_AFTER = 1  # a third of it must leave time for a renewal
MOST_KNOWN_NAMES = 1000  # whose secrecy is remembered; names of keys may be made by programs
# What is deleted when it is older than this, in seconds; None is never. Dead letters are for people to decide about.
# A database keeps the first beside its queues; the others are kept by each connection, wherever it stores its jobs.
PRUNED_ROWS: Mapping[str, float | None] = {"FAILED": None, "WORKERS": 3600.0, "STATS": 7 * 86_400.0}
PRUNED_IN_STORES: Mapping[str, float | None] = {"BATCHES": 7 * 86_400.0, "PROGRESS": 86_400.0}
PRUNED_AFTER: Mapping[str, float | None] = {**PRUNED_ROWS, **PRUNED_IN_STORES}

MASKED_NAMES = (
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "authorization",
    "cookie",
    "session",
    "card",
    "iban",
    "ssn",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The checked setting; the names are the keys in lower case. Durations are seconds."""

    connections: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {DEFAULT: {"DRIVER": "database"}})
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    modules: tuple[str, ...] = ("jobs",)
    max_attempts: int = 3
    backoff: Backoff = DEFAULT_BACKOFF
    timeout: float | None = 3600
    retry_after: float = 90
    poll_interval: float = 0.5
    queue_error_backoff_cap: float = 30
    notify: bool = True
    settle: Literal["each", "batch"] = "batch"
    after_commit: str = DEFAULT
    payload_limit: int = 1_048_576
    embedded_workers: int | None = None
    mask: tuple[str, ...] = MASKED_NAMES
    prune: Mapping[str, float | None] = field(default_factory=lambda: PRUNED_AFTER)
    progress_cache: str | None = None
    keep_results: float = 0
    admin: bool = True

    def connection_of(self, queue: str) -> str:
        """The connection that jobs of a queue are dispatched to, unless the call names one."""
        return str(self.queues.get(queue, {}).get("CONNECTION", DEFAULT))

    @cached_property
    def is_secret(self) -> Callable[[str], bool]:
        """Whether values under this argument name or dictionary key are masked wherever they are shown."""
        if not self.mask:
            return lambda name: False
        pattern = re.compile("|".join(map(re.escape, self.mask)), re.IGNORECASE)
        # Asked for each argument of each dispatch, nearly always about the same few names.
        return lru_cache(MOST_KNOWN_NAMES)(lambda name: pattern.search(name) is not None)


def get_settings() -> Settings:
    """The current settings; raises ImproperlyConfigured that names the first wrong key."""
    global _current
    current = _current
    if current is None:
        value, problems = read(getattr(django_settings, "JOBQUEUE", {}))
        if problems:
            raise ImproperlyConfigured(problems[0])
        _current = current = value
    return current


def read(given: object) -> tuple[Settings, list[str]]:
    """The settings and everything that is wrong with them; a wrong key keeps its default."""
    values, problems = read_keys("JOBQUEUE", given, _READERS)
    settings = Settings(**values)
    return settings, problems + _contradictions(settings)


def read_keys(
    label: str, given: object, readers: Mapping[str, Callable[[str, object], Any]]
) -> tuple[dict[str, Any], list[str]]:
    """The values of a dictionary of settings, under their names in small letters, and everything that is wrong.

    A reader takes how a value is called, and the value; it raises InvalidOption.
    """
    if not isinstance(given, Mapping):
        return {}, [f"{label} must be a dictionary, not {given!r}."]
    values: dict[str, Any] = {}
    problems = []
    for key, value in given.items():
        reader = readers.get(key) if isinstance(key, str) else None
        if reader is None:
            problems.append(f"{label} has no key {key!r}; it takes {', '.join(sorted(readers))}.")
            continue
        try:
            values[key.lower()] = reader(f'{label}["{key}"]', value)
        except InvalidOption as error:
            problems.append(str(error))
    return values, problems


def _contradictions(settings: Settings) -> list[str]:
    return [
        f'JOBQUEUE["QUEUES"][{queue!r}] names the connection {options["CONNECTION"]!r}, which '
        'JOBQUEUE["CONNECTIONS"] lacks.'
        for queue, options in settings.queues.items()
        if options.get("CONNECTION", DEFAULT) not in settings.connections
    ]


def _connections(key: str, value: object) -> Mapping[str, Mapping[str, Any]]:
    found = _mapping(key, value)
    for alias, options in found.items():
        check_name(f"{key}: the connection name", alias, MAX_CONNECTION_NAME)
        if not isinstance(_mapping(f"{key}[{alias!r}]", options).get("DRIVER"), str):
            raise InvalidOption(f'{key}[{alias!r}] needs a "DRIVER", for example "database".')
    if DEFAULT not in found:
        raise InvalidOption(f'{key} needs an entry {DEFAULT!r}, for example {{"DRIVER": "database"}}.')
    return found


def _queues(key: str, value: object) -> Mapping[str, Mapping[str, Any]]:
    found = _mapping(key, value)
    for queue, options in found.items():
        check_queue(queue)
        unknown = sorted(set(_mapping(f"{key}[{queue!r}]", options)) - {"CONNECTION"})
        if unknown:
            raise InvalidOption(f"{key}[{queue!r}] has no key {unknown[0]!r}; it takes CONNECTION.")
    return found


def _mapping(key: str, value: object) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise InvalidOption(f"{key} must be a dictionary, not {value!r}.")
    return value


def _names(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise InvalidOption(f"{key} must be a list of strings, not {value!r}.")
    for item in value:
        if not isinstance(item, str) or not item:
            raise InvalidOption(f"{key} must be a list of strings; {item!r} is none.")
    return tuple(value)


def _positive(key: str, value: object) -> float:
    result = seconds(key, value)
    if result == 0:
        raise InvalidOption(f"{key} must be more than 0 seconds.")
    return result


def _retry_after(key: str, value: object) -> float:
    result = seconds(key, value)
    if result < SHORTEST_RETRY_AFTER:
        raise InvalidOption(
            f"{key} must be at least {SHORTEST_RETRY_AFTER} second, since it is renewed from a third of it on; "
            f"not {value!r}."
        )
    return result


def _timeout(key: str, value: object) -> float | None:
    limit = check_timeout(key, value)
    return limit if isinstance(limit, float) else None


def _backoff(key: str, value: object) -> Backoff:
    backoff = check_backoff(key, value)
    return DEFAULT_BACKOFF if backoff is None else backoff


def _workers(key: str, value: object) -> int | None:
    if value is None:
        return None
    return 0 if value == 0 and not isinstance(value, bool) else check_count(key, value)


def _alias(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidOption(f"{key} must be an alias of DATABASES, not {value!r}.")
    return value


def _cache(key: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidOption(f"{key} must be an alias of CACHES, or None, not {value!r}.")
    return value


def _boolean(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"{key} must be True or False, not {value!r}.")
    return value


def _prune(key: str, value: object) -> Mapping[str, float | None]:
    given = _mapping(key, value)
    unknown = sorted(map(str, set(given) - set(PRUNED_AFTER)))
    if unknown:
        raise InvalidOption(f"{key} has no key {unknown[0]!r}; it takes {', '.join(PRUNED_AFTER)}.")
    ages = {name: None if age is None else _positive(f'{key}["{name}"]', age) for name, age in given.items()}
    return {**PRUNED_AFTER, **ages}


_READERS: dict[str, Callable[[str, object], Any]] = {
    "CONNECTIONS": _connections,
    "QUEUES": _queues,
    "MODULES": _names,
    "MAX_ATTEMPTS": check_count,
    "BACKOFF": _backoff,
    "TIMEOUT": _timeout,
    "RETRY_AFTER": _retry_after,
    "POLL_INTERVAL": _positive,
    "QUEUE_ERROR_BACKOFF_CAP": _positive,
    "NOTIFY": _boolean,
    "SETTLE": check_settle,
    "AFTER_COMMIT": _alias,
    "PAYLOAD_LIMIT": check_count,
    "EMBEDDED_WORKERS": _workers,
    "MASK": _names,
    "PRUNE": _prune,
    "PROGRESS_CACHE": _cache,
    "KEEP_RESULTS": seconds,
    "ADMIN": _boolean,
}

_current: Settings | None = None


def _forget(*, setting: str, **kwargs: Any) -> None:
    global _current
    if setting == "JOBQUEUE":
        _current = None


setting_changed.connect(_forget, dispatch_uid="django_jobqueue.conf")
