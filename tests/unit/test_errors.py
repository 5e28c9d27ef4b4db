"""Errors as bounded, storable, masked text; and what makes two of them one cause."""

from __future__ import annotations

from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobqueue.jobs.errors import (
    MASKED,
    MAX_CLASS,
    MAX_MESSAGE,
    MAX_TRACEBACK,
    class_path,
    fingerprint,
    mask,
    message_of,
    shortened,
    storable,
    traceback_of,
)


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not today")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_the_class_is_named_with_its_module() -> None:
    assert class_path(ValueError()) == "ValueError"
    assert class_path(BrokenError()) == f"{__name__}.BrokenError"


def test_the_name_of_a_class_is_bounded() -> None:
    assert len(class_path(type("X" * 1000, (Exception,), {})())) == MAX_CLASS


# F62
def test_a_huge_message_is_cut_and_keeps_its_ends() -> None:
    error = raised(ValueError("first" + "x" * 10_000_000 + "last"))
    message, trace = message_of(error), traceback_of(error)
    assert len(message) == MAX_MESSAGE
    assert message.startswith("first")
    assert message.endswith("last")
    assert len(trace) == MAX_TRACEBACK
    assert trace.startswith("Traceback")
    assert trace.endswith("last\n")


# F62
def test_a_long_chain_of_errors_is_cut() -> None:
    error: BaseException = ValueError("first")
    for number in range(3000):
        following = ValueError(str(number))
        following.__cause__ = error
        error = following
    assert 0 < len(traceback_of(error)) <= MAX_TRACEBACK


# F62
def test_a_recursion_error_is_cut() -> None:
    def recurse() -> NoReturn:
        recurse()

    with pytest.raises(RecursionError) as caught:
        recurse()
    trace = traceback_of(caught.value)
    assert len(trace) <= MAX_TRACEBACK
    assert "RecursionError" in trace


# F62
def test_a_group_of_errors_is_cut() -> None:
    error = raised(ExceptionGroup("many", [ValueError("x" * 100) for _ in range(1000)]))
    assert len(traceback_of(error)) <= MAX_TRACEBACK
    assert message_of(error).startswith("many")


# F62
def test_groups_in_groups_are_cut() -> None:
    error: Exception = ValueError("inner")
    for _ in range(2000):
        error = ExceptionGroup("outer", [error])
    assert 0 < len(traceback_of(error)) <= MAX_TRACEBACK


def test_an_error_that_cannot_be_shown_is_still_described() -> None:
    error = raised(BrokenError())
    assert "RuntimeError" in message_of(error)
    assert "BrokenError" in traceback_of(error)


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "naïve 🙂 \u2028"])  # F36, F86
def test_every_text_becomes_one_that_every_database_takes(text: str) -> None:
    found = storable(text)
    assert "\x00" not in found
    found.encode()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")))
def test_text_that_databases_take_is_not_changed(text: str) -> None:
    assert storable(text) == text


@given(st.text(max_size=300), st.integers(60, 200))
def test_shortened_text_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    found = shortened(text, limit)
    assert len(found) <= limit
    assert found == text or len(text) > limit


def test_secrets_are_masked_in_messages_and_tracebacks() -> None:
    error = raised(ValueError("cannot log in as kim with hunter2"))
    assert message_of(error, ["hunter2"]) == f"cannot log in as kim with {MASKED}"
    assert "hunter2" not in traceback_of(error, ["hunter2"])


def test_a_secret_that_would_be_cut_in_two_is_masked_first() -> None:
    error = ValueError("x" * (MAX_MESSAGE // 2 - 20) + "hunter2" * 3 + "y" * MAX_MESSAGE)
    assert "hunter" not in message_of(error, ["hunter2"])


def test_the_longest_of_two_secrets_is_masked_first() -> None:
    assert mask("hunter2 hunter", ["hunter", "hunter2"]) == f"{MASKED} {MASKED}"


def test_a_secret_of_a_letter_or_two_is_not_masked() -> None:
    assert mask("a banana", ["a", "na", ""]) == "a banana"


TRACE = """Traceback (most recent call last):
  File "/srv/shop/jobs.py", line 7, in sync
    fetch(order)
  File "/srv/venv/lib/python3.11/site-packages/requests/api.py", line {line}, in get
    raise Timeout
requests.Timeout: {message}
"""


def mark(message: str = "order 7 timed out", *, name: str = "shop.sync", line: int = 1) -> str:
    return fingerprint(name, "Timeout", message, TRACE.format(line=line, message=message))


@pytest.mark.parametrize(
    "message",
    [
        "order 8 timed out",
        "order 0x7f3a timed out",
        "order 01a228d4-545e-73de-a3df-f9987ea589c5 timed out",
        "order 'ABC' timed out",
        'order "D" timed out',
        "order 01a228d4545e73de timed out",
    ],
)
def test_numbers_ids_and_quoted_values_make_no_other_cause(message: str) -> None:
    assert mark(message) == mark()


def test_lines_of_libraries_make_no_other_cause() -> None:
    assert mark(line=99) == mark()


def test_another_job_class_or_message_is_another_cause() -> None:
    assert mark(name="shop.other") != mark()
    assert mark("order 7 was refused") != mark()
    assert fingerprint("shop.sync", "Other", "", "") != fingerprint("shop.sync", "Timeout", "", "")


def test_another_frame_of_the_project_is_another_cause() -> None:
    trace = TRACE.format(line=1, message="x")
    other = trace.replace("in sync", "in other")
    assert fingerprint("a", "b", "c", trace) != fingerprint("a", "b", "c", other)


def test_an_error_without_a_traceback_has_a_cause_too() -> None:
    assert len(fingerprint("shop.sync", "Lost", "Reserved 3 times", "")) == 64
