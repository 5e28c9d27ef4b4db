"""Payloads: a job's arguments as ASCII JSON, carried exactly or refused before anything is stored.

Exact types only: a subclass, an Enum or a lazy string would arrive as something else. What JSON lacks is
carried by a tag, ``{"$type": "date", "value": "2026-02-03"}``; a dictionary of the user's own that has the
tag's key is itself tagged, so that nothing can be mistaken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

from ..exceptions import InvalidPayload
from .errors import MASKED

FORMAT = 1
TAG = "$type"
MAX_DEPTH = 100
MAX_INTEGER_BITS = 14_000  # Python refuses to read integers of more than 4,300 digits
_ENCODER = json.JSONEncoder(separators=(",", ":"))

Path = tuple[str | int, ...]


class Previous:
    """What PREVIOUS is: it stands for the result of the step before, in the arguments of a chain's later steps."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "PREVIOUS"


class Slot:
    """PREVIOUS where it may stand; ``fill`` puts the result there."""

    __slots__ = ()


PREVIOUS: Any = Previous()  # Any, so that it may be given for a parameter of whatever type
_SLOT = Slot()


def encode(args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], limit: int) -> str:
    """The payload text of a call; ``names`` are the parameter names of the positional arguments, for errors.

    Raises InvalidPayload, which names the argument and the place in it, for a value that would not arrive
    as it is, and for a payload of more than ``limit`` bytes.
    """
    carried_args = [_carry(value, _name_at(names, index), 0) for index, value in enumerate(args)]
    carried_kwargs = {name: _carry(value, name, 0) for name, value in kwargs.items()}
    text = _ENCODER.encode({"args": carried_args, "kwargs": carried_kwargs})
    return _within("The arguments take", text, limit)


def decode(text: str, format_version: int) -> tuple[list[Any], dict[str, Any]]:
    """The positional and keyword arguments of a stored payload.

    Raises InvalidPayload for text that is no payload, or one written by a newer release.
    """
    if format_version > FORMAT:
        raise InvalidPayload(
            f"The payload has format {format_version}; this release reads formats up to {FORMAT}. "
            "Run the worker with the release that dispatched the job."
        )
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"The stored payload is not JSON: {error}.") from None
    if not isinstance(body, dict):
        raise InvalidPayload(f"The stored payload is a {type(body).__name__}, not an object.")
    args, kwargs = body.get("args", []), body.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise InvalidPayload('The stored payload\'s "args" is not a list, or its "kwargs" not an object.')
    if f'"{TAG}"' not in text:
        return args, kwargs
    try:
        return [_restore(value) for value in args], {name: _restore(value) for name, value in kwargs.items()}
    except InvalidPayload:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InvalidPayload(f"The stored payload has a tag that cannot be read: {error}.") from None


def encode_metadata(metadata: Mapping[str, Any], limit: int) -> str:
    """Metadata as JSON text: the same values as a payload, under the same rules."""
    if not metadata:
        return ""
    return _within("The metadata takes", _ENCODER.encode(_carry(dict(metadata), "metadata", 0)), limit)


def encode_result(value: Any, limit: int) -> str:
    """What a job returned, as JSON text: the same values as a payload, under the same rules."""
    return _within("The result takes", _ENCODER.encode(_carry(value, "result", 0)), limit)


