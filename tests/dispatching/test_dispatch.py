"""From a call to a stored job: what is stored, when, where and what is refused before any statement."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from django_jobqueue import InvalidOption, InvalidPayload, using
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.running.worker import Worker
from tests.helpers.listening import Heard

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def echo(register: Register) -> Any:
    @register()
    def echo(*args: Any, **kwargs: Any) -> None: ...

    return echo


def stored(driver: Driver, job_id: Any) -> Any:
    record = driver.get(job_id)
    assert record is not None
    return record


# What is stored


def test_a_job_is_stored_with_what_its_definition_says(driver: Driver, register: Register) -> None:
    @register(name="receipts.send", queue="mail", priority=7, max_attempts=4, retry_until=timedelta(hours=1))
    def send(order_id: int) -> None: ...

    record = stored(driver, send.dispatch(7).id)
    assert (record.name, record.queue, record.priority, record.max_attempts) == ("receipts.send", "mail", 7, 4)
    assert (record.payload, record.state, record.attempts) == ('{"args":[7],"kwargs":{}}', "ready", 0)
    assert (record.connection, record.metadata, record.masked) == ("default", "", "")


def test_nobodys_limit_of_attempts_is_none(driver: Driver, echo: Any) -> None:
    assert stored(driver, echo.dispatch().id).max_attempts is None


def test_a_dispatch_is_announced_when_it_is_stored(driver: Driver, echo: Any, heard: Heard) -> None:
    job_id = echo.dispatch(1).id
    sent = {"id": job_id, "name": "tests.echo", "queue": "default", "connection": "default"}
    sent |= {"driver": driver.name, "sender": type(driver)}
    assert heard.sent == [("job_dispatched", sent)]


def test_a_refused_dispatch_is_not_announced(memory: Driver, echo: Any, heard: Heard) -> None:
    with pytest.raises(InvalidPayload):
        echo.dispatch({1, 2})
    assert heard.sent == []


def test_the_places_of_secrets_are_stored(driver: Driver, register: Register) -> None:
    @register(sensitive=("email",))
    def send(email: str, options: dict[str, Any], *, api_key: str = "", note: str = "") -> None: ...

    call = send.dispatch("a@b", {"deep": [{"password": "x"}], "plain": 1}, api_key="k", note="n")
    assert json.loads(stored(driver, call.id).masked) == [
        ["args", 0],
        ["args", 1, "deep", 0, "password"],
        ["kwargs", "api_key"],
    ]


def test_a_secret_that_is_no_parameter_is_masked_by_the_setting_only(memory: Driver, settings: Any, echo: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "MASK": ["pin"]}
    driver = connections["default"]
    masked = stored(driver, echo.dispatch(password="x", the_PIN="y").id).masked
    assert json.loads(masked) == [["kwargs", "the_PIN"]]


def test_arguments_are_those_of_the_dispatch_and_not_of_later(driver: Driver, echo: Any) -> None:
    """F41"""
    items = [1]
    job_id = echo.dispatch(items).id
    items.append(2)
    assert stored(driver, job_id).payload == '{"args":[[1]],"kwargs":{}}'


# Where


def test_the_queue_chooses_the_connection_unless_the_call_does(settings: Any, echo: Any) -> None:
    settings.JOBQUEUE = {
        "CONNECTIONS": {"default": {"DRIVER": "memory"}, "fast": {"DRIVER": "memory"}},
        "QUEUES": {"mail": {"CONNECTION": "fast"}},
    }
    places = {
        "default": [
            echo.dispatch(),
            echo.using(queue="other").dispatch(),
            echo.using(queue="mail", connection="default").dispatch(),
        ],
        "fast": [echo.using(queue="mail").dispatch(), echo.using(connection="fast").dispatch()],
    }
    for alias, done in places.items():
        other = connections["fast" if alias == "default" else "default"]
        assert all(connections[alias].get(one.id) for one in done)
        assert not any(other.get(one.id) for one in done)


def test_a_queue_of_the_definition_chooses_the_connection_too(settings: Any, register: Register) -> None:
    settings.JOBQUEUE = {
        "CONNECTIONS": {"default": {"DRIVER": "memory"}, "fast": {"DRIVER": "memory"}},
        "QUEUES": {"mail": {"CONNECTION": "fast"}},
    }

    @register(queue="mail")
    def send() -> None: ...

    assert connections["fast"].get(send.dispatch().id)


def test_wrong_settings_are_named_at_the_first_dispatch(settings: Any, echo: Any) -> None:
    settings.JOBQUEUE = {"CONECTIONS": {}}
    with pytest.raises(ImproperlyConfigured, match="JOBQUEUE has no key 'CONECTIONS'"):
        echo.dispatch()


# What is refused, before any statement


def test_wrong_arguments_are_refused_when_the_job_is_asked_for(memory: Driver, register: Register) -> None:
    """F82"""

    @register()
    def send(order_id: int, *, copies: int = 1) -> None: ...

    for args, kwargs in (((), {}), ((1, 2), {}), ((1,), {"copes": 2}), ((1,), {"order_id": 2})):
        with pytest.raises(InvalidPayload, match=r"It takes \(order_id: "):
            send.dispatch(*args, **kwargs)
        with pytest.raises(TypeError):
            using("tests.send").dispatch(*args, **kwargs)
    assert memory.queues() == []


def test_the_context_is_not_an_argument_of_the_dispatch(memory: Driver, register: Register) -> None:
    @register(takes_context=True)
    def send(context: Any, order_id: int) -> None: ...

    assert send.dispatch(7).stored
    with pytest.raises(InvalidPayload):
        send.dispatch("context", 7)


STRANGE = {
    "NUL": "a\x00b",
    "surrogate": "\ud800",
    "NUL in a key": {"k\x00": 1},
    "undecodable file name": os.fsdecode(b"\xff.txt"),
    "not a number": float("nan"),
    "infinity": [float("-inf")],
    "set": {1},
    "bytes": b"x",
    "number as a key": {1: "a", "1": "b"},
    "huge number": 10**5000,
    "function": len,
}


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE.keys())
def test_a_value_that_would_not_arrive_is_refused_and_breaks_no_transaction(
    driver: Driver, echo: Any, value: Any
) -> None:
    """F35, F36, F37, F38, on each store: the same error, and the caller's transaction goes on."""
    if driver.supports_transactions:
        from django.db import transaction

        with transaction.atomic():
            with pytest.raises(InvalidPayload, match=r"argument 1|where"):
                echo.dispatch(value)
            Group.objects.create(name="goes on")
            assert echo.dispatch("good").stored
        assert Group.objects.count() == 1
    else:
        with pytest.raises(InvalidPayload):
            echo.dispatch(where=value)
        assert driver.queues() == []


