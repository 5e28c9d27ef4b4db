"""The contract of what follows a job, on every driver: carried with it, stored with its end, caught once."""

from __future__ import annotations

from uuid import UUID

import pytest

from django_jobqueue.jobs.flows import RELAY, Flow, Step, read
from django_jobqueue.jobs.records import Complete, Fail, NewJob
from tests.drivers.contract import Clock, Store, attempt, new, superseded


def catching(store: Store, catch: NewJob, *steps: NewJob, catch_on: str | None = None) -> str:
    """A flow with a catch on the store's connection, unless another is named."""
    alias = store.driver.alias
    text = Flow(tuple(Step(alias, step) for step in steps), Step(catch_on or alias, catch)).write()
    assert text is not None
    return text


def stored(store: Store, job_id: UUID) -> bool:
    return store.driver.get(job_id) is not None


@pytest.mark.parametrize("flows", [["a"], ["a", "b"], ["a", None], [None, "ü" * 10]])
def test_a_flow_is_carried_to_the_worker(store: Store, flows: list[str | None]) -> None:
    jobs = [new(flow=flow) for flow in flows]
    assert store.push(*jobs) == {job.id for job in jobs}
    assert {held.id: held.flow for held in store.take()} == {job.id: job.flow for job in jobs}


def test_a_flow_stays_with_a_job_that_goes_back(store: Store, clock: Clock) -> None:
    store.dispatch(flow="rest")
    store.hand_back(store.take_one())
    store.release(store.take_one(), delay=0)
    store.release(store.take_one(), delay=5, record=attempt())
    clock.tick(5)
    store.stage()
    store.take_one()
    store.lose()
    assert store.take_one().flow == "rest"


def test_what_follows_is_stored_with_its_own_flow(store: Store) -> None:
    store.dispatch()
    following = new("next", flow="rest")
    store.complete(store.take_one(), following)
    held = store.take_one()
    assert (held.id, held.flow) == (following.id, "rest")


def test_what_follows_a_dead_letter_is_stored_with_it(store: Store) -> None:
    job = store.dispatch()
    catch = new("catch")
    assert store.settle(Fail(store.take_one(), attempt(), (catch,))) == {job.id}
    assert store.get(job).state == "failed"
    assert store.get(catch).state == "ready"


def test_a_lost_reservation_moves_no_chain(store: Store) -> None:
    old, current = superseded(store)
    step, catch = new("step"), new("catch")
    assert store.settle(Complete(old, (step,))) == set()
    assert store.settle(Fail(old, attempt(), (catch,))) == set()
    assert store.gone(step)
    assert store.gone(catch)
    assert store.get(current).state == "reserved"


def test_a_dead_letter_keeps_the_steps_and_not_the_catch(store: Store) -> None:
    step, catch = new("step"), new("catch")
    job = store.dispatch(flow=catching(store, catch, step))
    store.fail(store.take_one())
    (letter,) = store.driver.failed(job_id=job.id)
    assert store.retry(letter.number) == {letter.number}
    flow = read(store.take_one().flow)
    assert [kept.job.id for kept in flow.steps] == [step.id]
    assert flow.catch is None


def test_a_dead_letter_without_steps_keeps_no_flow(store: Store) -> None:
    store.dispatch(flow=catching(store, new("catch")))
    store.fail(store.take_one())
    store.retry(store.driver.last_failed_number())
    assert store.take_one().flow is None


def test_a_rescue_that_makes_a_dead_letter_stores_the_catch(store: Store) -> None:
    catch = new("catch", payload='{"args":[{"$type":"previous"}],"kwargs":{}}')
    job = store.dispatch("shop.deadly", max_attempts=1, flow=catching(store, catch))
    store.take_one()
    (rescued,) = store.lose()
    assert rescued.dead_lettered
    assert [follower.id for follower in rescued.then] == [catch.id]
    held = store.take_one()
    assert held.id == catch.id
    assert str(job.id) in held.payload
    assert "ReservationLost" in held.payload


def test_a_rescue_of_a_process_that_ended_stores_the_catch(store: Store, clock: Clock) -> None:
    catch = new("catch")
    store.dispatch(max_attempts=1, flow=catching(store, catch))
    held = store.take_one()
    rescued = store.driver.rescue_in_hand(held.id, held.token, max_attempts=3, now=clock.now)
    assert rescued is not None
    assert rescued.dead_lettered
    assert stored(store, catch.id)


def test_a_rescue_that_makes_no_dead_letter_stores_no_catch(store: Store) -> None:
    catch = new("catch")
    store.dispatch(max_attempts=3, flow=catching(store, catch))
    store.take_one()
    (rescued,) = store.lose()
    assert not rescued.dead_lettered
    assert rescued.then == ()
    assert not stored(store, catch.id)


def test_the_catch_of_another_connection_is_relayed(store: Store) -> None:
    catch = new("catch")
    store.dispatch(queue="mail", rank=-5, max_attempts=1, flow=catching(store, catch, catch_on="elsewhere"))
    store.take_one("mail")
    (rescued,) = store.lose()
    (relay,) = rescued.then
    assert (relay.name, relay.queue, relay.rank) == (RELAY, "mail", -5)
    held = store.take_one("mail")
    assert held.id == relay.id
    assert catch.id.hex in held.payload


@pytest.mark.parametrize("text", ["", "{", "[]", '{"steps":7}', '{"steps":[{"id":"x"}]}'])
def test_a_flow_that_cannot_be_read_keeps_no_job_from_becoming_a_dead_letter(store: Store, text: str) -> None:
    """F64"""
    job = store.dispatch(max_attempts=1, flow=text)
    store.take_one()
    store.lose()
    assert store.get(job).state == "failed"
    store.retry(store.driver.last_failed_number())
    assert store.take_one().flow == text
