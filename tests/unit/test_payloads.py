"""Payloads: what is carried arrives as it was; all else is refused with its place named."""

from __future__ import annotations

import enum
import json
import os
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st

from django_jobqueue.exceptions import InvalidPayload
from django_jobqueue.jobs.payloads import (
    FORMAT,
    MAX_DEPTH,
    TAG,
    decode,
    decode_metadata,
    encode,
    encode_metadata,
    secret_paths,
)

LIMIT = 1_048_576


def carry(*args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    return decode(encode(args, kwargs, [], LIMIT), FORMAT)


def carried(value: Any) -> Any:
    (found,), _ = carry(value)
    return found


def refusal(value: Any) -> str:
    with pytest.raises(InvalidPayload) as caught:
        encode([value], {}, ["order"], LIMIT)
    return str(caught.value)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Text(str):
    __slots__ = ()


Point = namedtuple("Point", "x y")


# What arrives as it was


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
# Python's own arithmetic fails at the edges of the calendar, not the payload.
offsets = st.integers(-82_800, 82_800).map(lambda seconds: timezone(timedelta(seconds=seconds)))
plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.dates()
    | st.datetimes()
    | st.datetimes(
        datetime(2, 1, 1),  # noqa: DTZ001
        datetime(9998, 1, 1),  # noqa: DTZ001
        timezones=offsets,
    )
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(texts | st.sampled_from([TAG, "value"]), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, Decimal | float):
        return repr(left) == repr(right)
    if isinstance(left, datetime | time):
        return left == right and left.utcoffset() == right.utcoffset()
    return bool(left == right)


@given(st.lists(values, max_size=3), st.dictionaries(texts, values, max_size=3))
def test_every_value_arrives_as_it_was(args: list[Any], kwargs: dict[str, Any]) -> None:
    text = encode(args, kwargs, [], LIMIT)
    assert text.isascii()
    assert same(decode(text, FORMAT), (args, kwargs))


@given(st.dictionaries(texts, values, min_size=1, max_size=3))
def test_metadata_arrives_as_it_was(metadata: dict[str, Any]) -> None:
    assert same(decode_metadata(encode_metadata(metadata, LIMIT)), metadata)


def test_no_metadata_is_no_text() -> None:
    assert encode_metadata({}, LIMIT) == ""
    assert decode_metadata("") == {}


# F37
@pytest.mark.parametrize(
    "value",
    [
        date(2026, 2, 3),
        datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC),
        datetime(2026, 2, 3, 4, 5, 6, 7),  # noqa: DTZ001
        datetime(2026, 2, 3, tzinfo=timezone(timedelta(hours=5, minutes=30, seconds=1))),
        datetime.max,  # noqa: DTZ901
        time(1, 2),
        time(1, 2, 3, 4, tzinfo=UTC),
        UUID(int=1),
        Decimal("1.10"),
        Decimal("-0"),
        Decimal("1E+1000"),
        (1, 2),
        ((), [()]),
        timedelta(days=1, microseconds=1),
        timedelta.min,
        2**70,
        -(10**4200),
        -0.0,
        5e-324,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_keeps_its_type_and_every_digit(value: Any) -> None:
    assert same(carried(value), value)


# F37
def test_a_moment_of_a_named_zone_keeps_its_offset() -> None:
    moment = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Rome"))
    found = carried(moment)
    assert found == moment
    assert found.utcoffset() == timedelta(hours=2)


# F37
def test_the_second_of_two_equal_hours_is_not_taken_for_the_first() -> None:
    moment = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Rome"), fold=1)
    assert carried(moment).utcoffset() == timedelta(hours=1)


def test_a_dictionary_that_looks_like_a_tag_arrives_as_it_was() -> None:
    for value in ({TAG: "date", "value": "2026-02-03"}, {TAG: None}, {TAG: {TAG: "x"}}):
        assert same(carried(value), value)


def test_arguments_named_like_options_are_arguments() -> None:  # F42
    kwargs = dict.fromkeys(["queue", "delay", "name", "job", "self", "args", "kwargs", TAG], 1)
    assert carry(**kwargs) == ([], kwargs)


def test_emoji_and_line_separators_are_carried() -> None:  # F86
    assert carried("🙂 \u2028 \x7f \\ \" '") == "🙂 \u2028 \x7f \\ \" '"


# What is refused


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])  # F35
def test_numbers_that_are_not_json_are_refused(value: float) -> None:
    assert refusal(value).startswith("order: ")
    assert refusal({"x": [1.0, value]}).startswith("order['x'][1]: ")


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")])  # F35
def test_decimals_that_are_no_numbers_are_refused(value: Decimal) -> None:
    assert refusal(value).startswith("order: ")


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", os.fsdecode(b"\xff.txt")])  # F36
def test_text_that_some_database_cannot_store_is_refused(value: str) -> None:
    assert refusal(value).startswith("order: ")
    assert refusal([value]).startswith("order[0]: ")
    assert refusal({value: 1}).startswith("order: ")