def test_a_refusal_reaches_no_statement(database: Driver, register: Register) -> None:
    @register()
    def send(order_id: int) -> None: ...

    statements: list[str] = []

    def record(execute: Any, sql: str, *given: Any) -> Any:
        statements.append(sql)
        return execute(sql, *given)

    with connection.execute_wrapper(record):
        for wrong in (lambda: send.dispatch(), lambda: send.dispatch({1}), lambda: send.dispatch("x" * 2_000_000)):
            with pytest.raises(InvalidPayload):
                wrong()
    assert statements == []


@pytest.mark.parametrize(
    "value", [Group(name="a"), Group.objects, Group.objects.none()], ids=["row", "manager", "query"]
)
def test_a_model_instance_is_refused_with_the_cure(memory: Driver, echo: Any, value: Any) -> None:
    """F40"""
    with pytest.raises(InvalidPayload, match="primary key" if isinstance(value, Group) else "is not carried"):
        echo.dispatch(value)


@pytest.mark.parametrize("size", [7_900, 9_000, 1_000_000])
def test_a_big_payload_works_up_to_the_limit(driver: Driver, echo: Any, worker: Worker, size: int) -> None:
    """F44"""
    job_id = echo.dispatch("x" * size).id
    assert worker.work_once()
    assert driver.get(job_id) is None


@pytest.mark.parametrize("size", [1_100_000, 20_000_000])
def test_a_payload_over_the_limit_is_refused_and_the_connection_stays_usable(
    driver: Driver, echo: Any, size: int
) -> None:
    """F44"""
    with pytest.raises(InvalidPayload, match=r"PAYLOAD_LIMIT is 1048576\. Store the data and pass its key"):
        echo.dispatch("x" * size)
    assert echo.dispatch("small").stored


def test_the_limit_is_a_setting(memory: Driver, settings: Any, echo: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "PAYLOAD_LIMIT": 30}
    assert echo.dispatch(1).stored
    with pytest.raises(InvalidPayload, match="PAYLOAD_LIMIT is 30"):
        echo.dispatch("x" * 30)


@pytest.mark.parametrize("value", ["\U0001f600 \u2028 \x1b", "%s %(a)s ' \" \\ ; --", "", "\r\n\t"])
def test_text_of_any_kind_arrives(driver: Driver, worker: Worker, register: Register, value: str) -> None:
    seen: list[str] = []

    @register()
    def take(text: str) -> None:
        seen.append(text)

    take.dispatch(value)
    worker.work_once()
    assert seen == [value]


