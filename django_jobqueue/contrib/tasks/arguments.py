"""Arguments and return values of tasks: as plain as JSON, which is what Django's tasks promise to each other.

Django's own ``normalize_json`` lets through what a database then refuses, in the middle of the caller's transaction,
or changes without a word: NaN, bytes, keys that are no strings. Here they are errors before any statement. Tuples and
other sequences become lists, and subclasses their plain type, as Django has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from ...exceptions import InvalidPayload

MAX_DEPTH = 100  # as the payload's, before which it would end in a RecursionError


def plain(value: Any, place: str, depth: int = 0) -> Any:
    """``value`` in lists, dictionaries and scalars; InvalidPayload, a TypeError and a ValueError, names the place."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # of an Enum or a safe string its text
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _finite(float(value), place)
    if depth >= MAX_DEPTH:
        raise InvalidPayload(f"{place[:80]}…: nested deeper than {MAX_DEPTH} levels, or part of itself.")
    if isinstance(value, Mapping):
        return {_key(key, place): plain(item, f"{place}[{key!r}]", depth + 1) for key, item in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        raise InvalidPayload(f"{place}: bytes are not JSON; pass text, for example base64.")
    if isinstance(value, Sequence):
        return [plain(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(value)]
    # The first words are those that Python and Django's documentation have.
    raise InvalidPayload(
        f"{place}: Object of type {type(value).__qualname__} is not JSON serializable; tasks take None, bool, int, "
        "float, str, lists, and dictionaries with string keys. Pass a primary key, an ISO date, or str(value)."
    )


def _finite(value: float, place: str) -> float:
    if not isfinite(value):
        raise InvalidPayload(f"{place}: {value!r} is not JSON; pass None or text instead.")
    return value


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise InvalidPayload(f"{place}: the key {key!r} is no string; JSON has only string keys, use str(key).")
    return str.__str__(key)