@pytest.mark.parametrize(  # F37
    "value",
    [
        {3},
        frozenset([3]),
        b"\xff",
        bytearray(b"x"),
        Colour.RED,
        Level.HIGH,
        Text("text"),
        mark_safe("text"),
        Point(1, 2),
        OrderedDict(a=1),
        1j,
        range(3),
        object(),
        ValueError("x"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_arrive_as_something_else_is_refused(value: Any) -> None:
    assert refusal(value).startswith("order: ")
    assert refusal({"x": (value,)}).startswith("order['x'][0]: ")


# F37
def test_an_integer_that_python_cannot_read_back_is_refused() -> None:
    assert "bits" in refusal(10**5000)


# F38
@pytest.mark.parametrize("value", [{1: "a"}, {1: "a", "1": "b"}, {None: 1}, {True: 1}, {(1, 2): 3}, {Text("a"): 1}])
def test_keys_that_are_no_strings_are_refused(value: dict[Any, Any]) -> None:
    assert "key" in refusal(value)
    assert refusal([value]).startswith("order[0]: ")


def test_lazy_texts_are_refused() -> None:  # F39
    assert refusal(gettext_lazy("Yes")).startswith("order: ")


@pytest.mark.parametrize(  # F37
    "value",
    [
        datetime(2026, 2, 3, tzinfo=timezone(timedelta(microseconds=1))),
        time(1, 2, tzinfo=ZoneInfo("Europe/Rome")),
    ],
    ids=["fraction of a second", "unknown"],
)
def test_an_offset_that_would_be_lost_is_refused(value: Any) -> None:
    assert "offset" in refusal(value)


def test_a_model_instance_is_refused_with_the_cure() -> None:  # F40
    assert "primary key" in refusal(User(pk=7))


# F40
@pytest.mark.parametrize("make", [lambda: User.objects.all(), lambda: lambda: None])
def test_query_sets_and_functions_are_refused(make: Any) -> None:
    assert refusal(make()).startswith("order: ")


def test_a_value_inside_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "nested deeper" in refusal(loop)


def test_values_are_carried_to_the_greatest_depth_and_no_deeper() -> None:
    deep: Any = "bottom"
    for _ in range(MAX_DEPTH):
        deep = (deep,)
    assert carried(deep) == deep
    assert "nested deeper" in refusal([deep])


def test_a_refusal_names_keyword_and_surplus_arguments() -> None:
    with pytest.raises(InvalidPayload, match=r"^email\['to'\]\[0\]: "):
        encode([], {"email": {"to": [b"x"]}}, [], LIMIT)
    with pytest.raises(InvalidPayload, match=r"^argument 2: "):
        encode([1, b"x"], {}, ["order"], LIMIT)


def test_a_refusal_is_a_type_error_and_a_value_error() -> None:
    assert issubclass(InvalidPayload, TypeError)
    assert issubclass(InvalidPayload, ValueError)


def test_a_payload_of_the_limit_is_carried_and_one_byte_more_is_refused() -> None:  # F44
    size = len(encode(["x" * 1000], {}, [], LIMIT))
    assert len(encode(["x" * 1000], {}, [], size)) == size
    with pytest.raises(InvalidPayload, match=f"{size} bytes; PAYLOAD_LIMIT is {size - 1}"):
        encode(["x" * 1000], {}, [], size - 1)


def test_the_limit_counts_bytes_as_stored() -> None:  # F44
    size = len(encode(["☃"], {}, [], LIMIT))
    with pytest.raises(InvalidPayload):
        encode(["☃" * 2], {}, [], size)


# What older and newer releases stored


def test_unknown_keys_of_a_payload_are_ignored() -> None:  # F85
    assert decode('{"args":[1],"kwargs":{"a":2},"later":3}', FORMAT) == ([1], {"a": 2})


def test_a_payload_without_arguments_is_a_call_without_arguments() -> None:  # F85
    assert decode("{}", 0) == ([], {})


def test_a_payload_of_a_newer_format_is_refused_with_the_cure() -> None:  # F85
    with pytest.raises(InvalidPayload, match="format 999") as caught:
        decode('{"args":[],"kwargs":{}}', 999)
    assert "release" in str(caught.value)


@pytest.mark.parametrize(  # F85
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '{"args":{}}',
        '{"kwargs":[]}',
        '{"args":[{"$type":"later","value":1}]}',
        '{"args":[{"$type":"date"}]}',
        '{"args":[{"$type":"date","value":"31.2.2026"}]}',
        '{"args":[{"$type":"Decimal","value":"one"}]}',
        '{"args":[{"$type":["date"],"value":"x"}]}',
        '{"args":' + "[" * 100_000,
    ],
)
def test_what_is_no_payload_is_refused(text: str) -> None:
    with pytest.raises(InvalidPayload, match="stored payload"):
        decode(text, FORMAT)


def test_each_decoding_gives_values_of_its_own() -> None:  # F41
    text = encode([[1]], {}, [], LIMIT)
    first, _ = decode(text, FORMAT)
    first[0].append(2)
    assert decode(text, FORMAT)[0] == [[1]]


# Secrets


def test_secrets_are_found_by_the_names_of_arguments_and_keys() -> None:
    paths = secret_paths(
        [1, "hidden", [{"password": 1, "x": 2}]],
        {"token": "hidden", "data": {"inner": {"password": {"deep": 1}}}},
        ["order", "password"],
        {"password", "token"}.__contains__,
    )
    assert paths == [
        ("args", 1),
        ("args", 2, 0, "password"),
        ("kwargs", "token"),
        ("kwargs", "data", "inner", "password"),
    ]
    assert json.loads(json.dumps(paths)) == [list(path) for path in paths]