def decode_result(text: str) -> Any:
    """A stored result; raises InvalidPayload for text that is none."""
    try:
        return _restore(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InvalidPayload(f"The stored result cannot be read: {error}.") from None


def with_slots(value: Any, depth: int = 0) -> Any:
    """Arguments in which PREVIOUS may stand, as ``encode`` takes them; what it refuses is left as it is."""
    if value is PREVIOUS:
        return _SLOT
    kind = type(value)
    if depth > MAX_DEPTH:
        return value
    if kind is list or kind is tuple:
        return kind(with_slots(item, depth + 1) for item in value)
    return {key: with_slots(item, depth + 1) for key, item in value.items()} if kind is dict else value


def has_slot(payload: str) -> bool:
    """Whether a payload may have a slot; it may also only hold a text that looks like one."""
    return _SLOT_MARK in payload


def fill(payload: str, result: str, limit: int) -> str:
    """The payload with a result, as JSON text, in its slots; raises InvalidPayload over ``limit`` bytes."""
    text = _ENCODER.encode(_fill(json.loads(payload), json.loads(result)))
    return _within("With the result of the step before the arguments take", text, limit)


def fill_in_vain(payload: str, reason: str) -> str:
    """The payload with slots that say, when the job runs, why there is no result."""
    return _ENCODER.encode(_fill(json.loads(payload), {TAG: _MISSING, "value": reason}))


def _fill(value: Any, result: Any) -> Any:
    if isinstance(value, list):
        return [_fill(item, result) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get(TAG) == _SLOT_TAG:
        return result
    if value.get(TAG) == "dict":  # the user's own: a key of it may be the tag
        return {TAG: "dict", "value": {key: _fill(item, result) for key, item in value["value"].items()}}
    return {key: _fill(item, result) for key, item in value.items()}


def _within(claim: str, text: str, limit: int) -> str:
    if len(text) > limit:
        raise InvalidPayload(f"{claim} {len(text)} bytes; PAYLOAD_LIMIT is {limit}. Store the data and pass its key.")
    return text


def decode_metadata(text: str) -> dict[str, Any]:
    """Stored metadata; raises InvalidPayload for text that is none."""
    try:
        restored = _restore(json.loads(text)) if text else {}
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InvalidPayload(f"The stored metadata cannot be read: {error}.") from None
    return restored if isinstance(restored, dict) else {}


def secret_paths(
    args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], is_secret: Callable[[str], bool]
) -> list[Path]:
    """Where values lie whose argument name, or dictionary key at any depth, is secret."""
    found: list[Path] = []
    for index, value in enumerate(args):
        _find_secrets(("args", index), _name_at(names, index), value, is_secret, found)
    for name, value in kwargs.items():
        _find_secrets(("kwargs", name), name, value, is_secret, found)
    return found


def values_at(masked: str, args: list[Any], kwargs: dict[str, Any]) -> list[str]:
    """The text of the values at stored secret paths, so that it can be masked where it turns up."""
    if not masked:
        return []
    found: list[str] = []
    for path in json.loads(masked):
        value: Any = {"args": args, "kwargs": kwargs}
        try:
            for step in path:
                value = value[step]
        except (LookupError, TypeError):
            continue
        _collect_text(value, found)
    return found


def masked_payload(payload: str, masked: str) -> str:
    """A stored payload as text with the values at secret paths hidden; all of it where a path leads nowhere."""
    if not masked:
        return payload
    body = json.loads(payload)
    for path in json.loads(masked):
        value = body
        try:
            for step in path[:-1]:
                value = value[step]
            value[path[-1]] = MASKED
        except (LookupError, TypeError):  # inside of what is carried by a tag
            return MASKED
    return json.dumps(body)


def _collect_text(value: Any, found: list[str]) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _collect_text(item, found)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect_text(item, found)
    elif value is not None and not isinstance(value, bool):
        found.append(str(value))


def _find_secrets(path: Path, name: str, value: Any, is_secret: Callable[[str], bool], found: list[Path]) -> None:
    if name and is_secret(name):
        found.append(path)
    elif isinstance(value, dict):
        for key, item in value.items():
            _find_secrets((*path, key), key, item, is_secret, found)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _find_secrets((*path, index), "", item, is_secret, found)


def _name_at(names: Sequence[str], index: int) -> str:
    """``*items`` takes every position after the named ones."""
    if index < len(names):
        return names[index]
    return f"argument {index + 1}"


def _carry(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return _carry_text(value, path)
    if kind is int or kind is float:
        return _carry_number(value, path)
    if value is None or kind is bool:
        return value
    if depth >= MAX_DEPTH:
        raise InvalidPayload(f"{path[:80]}…: nested deeper than {MAX_DEPTH} levels, or part of itself.")
    if kind is list:
        return [_carry(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if kind is dict:
        return _carry_dict(value, path, depth)
    carry = _CARRIERS.get(kind)
    if carry is None:
        raise InvalidPayload(f"{path}: {_describe(value)}")
    return carry(value, path, depth)


def _carry_number(value: int | float, path: str) -> int | float:
    if isinstance(value, float):
        if not isfinite(value):
            raise InvalidPayload(f"{path}: {value!r} is not JSON; pass None or text instead.")
    elif value.bit_length() > MAX_INTEGER_BITS:
        raise InvalidPayload(f"{path}: an integer of {value.bit_length()} bits; pass it as text.")
    return value


def _carry_text(value: str, path: str) -> str:
    if "\x00" in value:
        raise InvalidPayload(f"{path}: text with a NUL character, which databases cannot store; remove it.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidPayload(
                f"{path}: text with a lone surrogate, which is not Unicode; decode the bytes with an error handler."
            ) from None
    return value


def _carry_dict(value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
    carried = {}
    for key, item in value.items():
        if type(key) is not str:
            raise InvalidPayload(f"{path}: the key {key!r} is no string; JSON has only string keys, use str(key).")
        carried[_carry_text(key, path)] = _carry(item, f"{path}[{key!r}]", depth + 1)
    return {TAG: "dict", "value": carried} if TAG in carried else carried


def _carry_tuple(value: tuple[Any, ...], path: str, depth: int) -> dict[str, Any]:
    return {TAG: "tuple", "value": [_carry(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]}


def _carry_moment(value: datetime | time, path: str, depth: int) -> dict[str, Any]:
    offset = value.utcoffset()
    # fromisoformat() reads an offset of less than a second as none at all.
    if value.tzinfo is not None and (offset is None or offset.microseconds):
        raise InvalidPayload(
            f"{path}: {value!r} has no offset of whole seconds; pass a datetime with one, or the parts."
        )
    return {TAG: type(value).__name__, "value": value.isoformat()}


def _carry_decimal(value: Decimal, path: str, depth: int) -> dict[str, Any]:
    if not value.is_finite():
        raise InvalidPayload(f"{path}: {value!r} equals nothing, not even itself; pass None or text instead.")
    return {TAG: "Decimal", "value": str(value)}


def _refuse_previous(value: Previous, path: str, depth: int) -> dict[str, Any]:
    raise InvalidPayload(
        f"{path}: PREVIOUS stands for the result of the step before; only the steps of a chain after its first, and "
        "its catch, may have it."
    )


def _missing(reason: str) -> Any:
    raise InvalidPayload(reason)


_SLOT_TAG, _MISSING = "previous", "missing"
_SLOT_MARK = f'"{TAG}":"{_SLOT_TAG}"'

_CARRIERS: dict[type, Callable[[Any, str, int], dict[str, Any]]] = {
    tuple: _carry_tuple,
    datetime: _carry_moment,
    time: _carry_moment,
    date: lambda value, path, depth: {TAG: "date", "value": value.isoformat()},
    timedelta: lambda value, path, depth: {
        TAG: "timedelta",
        "value": [value.days, value.seconds, value.microseconds],
    },
    UUID: lambda value, path, depth: {TAG: "UUID", "value": str(value)},
    Decimal: _carry_decimal,
    Previous: _refuse_previous,
    Slot: lambda value, path, depth: {TAG: _SLOT_TAG},
}

_RESTORERS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda value: {key: _restore(item) for key, item in value.items()},
    "tuple": lambda value: tuple(_restore(item) for item in value),
    "datetime": datetime.fromisoformat,
    "time": time.fromisoformat,
    "date": date.fromisoformat,
    "timedelta": lambda value: timedelta(*value),
    "UUID": UUID,
    "Decimal": Decimal,
    _MISSING: _missing,
}


def _restore(value: Any) -> Any:
    if isinstance(value, list):
        return [_restore(item) for item in value]
    if isinstance(value, dict):
        tag = value.get(TAG)
        if tag is None:
            return {key: _restore(item) for key, item in value.items()}
        return _RESTORERS[tag](value["value"])
    return value


def _describe(value: Any) -> str:
    """What is wrong with a value of a type that is not carried, and the cure."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        return f"a model instance ({name}) is not carried, since it may change; pass its primary key."
    if isinstance(value, str | int | float | list | dict | tuple | date | time | Decimal | UUID):
        return f"{name} is a subclass, which would arrive as its plain type; convert it first."
    if kind is bytes:
        return "bytes are not JSON; pass text, for example base64."
    if isinstance(value, set | frozenset):
        return f"a {kind.__name__} is not JSON; pass a sorted list."
    return (
        f"{name} is not carried. Carried are None, bool, int, float, str, list, dict with string keys, tuple, "
        "date, datetime, time, timedelta, UUID and Decimal."
    )
