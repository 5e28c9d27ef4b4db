"""For how long a job keeps its result, by its name: for those that end without a worker."""

from __future__ import annotations

from contextlib import suppress

from ..conf import get_settings
from ..dispatching.discovery import load_handlers
from ..drivers.base import KeepFor
from ..jobs.registry import registry


def keep_for() -> KeepFor:
    """The answer for names; where the job does not say so itself, as the setting does."""
    default = get_settings().keep_results

    def ask(name: str) -> float:
        own = registry.keep_result(name)
        return default if own is None else own

    return ask


def keep_for_all() -> KeepFor:
    """The same where handlers may not have been loaded; one that is broken keeps nobody from cancelling."""
    with suppress(Exception):
        load_handlers()
    return keep_for()
