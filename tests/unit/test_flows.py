"""The rest of a chain as text, and results in the arguments of a step."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any
from uuid import uuid4

import pytest

from django_jobqueue import PREVIOUS, InvalidPayload
from django_jobqueue.jobs.flows import RELAY, SPREAD, Callbacks, Flow, Step, caught, read, read_callbacks, read_step
from django_jobqueue.jobs.payloads import decode, encode, encode_result, fill, has_slot, with_slots
from django_jobqueue.jobs.records import AttemptRecord, BatchRecord, NewJob, Reservation

LIMIT = 1000


def no_secret(name: str) -> bool:
    return False


MOMENT = datetime(2030, 1, 1, tzinfo=UTC)
WITH_SLOT = '{"args":[{"$type":"previous"}],"kwargs":{}}'


def new(name: str = "a", **changes: Any) -> NewJob:
    given = {"id": uuid4(), "name": name, "queue": "q", "payload": '{"args":[],"kwargs":{}}', "format": 1}
    return NewJob(**{**given, **changes})


def held(**changes: Any) -> Reservation:
    given: dict[str, Any] = dict.fromkeys(Reservation._fields, None)
    return Reservation(**{**given, "id": uuid4(), "connection": "default", "queue": "mail", "rank": 0, **changes})


def step(connection: str = "default", **changes: Any) -> Step:
    return Step(connection, new(**changes))


def payload(*args: Any, **kwargs: Any) -> str:
    return encode(with_slots(args), with_slots(kwargs), (), LIMIT)


# Text


def test_a_flow_comes_back_from_its_text_as_it_was() -> None:
    steps = (
        step(),
        step("fast", name="ü", rank=-5, max_attempts=2, retry_for=1.5, delay=0.0, metadata='{"a":1}', masked="[]"),
        step(available_at=MOMENT),
    )
    flow = Flow(steps, step(delay=7))
    assert read(flow.write()) == flow


def test_nothing_that_follows_is_no_text() -> None:
    assert Flow().write() is None
    assert read(None) == Flow()


@pytest.mark.parametrize("text", ["", "{", "7", "[]", '{"steps":[7]}', '{"steps":[{"connection":"a","id":"x"}]}'])
def test_text_that_is_no_flow_is_refused(text: str) -> None:
    with pytest.raises(InvalidPayload, match="stored chain"):
        read(text)


# What follows


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "no id"},
        {"connection": 1},
        {"name": None},
        {"queue": 7},
        {"payload": {}},
        {"payload": "\ud800"},
        {"metadata": None},
        {"rank": "1"},
        {"format": None},
        {"delay": "soon"},
        {"delay": float("nan")},
        {"retry_for": 1e308},
        {"flow": {}},
    ],
)
def test_a_step_that_is_no_job_is_refused(changes: dict[str, Any]) -> None:
    """A store would refuse it when the job before it ends, and again at each further try."""
    step = {"connection": "default", "id": uuid4().hex, "name": "a", "queue": "q", "payload": "", "format": 1}
    assert read(json.dumps({"steps": [step]})).steps[0].job.name == "a"
    with pytest.raises(InvalidPayload):
        read(json.dumps({"steps": [{**step, **changes}]}))


def test_a_batch_whose_callbacks_are_no_jobs_calls_nobody() -> None:
    assert read_callbacks('{"chain": 7}') == Callbacks()
    assert read_callbacks('{"then": {"connection": "default"}}') == Callbacks()


def test_a_catch_whose_arguments_cannot_be_read_has_its_turn_all_the_same() -> None:
    """And says then what is wrong with it."""
    broken = Step("default", new("catch", payload='{"$type":"previous"'))
    flow = Flow(catch=broken).write()
    record = AttemptRecord(number=1, worker="", started="", waited=0, ran=0, exception_class="E", message="m")
    assert caught(flow, uuid4(), "a", "q", 0, "default", record) == (broken.job,)
    relayed = Step("elsewhere", new(SPREAD, payload="none"))
    (relay,) = caught(Flow(catch=relayed).write(), uuid4(), "a", "q", 0, "default", record)
    assert (relay.name, relay.flow) == (RELAY, None)


@pytest.mark.parametrize("text", ["none", '{"args":[7],"kwargs":{}}'])
def test_a_batch_that_cannot_be_read_has_its_turn_as_a_step_all_the_same(text: str) -> None:
    """Where the step before it is a batch, no worker could end that, and each would meet it again."""
    catch, broken = step(), Step("default", new(SPREAD, payload=text))
    chain = Flow(steps=(broken, step()), catch=catch).write()
    given: dict[str, Any] = {**dict.fromkeys(BatchRecord.__slots__), "id": uuid4(), "connection": "default"}
    record = BatchRecord(**{**given, "total": 0, "pending": 0, "failed": 0, "cancelled": 0})
    (job,) = Callbacks(chain=chain).at_the_end(record)
    assert (job.id, job.payload, read(job.flow)) == (broken.job.id, text, Flow(catch=catch))


def test_the_next_step_has_those_behind_it_as_its_flow() -> None:
    first, second = step(), step()
    catch = step()
    (following,) = Flow((first, second), catch).after(held(), "1", "", LIMIT, no_secret)
    assert following.id == first.job.id
    assert read(following.flow) == Flow((second,), catch)


def test_the_last_step_without_a_catch_has_no_flow() -> None:
    (following,) = Flow((step(),)).after(held(), "1", "", LIMIT, no_secret)
    assert following.flow is None


def test_after_the_last_step_nothing_follows() -> None:
    assert Flow((), step()).after(held(), "1", "", LIMIT, no_secret) == ()


def test_a_step_of_another_connection_is_carried_by_a_relay_of_the_jobs_queue() -> None:
    there = step("fast", delay=5)
    (relay,) = Flow((there, step())).after(held(queue="mail", rank=-3), "1", "", LIMIT, no_secret)
    assert (relay.name, relay.queue, relay.rank, relay.flow) == (RELAY, "mail", -3, None)
    ((text,), _) = decode(relay.payload, relay.format)
    carried = read_step(json.loads(text))
    assert (carried.connection, carried.job.id, carried.job.delay) == ("fast", there.job.id, 5)
    assert len(read(carried.job.flow).steps) == 1


def test_the_result_is_in_the_arguments_of_the_step_that_asks_for_it() -> None:
    (following,) = Flow((step(payload=WITH_SLOT),)).after(
        held(), encode_result((1, date(2030, 1, 2)), 99), "", LIMIT, no_secret
    )
    assert decode(following.payload, 1) == ([(1, date(2030, 1, 2))], {})
    assert following.max_attempts is None


@pytest.mark.parametrize(
    ("result", "error", "reason"),
    [
        ("", "result: a set is not JSON", "step before is missing. result: a set is not JSON"),
        (f'"{"x" * LIMIT}"', "", f"PAYLOAD_LIMIT is {LIMIT}"),
    ],
)
def test_a_step_that_asks_for_a_missing_result_fails_for_good_with_the_reason(
    result: str, error: str, reason: str
) -> None:
    (following,) = Flow((step(payload=WITH_SLOT, max_attempts=5),)).after(held(), result, error, LIMIT, no_secret)
    assert following.max_attempts == 1
    with pytest.raises(InvalidPayload, match=reason):
        decode(following.payload, 1)


def test_a_step_that_asks_for_nothing_runs_whatever_the_result_was() -> None:
    plain = step()
    (following,) = Flow((plain,)).after(held(), "", "a set is not JSON", LIMIT, no_secret)
    assert following == plain.job


def test_only_the_next_step_decides_whether_a_result_is_needed() -> None:
    assert Flow((step(payload=WITH_SLOT),)).asks_for_result
    assert not Flow((step(), step(payload=WITH_SLOT))).asks_for_result
    assert not Flow((), step(payload=WITH_SLOT)).asks_for_result


# Slots


@pytest.mark.parametrize(
    ("args", "filled"),
    [
        ((PREVIOUS,), [7]),
        (([PREVIOUS, {"a": PREVIOUS}], 1), [[7, {"a": 7}], 1]),
        (((PREVIOUS, date(2030, 1, 2)),), [(7, date(2030, 1, 2))]),
        (({"$type": PREVIOUS, "value": 1},), [{"$type": 7, "value": 1}]),
    ],
)
def test_previous_may_stand_anywhere_in_the_arguments(args: tuple[Any, ...], filled: list[Any]) -> None:
    text = payload(*args, key=PREVIOUS)
    assert has_slot(text)
    assert decode(fill(text, "7", LIMIT), 1) == (filled, {"key": 7})


@pytest.mark.parametrize(
    "value", [{"$type": "previous"}, {"$type": "previous", "value": None}, '{"$type":"previous"}', "PREVIOUS"]
)
def test_what_only_looks_like_a_slot_is_left_alone(value: Any) -> None:
    assert decode(fill(payload(value, PREVIOUS), "7", LIMIT), 1) == ([value, 7], {})


@pytest.mark.parametrize("args", [(PREVIOUS,), ([{"a": PREVIOUS}],)])
def test_previous_is_refused_where_no_step_is_before(args: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidPayload, match="PREVIOUS stands for the result of the step before"):
        encode(args, {}, (), LIMIT)


def test_arguments_that_hold_themselves_are_refused() -> None:
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(InvalidPayload, match="part of itself"):
        payload(knot)


def test_a_slot_that_was_never_filled_is_refused() -> None:
    with pytest.raises(InvalidPayload, match="cannot be read"):
        decode(WITH_SLOT, 1)


def test_previous_says_what_it_is() -> None:
    assert repr(PREVIOUS) == "PREVIOUS"
    assert replace(Flow(), steps=()) == Flow()
