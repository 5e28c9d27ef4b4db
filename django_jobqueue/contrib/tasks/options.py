"""What ``OPTIONS`` of a backend may say; each key is the default of its tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...conf import MAX_CONNECTION_NAME, read_keys
from ...exceptions import InvalidOption
from ...jobs.definition import UNSET, Unset, check_count, check_timeout
from ...jobs.names import check_name
from ...jobs.retry import Backoff, check_backoff
from ...jobs.times import seconds

DAY = 86_400.0  # long enough for whoever asks the next morning, short enough to keep the table small


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """The checked options; None, or UNSET for ``timeout``, means: as the JOBQUEUE setting says."""

    connection: str | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    timeout: float | Unset | None = UNSET
    keep_results: float = DAY


def read(alias: str, given: object) -> tuple[BackendOptions, list[str]]:
    """The options and everything that is wrong with them; a wrong key keeps its default."""
    values, problems = read_keys(f'TASKS["{alias}"]["OPTIONS"]', given, _READERS)
    return BackendOptions(**values), problems


def _connection(key: str, value: object) -> str:
    return check_name(key, value, MAX_CONNECTION_NAME)


def _keep_results(key: str, value: object) -> float:
    """Without a time there would be no result to get."""
    result = seconds(key, value)
    if result == 0:
        raise InvalidOption(f"{key} must be more than 0 seconds.")
    return result


_READERS: dict[str, Callable[[str, object], Any]] = {
    "CONNECTION": _connection,
    "MAX_ATTEMPTS": check_count,
    "BACKOFF": check_backoff,
    "TIMEOUT": check_timeout,
    "KEEP_RESULTS": _keep_results,
}