def test_values_of_every_kind_arrive_as_they_were(driver: Driver, worker: Worker, register: Register) -> None:
    """F37"""
    import uuid
    from decimal import Decimal

    seen: list[Any] = []

    @register()
    def take(*args: Any) -> None:
        seen.extend(args)

    given = (
        dt.date(2026, 2, 3),
        datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC),
        datetime(2026, 2, 3, tzinfo=ZoneInfo("UTC")).replace(tzinfo=dt.timezone(timedelta(hours=9))),
        dt.time(1, 2),
        timedelta(days=1, microseconds=1),
        uuid.UUID(int=1),
        Decimal("1.10"),
        (1, (2, [3])),
        2**70,
        {"$type": "date", "value": "x"},
        [None, True, 1.5],
    )
    take.dispatch(*given)
    worker.work_once()
    assert [(type(value), repr(value)) for value in seen] == [(type(value), repr(value)) for value in given]


# Naive and other times

ZONES = ["UTC", "America/New_York", "Asia/Tokyo"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("use_tz", [True, False])
def test_an_aware_time_is_the_instant_that_it_names(
    driver: Driver, settings: Any, echo: Any, use_tz: bool, zone: str
) -> None:
    """F45"""
    settings.USE_TZ, settings.TIME_ZONE = use_tz, zone
    moment = datetime(2090, 6, 1, 12, tzinfo=UTC)
    for given in (moment, moment.astimezone(ZoneInfo("Asia/Tokyo")), moment.astimezone(ZoneInfo("America/New_York"))):
        record = stored(driver, echo.using(available_at=given).dispatch().id)
        assert (record.state, record.available_at) == ("scheduled", moment)


@pytest.mark.parametrize("zone", ZONES)
def test_a_naive_time_is_an_error_under_use_tz(memory: Driver, settings: Any, echo: Any, zone: str) -> None:
    """F45"""
    settings.USE_TZ, settings.TIME_ZONE = True, zone
    with pytest.raises(InvalidOption, match="has no time zone, and USE_TZ is on"):
        echo.using(available_at=datetime(2090, 6, 1, 12))  # noqa: DTZ001


@pytest.mark.parametrize("zone", ZONES)
def test_a_naive_time_is_local_time_without_use_tz(driver: Driver, settings: Any, echo: Any, zone: str) -> None:
    """F45"""
    settings.USE_TZ, settings.TIME_ZONE = False, zone
    record = stored(driver, echo.using(available_at=datetime(2090, 6, 1, 12)).dispatch().id)  # noqa: DTZ001
    assert record.available_at == datetime(2090, 6, 1, 12, tzinfo=ZoneInfo(zone))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("use_tz", [True, False])
def test_a_time_at_the_ends_of_the_calendar_overflows_nothing(
    driver: Driver, settings: Any, register: Register, worker: Worker, use_tz: bool, zone: str
) -> None:
    """F45"""
    settings.USE_TZ, settings.TIME_ZONE = use_tz, zone
    ran: list[str] = []

    @register(retry_until=timedelta(days=3650))
    def run(name: str) -> None:
        ran.append(name)

    for tz in (UTC, ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")):
        assert (
            stored(driver, run.using(available_at=datetime.max.replace(tzinfo=tz)).dispatch("last").id).state
            == "scheduled"
        )
        assert (
            stored(driver, run.using(available_at=datetime.min.replace(tzinfo=tz)).dispatch("first").id).state
            == "ready"
        )
    if not use_tz:
        run.using(available_at=datetime.max).dispatch("last")  # noqa: DTZ901
        run.using(available_at=datetime.min).dispatch("first")  # noqa: DTZ901
    while worker.work_once():
        pass
    assert ran == ["first"] * (3 if use_tz else 4)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("use_tz", [True, False])
def test_jobs_run_on_time_under_every_setting(
    driver: Driver, settings: Any, register: Register, worker: Worker, use_tz: bool, zone: str
) -> None:
    """F45"""
    settings.USE_TZ, settings.TIME_ZONE = use_tz, zone
    ran: list[str] = []

    @register()
    def run(name: str) -> None:
        ran.append(name)

    now = datetime.now(UTC)
    run.using(available_at=now - timedelta(hours=1)).dispatch("past")
    run.using(available_at=now + timedelta(hours=1)).dispatch("future")
    run.using(delay=3600).dispatch("delayed")
    run.dispatch("now")
    while worker.work_once():
        pass
    assert ran == ["past", "now"]
    while worker.work_once(now=now + timedelta(hours=1, minutes=1)):
        pass
    assert sorted(ran[2:]) == ["delayed", "future"]


def test_a_job_that_was_due_long_ago_is_due_now_and_overtakes_nobody(driver: Driver, echo: Any) -> None:
    first = echo.dispatch()
    late = echo.using(available_at=datetime(2000, 1, 1, tzinfo=UTC)).dispatch()
    assert [record.id for record in driver.peek("default", limit=5)] == [first.id, late.id]
