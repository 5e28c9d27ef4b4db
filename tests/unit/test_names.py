"""Names of jobs, queues and connections."""

from __future__ import annotations

import pytest

from django_jobqueue.exceptions import InvalidOption
from django_jobqueue.jobs.names import (
    MAX_JOB_NAME,
    MAX_QUEUE_NAME,
    check_job_name,
    check_name,
    check_queue,
)


@pytest.mark.parametrize(  # F86
    "name",
    [
        "default",
        "почта-очередь-для-рассылки-подтверждений-заказов-клиентам",
        "Basecamp’s-Mac",  # noqa: RUF001
        "🙂" * MAX_QUEUE_NAME,
        "with space",
        "a.b:c/d",
    ],
)
def test_a_name_in_any_script_is_taken_as_it_is(name: str) -> None:
    assert check_queue(name) == name


def test_a_job_name_of_the_limit_is_taken() -> None:  # F86
    assert check_job_name("é" * MAX_JOB_NAME) == "é" * MAX_JOB_NAME


@pytest.mark.parametrize(  # F86
    ("check", "limit"), [(check_job_name, MAX_JOB_NAME), (check_queue, MAX_QUEUE_NAME)]
)
def test_a_name_over_the_limit_is_refused_and_not_cut(check, limit: int) -> None:
    with pytest.raises(InvalidOption, match=f"the limit is {limit}"):
        check("x" * (limit + 1))


@pytest.mark.parametrize(
    "name",
    [" a", "a ", "a\n", "a\x00", "a\x1b[31m", "a\u2028b", "a\ud800", "a\xa0", "a,b", "*", "mail*"],
)
def test_a_name_that_some_store_or_terminal_reads_differently_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="queue name"):
        check_queue(name)


@pytest.mark.parametrize("name", ["", None, 7, b"default", ["default"]])
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidOption, match="job name"):
        check_job_name(name)


def test_a_subclass_of_str_is_refused() -> None:
    class Name(str):
        __slots__ = ()

    with pytest.raises(InvalidOption, match="queue name"):
        check_queue(Name("default"))


def test_a_refusal_names_the_thing_and_the_value() -> None:
    with pytest.raises(InvalidOption, match=r"^The shelf 'a,b' contains"):
        check_name("The shelf", "a,b", 10)
