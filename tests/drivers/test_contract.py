"""The driver contract on every driver, one behaviour a test; in the order of drivers/base.py."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from django_jobqueue.drivers.base import Driver
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import (
    MAX_KEPT_ATTEMPTS,
    Cause,
    Complete,
    Fail,
    FailedSummary,
    QueueSize,
    Release,
    Rescued,
    Reservation,
)
from tests.drivers.contract import (
    RETRY_AFTER,
    Clock,
    Store,
    at_once,
    attempt,
    ids,
    new,
    superseded,
)

# Dispatch


def test_a_pushed_job_is_ready_at_once(store: Store, clock: Clock) -> None:
    job = store.dispatch()
    record = store.get(job)
    assert (record.state, record.attempts, record.retries) == ("ready", 0, 0)
    assert record.created_at == record.available_at == record.ready_at == clock.now


def test_what_was_dispatched_is_what_a_worker_gets(store: Store, clock: Clock) -> None:
    job = store.dispatch(
        "shop.sync ☃",
        queue="почта",
        payload='{"args":["\\u2603 100% of \'it\' \\\\"],"kwargs":{}}',
        format=7,
        rank=-100,
        max_attempts=5,
        retry_for=60,
        metadata='{"user":7}',
        masked='[["args",0]]',
    )
    reservation = store.take_one("почта")
    assert reservation.id == job.id
    assert reservation.queue == job.queue
    assert reservation.name == job.name
    assert reservation.payload == job.payload
    assert reservation.format == 7
    assert reservation.rank == -100
    assert reservation.max_attempts == 5
    assert reservation.retry_until == clock.after(60)
    assert reservation.metadata == job.metadata
    assert reservation.masked == job.masked
    assert reservation.created_at == clock.now


def test_what_was_dispatched_is_what_a_person_sees(store: Store) -> None:
    job = store.dispatch("shop.sync", rank=-10, max_attempts=5, metadata='{"user":7}', masked="[]")
    record = store.get(job)
    assert (record.id, record.name, record.queue) == (job.id, "shop.sync", "default")
    assert (record.priority, record.max_attempts) == (10, 5)
    assert (record.payload, record.format) == (job.payload, 1)
    assert (record.metadata, record.masked) == (job.metadata, job.masked)
    assert record.connection == store.driver.alias


def test_names_of_the_greatest_length_are_carried_whole(store: Store) -> None:
    job = store.dispatch("ж" * 255, queue="ü" * 100)
    assert store.take_one("ü" * 100).name == job.name


def test_a_payload_of_a_mebibyte_is_carried_whole(store: Store) -> None:
    job = store.dispatch(payload='"' + "x" * 1_048_574 + '"')
    assert store.take_one().payload == job.payload


def test_queues_that_differ_in_case_or_accent_only_are_two(store: Store) -> None:
    store.dispatch("upper", queue="Mail")
    store.dispatch("accent", queue="máil")
    assert store.take("mail") == []
    assert store.take_one("Mail").name == "upper"
    assert store.take_one("máil").name == "accent"


def test_a_delayed_job_is_scheduled(store: Store, clock: Clock) -> None:
    job = store.dispatch(delay=60)
    record = store.get(job)
    assert (record.state, record.available_at) == ("scheduled", clock.after(60))
    assert store.take() == []


def test_a_delay_of_zero_is_ready_at_once(store: Store) -> None:
    job = store.dispatch(delay=0)
    assert store.take_one().id == job.id


@pytest.mark.parametrize("count", [1, 2])  # a push of many is another statement
def test_a_delay_of_less_than_a_microsecond_is_none(store: Store, count: int) -> None:
    jobs = [new(delay=1e-7) for _ in range(count)]
    store.push(*jobs)
    assert {store.get(job).state for job in jobs} == {"ready"}


def test_a_delay_of_less_than_a_millisecond_is_kept(store: Store, clock: Clock) -> None:
    job = store.dispatch(delay=0.0001)
    assert store.get(job).available_at == clock.now + timedelta(microseconds=100)


def test_a_job_for_a_later_moment_is_scheduled_for_it(store: Store, clock: Clock) -> None:
    job = store.dispatch(available_at=clock.after(3600.25))
    record = store.get(job)
    assert (record.state, record.available_at) == ("scheduled", clock.after(3600.25))


def test_a_moment_in_another_time_zone_is_the_same_moment(store: Store, clock: Clock) -> None:
    from zoneinfo import ZoneInfo

    job = store.dispatch(available_at=clock.after(60).astimezone(ZoneInfo("Asia/Tokyo")))
    assert store.get(job).available_at == clock.after(60)


def test_a_job_for_a_past_moment_is_ready_from_now_on(store: Store, clock: Clock) -> None:
    store.dispatch("first")
    clock.tick()
    job = store.dispatch("past", available_at=clock.after(-3600))
    assert store.get(job).ready_at == clock.now
    assert store.order() == ["first", "past"]


def test_retry_until_counts_from_when_a_delayed_job_is_due(store: Store, clock: Clock) -> None:
    due = clock.after(60)
    store.dispatch(delay=60, retry_for=10)
    clock.tick(60)
    store.stage()
    assert store.take_one().retry_until == due + timedelta(seconds=10)


def test_retry_until_counts_from_available_at(store: Store, clock: Clock) -> None:
    due = clock.after(60)
    store.dispatch(available_at=due, retry_for=10)
    clock.tick(61)
    store.stage()
    assert store.take_one().retry_until == due + timedelta(seconds=10)


def test_retry_until_counts_from_a_past_moment_too(store: Store, clock: Clock) -> None:
    store.dispatch(available_at=clock.after(-60), retry_for=10)
    assert store.take_one().retry_until == clock.after(-50)


def test_a_job_without_retry_for_is_retried_at_any_time(store: Store) -> None:
    store.dispatch()
    assert store.take_one().retry_until is None


def test_many_jobs_are_pushed_at_once_and_run_in_their_order(store: Store) -> None:
    jobs = [new(f"job-{number}") for number in range(1200)]
    assert store.push(*jobs) == ids(jobs)
    assert [job.id for job in store.take(rows=1500)] == [job.id for job in jobs]


def test_a_push_of_many_keeps_what_each_was_told(store: Store, clock: Clock) -> None:
    late, other, ready = new(delay=60), new(queue="mail", rank=-5), new(max_attempts=9)
    store.push(late, other, ready)
    assert store.get(late).available_at == clock.after(60)
    assert (store.get(other).queue, store.get(other).priority) == ("mail", 5)
    assert store.get(ready).max_attempts == 9


def test_a_push_of_many_carries_any_text(store: Store) -> None:
    texts = ["", "NULL", "null", "{a,b}", 'say "it"', "it's", "back\\slash", "\\", '"', "100% %s", " , ", "\n\t", "☃"]
    jobs = [new("shop.work", payload=text, metadata=text, masked=text) for text in texts]
    store.push(*jobs)
    taken = store.take(rows=len(jobs))
    assert [(job.payload, job.metadata, job.masked) for job in taken] == [(text, text, text) for text in texts]


def test_a_push_of_nothing_stores_nothing(store: Store) -> None:
    assert store.push() == set()
    assert store.driver.queues() == []


def test_a_job_pushed_again_is_left_alone(store: Store) -> None:
    job = store.dispatch("first")
    assert store.push(job._replace(name="second")) == set()
    assert store.order() == ["first"]


def test_a_push_names_only_the_jobs_that_it_stored(store: Store) -> None:
    known, unknown = store.dispatch(), new()
    assert store.push(known, unknown) == {unknown.id}
    assert len(store.take()) == 2


def test_a_job_twice_in_one_push_is_stored_once(store: Store) -> None:
    job = new()
    assert store.push(job, job) == {job.id}
    assert len(store.take()) == 1


def test_of_two_jobs_under_one_id_the_first_is_stored(store: Store) -> None:
    first = new("first")
    assert store.push(first, new("other"), first._replace(name="second")) >= {first.id}
    assert store.order() == ["first", "other"]


def test_a_reserved_job_pushed_again_stays_reserved(store: Store) -> None:
    job = store.dispatch()
    reservation = store.take_one()
    assert store.push(job) == set()
    assert store.take() == []
    assert store.complete(reservation) == {job.id}


# The queues


def test_a_store_without_jobs_has_no_queues(store: Store) -> None:
    assert store.driver.queues() == []


def test_queues_are_those_that_hold_a_job_in_any_state_sorted(store: Store) -> None:
    store.dispatch(queue="b")
    store.dispatch(queue="b")
    store.dispatch(queue="c", delay=60)
    store.dispatch(queue="a")
    store.take_one("a")
    assert store.driver.queues() == ["a", "b", "c"]


def test_queues_are_sorted_by_code_point_whatever_the_collation(store: Store) -> None:
    for queue in ("b", "B", "a", "ä"):
        store.dispatch(queue=queue)
    assert store.driver.queues() == ["B", "a", "b", "ä"]


def test_a_queue_goes_with_its_last_job(store: Store) -> None:
    store.dispatch()
    store.complete(store.take_one())
    assert store.driver.queues() == []


def test_a_dead_letter_makes_no_queue(store: Store) -> None:
    store.bury(new())
    assert store.driver.queues() == []


# Staging


def test_staging_makes_due_jobs_ready(store: Store, clock: Clock) -> None:
    jobs = [store.dispatch(delay=60), store.dispatch(delay=50)]
    clock.tick(61)
    assert store.stage() == 2
    assert ids(store.take()) == ids(jobs)


def test_a_job_is_due_at_its_very_moment_and_not_before(store: Store, clock: Clock) -> None:
    store.dispatch(delay=60)
    clock.tick(59.999)
    assert store.stage() == 0
    clock.tick(0.001)
    assert store.stage() == 1


def test_a_staged_job_is_ready_from_the_moment_of_staging(store: Store, clock: Clock) -> None:
    job = store.dispatch("delayed", delay=1)
    clock.tick(10)
    store.dispatch("waited longer")
    clock.tick(10)
    store.stage()
    assert store.get(job).ready_at == clock.now
    assert store.order() == ["waited longer", "delayed"]


def test_staging_keeps_the_time_at_which_a_job_was_due(store: Store, clock: Clock) -> None:
    job = store.dispatch(delay=1)
    due = clock.after(1)
    clock.tick(10)
    store.stage()
    assert store.get(job).available_at == due


def test_staging_takes_the_earliest_first_and_no_more_than_its_limit(store: Store, clock: Clock) -> None:
    for delay in (30, 10, 20):
        store.dispatch(f"after {delay}", delay=delay)
    clock.tick(60)
    assert store.stage(limit=2) == 2
    assert set(store.order()) == {"after 10", "after 20"}
    assert store.stage(limit=2) == 1
    assert store.stage(limit=2) == 0


def test_staging_serves_its_own_queue_only(store: Store, clock: Clock) -> None:
    store.dispatch("mine", delay=1)
    store.dispatch("other", queue="mail", delay=1)
    clock.tick()
    assert store.stage() == 1
    assert store.order("mail") == []


def test_staged_jobs_keep_their_priority(store: Store, clock: Clock) -> None:
    store.dispatch("low", delay=1)
    store.dispatch("high", delay=2, rank=-5)
    clock.tick(3)
    store.stage()
    assert store.order() == ["high", "low"]


# Reserving: the order


def test_higher_priority_runs_first(store: Store, clock: Clock) -> None:
    for rank in (0, 100, -100):
        store.dispatch(f"priority {-rank}", rank=rank)
        clock.tick()
    assert [job.name for job in store.take()] == ["priority 100", "priority 0", "priority -100"]


def test_of_one_priority_the_job_that_was_ready_first_runs_first(store: Store, clock: Clock) -> None:
    lower_id, higher_id = new("ready last"), new("ready first")
    store.push(higher_id)
    clock.tick()
    store.push(lower_id)
    assert [job.name for job in store.take()] == ["ready first", "ready last"]


def test_of_one_moment_the_lower_id_runs_first(store: Store) -> None:
    first, second, third = new("a"), new("b"), new("c")
    store.push(third, first, second)
    assert [job.name for job in store.take()] == ["a", "b", "c"]


def test_a_job_that_releases_itself_goes_behind_those_that_wait(store: Store, clock: Clock) -> None:
    store.push(new("selfish"), new("patient"), new("last"))
    for expected in ("selfish", "patient", "last", "selfish"):
        clock.tick()
        reservation = store.take_one()
        assert reservation.name == expected
        store.release(reservation)


def test_jobs_of_other_queues_are_not_taken(store: Store) -> None:
    store.dispatch("other", queue="mail")
    mine = store.dispatch("mine")
    assert ids(store.take()) == {mine.id}


def test_peek_shows_the_order_of_running_and_changes_nothing(store: Store, clock: Clock) -> None:
    store.dispatch("second")
    clock.tick()
    store.dispatch("third")
    store.dispatch("first", rank=-1)
    for _ in range(2):
        records = store.driver.peek("default", limit=2)
        assert [record.name for record in records] == ["first", "second"]
    assert [(job.name, job.attempt) for job in store.take(rows=2)] == [("first", 1), ("second", 1)]


def test_peek_shows_ready_jobs_only(store: Store) -> None:
    store.dispatch("reserved")
    store.take_one()
    store.dispatch("scheduled", delay=60)
    store.dispatch("other", queue="mail")
    assert store.order() == []


# Reserving: what a reservation is


def test_an_empty_queue_gives_nothing(store: Store) -> None:
    reserved = store.reserve()
    assert reserved.jobs == []
    assert not reserved.more


def test_a_reservation_is_for_a_worker_and_a_time(store: Store, clock: Clock) -> None:
    store.dispatch()
    ready_at = clock.now
    clock.tick()
    reservation = store.take_one(worker="host:7", retry_after=12.5)
    assert reservation.worker == "host:7"
    assert reservation.connection == store.driver.alias
    assert reservation.ready_at == ready_at
    assert reservation.reserved_at == clock.now
    assert reservation.reserved_until == clock.after(12.5)


def test_a_reserved_job_shows_who_has_it_and_until_when(store: Store, clock: Clock) -> None:
    job = store.dispatch()
    store.take_one(worker="host:7")
    record = store.get(job)
    assert (record.state, record.worker, record.attempts) == ("reserved", "host:7", 1)
    assert record.reserved_until == clock.after(RETRY_AFTER)


def test_a_reserved_job_is_not_given_to_another_worker(store: Store) -> None:
    store.dispatch()
    assert len(store.take(worker="w1")) == 1
    assert store.take(worker="w2") == []


def test_every_reserve_spends_an_attempt(store: Store) -> None:
    store.dispatch(max_attempts=9)
    for number in (1, 2, 3):
        reservation = store.take_one()
        assert reservation.attempt == number
        store.release(reservation, record=attempt(number))


def test_every_reserve_has_a_token_of_its_own(store: Store) -> None:
    store.push(new(), new())
    first, second = store.take()
    store.hand_back(first)
    again = store.take_one()
    assert again.id == first.id
    assert again.token not in {first.token, second.token}


def test_two_workers_at_once_never_get_the_same_job(store: Store) -> None:
    jobs = [new() for _ in range(60)]
    store.push(*jobs)

    def work() -> list[Reservation]:
        taken = []
        while reservations := store.take(rows=5):
            taken += reservations
        return taken

    taken = [job.id for found in at_once(3, work) for job in found]
    assert len(taken) == len(set(taken))
    # A worker may find the rows of another locked and leave: the rest is there for the next one.
    assert {*taken, *ids(work())} == ids(jobs)


# Reserving: how much


def test_a_reserve_takes_no_more_rows_than_asked(store: Store) -> None:
    store.push(*(new(name) for name in "abc"))
    reserved = store.reserve(rows=2)
    assert [job.name for job in reserved.jobs] == ["a", "b"]
    assert reserved.more


def test_a_full_batch_says_that_more_may_wait(store: Store) -> None:
    store.push(new(), new())
    assert store.reserve(rows=2).more


def test_a_batch_that_was_not_full_says_that_nothing_waits(store: Store) -> None:
    store.push(new(), new())
    assert not store.reserve(rows=3).more


def test_a_batch_is_not_alone(store: Store) -> None:
    store.push(new(), new())
    assert [job.alone for job in store.take()] == [False, False]


def test_a_batch_of_one_row_is_alone(store: Store) -> None:
    store.push(new(), new())
    assert store.take_one().alone
    assert [job.alone for job in store.take(rows=10)] == [True]


def test_a_job_on_its_last_attempt_is_taken_alone(store: Store) -> None:
    store.push(new("last chance", max_attempts=1), new("next"))
    reserved = store.reserve()
    assert [(job.name, job.alone) for job in reserved.jobs] == [("last chance", True)]
    assert reserved.more


def test_a_batch_ends_before_a_job_that_must_go_alone(store: Store) -> None:
    store.push(new("a"), new("b"), new("last chance", max_attempts=1), new("c"))
    reserved = store.reserve()
    assert [(job.name, job.alone) for job in reserved.jobs] == [("a", False), ("b", False)]
    assert reserved.more
    assert [job.name for job in store.take()] == ["last chance"]
    assert [job.name for job in store.take()] == ["c"]


def test_a_job_without_a_limit_has_the_workers(store: Store) -> None:
    store.push(new("a"), new("b"))
    assert [job.name for job in store.take(max_attempts=1)] == ["a"]


def test_a_job_with_a_limit_has_its_own(store: Store) -> None:
    store.push(new("a", max_attempts=2), new("b", max_attempts=2))
    assert len(store.take(max_attempts=1)) == 2


def test_the_last_attempt_is_counted_from_those_spent(store: Store) -> None:
    store.push(new("a", max_attempts=2), new("b", max_attempts=2))
    for reservation in store.take():
        store.release(reservation, record=attempt())
    assert [(job.name, job.attempt, job.alone) for job in store.take()] == [("a", 2, True)]


def test_a_job_that_was_lost_once_is_taken_alone(store: Store) -> None:
    store.push(new("lost", rank=-1), new("lost too", rank=-1), new("fresh"))
    store.take(rows=2)
    store.lose()
    assert [(job.name, job.crashes, job.alone) for job in store.take()] == [("lost", 1, True)]
    assert [(job.name, job.crashes, job.alone) for job in store.take()] == [("lost too", 1, True)]
    assert [(job.name, job.crashes) for job in store.take()] == [("fresh", 0)]


def test_a_batch_is_as_long_as_the_averages_of_its_jobs_allow(store: Store) -> None:
    store.push(*(new(name) for name in ("quick", "quick", "slow", "quick")))
    averages = {"quick": 0.01, "slow": 0.09}
    reserved = store.reserve(seconds=0.1, averages=averages)
    assert [job.name for job in reserved.jobs] == ["quick", "quick"]
    assert reserved.more
    assert [job.name for job in store.take(seconds=0.1, averages=averages)] == ["slow", "quick"]


def test_a_job_slower_than_the_whole_time_is_taken_all_the_same(store: Store) -> None:
    store.push(new("slow"), new("slow"))
    assert len(store.take(seconds=0.1, averages={"slow": 5.0})) == 1


def test_a_job_without_an_average_fills_the_whole_time(store: Store) -> None:
    store.push(new("unknown"), new("quick"))
    assert [job.name for job in store.take(seconds=0.1, averages={"quick": 0.01})] == ["unknown"]


def test_a_batch_of_known_jobs_ends_before_an_unknown_one(store: Store) -> None:
    store.push(new("quick"), new("quick"), new("unknown"))
    assert len(store.take(seconds=0.1, averages={"quick": 0.01})) == 2


def test_jobs_that_were_left_out_of_a_batch_are_untouched(store: Store) -> None:
    store.dispatch("taken", rank=-1)
    left = store.dispatch("left", max_attempts=1)
    before = store.get(left)
    store.take()
    assert store.get(left) == before


def test_a_reserve_goes_on_behind_the_last_row_taken(store: Store) -> None:
    store.push(*(new(name) for name in "abcd"))
    first = store.take(rows=2)
    rest = store.take(rows=10, after=first[-1].position)
    assert [job.name for job in rest] == ["c", "d"]


def test_a_reserve_goes_on_into_the_next_rank(store: Store, clock: Clock) -> None:
    store.dispatch("low, and waits longest", rank=5)
    clock.tick()
    store.push(new("high"), new("high"))
    first = store.take_one()
    rest = store.take(rows=10, after=first.position)
    assert [job.name for job in rest] == ["high", "low, and waits longest"]


# Renewing


def test_a_renewed_reservation_lives_from_now_on(store: Store, clock: Clock) -> None:
    job = store.dispatch()
    reservation = store.take_one()
    clock.tick(RETRY_AFTER - 1)
    assert store.renew(reservation) == set()
    assert store.get(job).reserved_until == clock.after(RETRY_AFTER)
    clock.tick(RETRY_AFTER - 1)
    assert store.rescue() == []


def test_a_renewed_reservation_expires_too(store: Store) -> None:
    job = store.dispatch()
    store.renew(store.take_one())
    assert ids(store.lose()) == {job.id}


def test_a_renewal_spends_nothing(store: Store) -> None:
    store.dispatch()
    reservation = store.take_one()
    store.renew(reservation)
    store.hand_back(reservation)
    assert store.take_one().attempt == 1


def test_an_expired_reservation_that_nobody_rescued_can_be_renewed(store: Store, clock: Clock) -> None:
    store.dispatch()
    reservation = store.take_one()
    clock.tick(RETRY_AFTER + 1)
    assert store.renew(reservation) == set()
    assert store.rescue() == []


def test_a_renewal_names_the_jobs_that_are_lost(store: Store) -> None:
    store.push(new(), new(), new())
    held, completed, handed_back = store.take()
    store.complete(completed)
    store.hand_back(handed_back)
    assert store.renew(held, completed, handed_back) == {completed.id, handed_back.id}


def test_a_renewal_of_nothing_loses_nothing(store: Store) -> None:
    assert store.renew() == set()


# Handing back


def test_a_job_handed_back_has_its_attempt_and_its_place_again(store: Store, clock: Clock) -> None:
    store.dispatch("handed back")
    ready_at = clock.now
    clock.tick()
    store.dispatch("behind")
    reservation = store.take_one()
    clock.tick()
    assert store.hand_back(reservation) == {reservation.id}
    assert store.order() == ["handed back", "behind"]
    again = store.take_one()
    assert (again.attempt, again.ready_at, again.crashes) == (1, ready_at, 0)


def test_a_job_handed_back_shows_no_worker(store: Store) -> None:
    job = store.dispatch()
    store.hand_back(store.take_one())
    record = store.get(job)
    assert (record.state, record.worker, record.reserved_until) == ("ready", "", None)


def test_many_jobs_are_handed_back_at_once(store: Store) -> None:
    store.push(*(new(name) for name in "abcdefg"))
    first, *rest = store.take()
    assert store.hand_back(*rest) == ids(rest)
    assert store.order() == list("bcdefg")
    assert store.complete(first) == {first.id}


def test_a_hand_back_names_only_the_jobs_that_were_ours(store: Store) -> None:
    store.push(new(), new())
    completed, held = store.take()
    store.complete(completed)
    assert store.hand_back(completed, held) == {held.id}


def test_a_hand_back_of_nothing_does_nothing(store: Store) -> None:
    assert store.hand_back() == set()


def test_a_worker_that_ends_hands_back_everything_it_holds(store: Store, clock: Clock) -> None:
    store.push(new("a"), new("b"), new("c", queue="mail"))
    old = [*store.take(worker="dead"), *store.take("mail", worker="dead")]
    clock.tick()
    assert store.driver.release_worker("dead", now=clock.now) == 3
    assert store.order() == ["a", "b"]
    assert store.order("mail") == ["c"]
    assert {job.attempt for job in store.take()} == {1}
    assert store.settle(*(Complete(reservation) for reservation in old)) == set()


def test_a_worker_that_ends_leaves_the_jobs_of_others(store: Store, clock: Clock) -> None:
    store.push(new(), new())
    store.take_one(worker="w10")
    store.take_one(worker="W1")
    assert store.driver.release_worker("w1", now=clock.now) == 0
    assert store.order() == []


# Settling


def test_a_completed_job_is_gone(store: Store) -> None:
    job = store.dispatch()
    assert store.complete(store.take_one()) == {job.id}
    assert store.gone(job)


def test_many_jobs_are_completed_at_once(store: Store) -> None:
    jobs = [new() for _ in range(600)]
    store.push(*jobs)
    reservations = store.take(rows=600)
    assert store.settle(*map(Complete, reservations)) == ids(jobs)
    assert store.driver.queues() == []


def test_a_settle_of_nothing_does_nothing(store: Store) -> None:
    assert store.settle() == set()


def test_one_settle_may_end_jobs_in_different_ways(store: Store) -> None:
    store.push(new("completed"), new("released"), new("failed"))
    completed, released, failed = reservations = store.take()
    outcome = store.settle(Complete(completed), Release(released, 5, attempt()), Fail(failed, attempt()))
    assert outcome == ids(reservations)
    assert store.gone(completed)
    assert store.get(released).state == "scheduled"
    assert store.get(failed).state == "failed"


def test_an_expired_reservation_that_nobody_rescued_can_be_settled(store: Store, clock: Clock) -> None:
    job = store.dispatch()
    reservation = store.take_one()
    clock.tick(RETRY_AFTER + 1)
    assert store.complete(reservation) == {job.id}


def test_a_job_is_settled_once(store: Store) -> None:
    store.dispatch()
    reservation = store.take_one()
    store.complete(reservation)
    assert store.complete(reservation) == set()
    assert store.fail(reservation) == set()
    assert store.driver.failed_count() == 0


def test_a_release_on_request_spends_no_attempt(store: Store, clock: Clock) -> None:
    store.dispatch()
    reservation = store.take_one()
    clock.tick()
    assert store.release(reservation) == {reservation.id}
    again = store.take_one()
    assert (again.attempt, again.exceptions, again.ready_at) == (1, 0, clock.now)
    assert store.get(again).errors.total == 0


def test_a_release_on_request_may_wait(store: Store, clock: Clock) -> None:
    job = store.dispatch()
    store.release(store.take_one(), delay=30)
    record = store.get(job)
    assert (record.state, record.available_at) == ("scheduled", clock.after(30))
    assert record.attempts == 0


def test_a_failed_attempt_is_spent_and_written_down(store: Store, clock: Clock) -> None:
    job = store.dispatch()
    failure = attempt(1, "it's 100% \\ broken ☃")
    store.release(store.take_one(), 10, failure)
    record = store.get(job)
    assert (record.state, record.available_at, record.attempts) == (
        "scheduled",
        clock.after(10),
        1,
    )
    assert (record.errors.total, record.errors.last) == (1, (failure,))
    assert (record.worker, record.reserved_until) == ("", None)


def test_failed_attempts_are_counted(store: Store, clock: Clock) -> None:
    store.dispatch(max_attempts=9)
    for number in (1, 2):
        store.release(store.take_one(), record=attempt(number))
    reservation = store.take_one()
    assert (reservation.attempt, reservation.exceptions) == (3, 2)


def test_a_backoff_of_zero_makes_a_job_ready_at_once(store: Store, clock: Clock) -> None:
    job = store.dispatch()
    reservation = store.take_one()
    clock.tick()
    store.release(reservation, 0, attempt())
    record = store.get(job)
    assert (record.state, record.ready_at) == ("ready", clock.now)


def test_a_release_for_less_than_a_microsecond_makes_a_job_ready_at_once(store: Store) -> None:
    store.dispatch()
    store.release(store.take_one(), delay=1e-7)
    assert store.order() == ["shop.work"]


def test_a_released_job_runs_again_when_it_was_staged(store: Store, clock: Clock) -> None:
    job = store.dispatch()
    store.release(store.take_one(), 10, attempt())
    clock.tick(10)
    assert store.take() == []
    assert store.stage() == 1
    assert store.take_one().id == job.id


def test_a_release_keeps_retry_until(store: Store, clock: Clock) -> None:
    until = clock.after(60)
    store.dispatch(retry_for=60)
    clock.tick()
    store.release(store.take_one(), 0, attempt())
    assert store.take_one().retry_until == until


def test_the_last_attempts_are_kept_and_all_are_counted(store: Store) -> None:
    job = store.dispatch(max_attempts=99)
    count = MAX_KEPT_ATTEMPTS + 3
    for number in range(1, count + 1):
        store.release(store.take_one(), 0, attempt(number))
    errors = store.get(job).errors
    assert errors.total == count
    assert [record.number for record in errors.last] == list(range(4, count + 1))


def test_a_failed_job_becomes_a_dead_letter(store: Store, clock: Clock) -> None:
    job = store.dispatch("shop.broken", queue="mail", rank=-3, metadata='{"user":7}', masked="[]")
    reservation = store.take_one("mail")
    clock.tick()
    failure = attempt(1, "no ☃")
    assert store.fail(reservation, failure) == {job.id}
    record = store.get(job)
    assert (record.id, record.state, record.attempts) == (job.id, "failed", 1)
    assert (record.name, record.queue, record.priority) == ("shop.broken", "mail", 3)
    assert (record.payload, record.format) == (job.payload, job.format)
    assert (record.metadata, record.masked) == (job.metadata, job.masked)
    assert (record.exception_class, record.exception_message) == (
        "ValueError",
        "no ☃",
    )
    assert (record.errors.total, record.errors.last) == (1, (failure,))
    assert (record.failed_at, record.created_at) == (clock.now, clock.after(-1))
    assert record.connection == store.driver.alias
    assert record.number is not None


def test_a_failed_job_waits_nowhere(store: Store, clock: Clock) -> None:
    store.bury(new())
    assert store.take() == []
    assert store.lose() == []
    assert store.stage() == 0


def test_a_dead_letter_of_a_delayed_job_shows_when_it_was_dispatched_only(store: Store, clock: Clock) -> None:
    job = store.dispatch(delay=60)
    dispatched = clock.now
    clock.tick(60)
    store.stage()
    store.fail(store.take_one())
    record = store.get(job)
    assert record.created_at == record.available_at == dispatched
    assert record.ready_at is None


def test_dead_letters_that_are_longer_together_than_a_statement_may_be_are_kept(store: Store) -> None:
    """MySQL ends the connection over it, as if it were down."""
    payload = f'{{"args":["{"x" * 1_000_000}"],"kwargs":{{}}}}'
    for _ in range(17):
        store.push(new(payload=payload))
    held = store.take(rows=17)
    assert store.settle(*(Fail(job, attempt()) for job in held)) == ids(held)
    assert store.driver.failed_count() == 17


def test_a_dead_letter_has_the_record_of_every_attempt(store: Store) -> None:
    job = store.dispatch()
    store.release(store.take_one(), 0, attempt(1, "first"))
    store.fail(store.take_one(), attempt(2, "second"))
    record = store.get(job)
    assert [error.message for error in record.errors.last] == ["first", "second"]
    assert (record.attempts, record.exception_message) == (2, "second")


def test_many_jobs_fail_at_once(store: Store) -> None:
    jobs = [new() for _ in range(5)]
    store.push(*jobs)
    store.settle(*(Fail(reservation, attempt()) for reservation in store.take()))
    assert ids(store.driver.failed()) == ids(jobs)


# Settling: what follows a job


def test_what_follows_a_completed_job_is_stored_with_it(store: Store, clock: Clock) -> None:
    store.dispatch("first")
    reservation = store.take_one()
    clock.tick()
    now, other, late = new("now"), new("other", queue="mail"), new("late", delay=60)
    assert store.complete(reservation, now, other, late) == {reservation.id}
    assert store.order() == ["now"]
    assert store.order("mail") == ["other"]
    assert store.get(late).available_at == clock.after(60)
    assert store.get(now).created_at == clock.now


def test_what_follows_a_job_that_was_lost_is_not_stored(store: Store) -> None:
    old, _ = superseded(store)
    after = new("after")
    assert store.complete(old, after) == set()
    assert store.gone(after)


def test_what_follows_a_job_that_was_lost_and_is_held_again_is_not_stored(store: Store) -> None:
    old, current = superseded(store)
    assert store.settle(Complete(old, (new("after old"),)), Complete(current, (new("after current"),))) == {current.id}
    assert store.order() == ["after current"]


def test_in_one_settle_only_the_jobs_that_are_ours_are_followed(store: Store) -> None:
    store.push(new("a"), new("b"), new("c"))
    first, lost, third = store.take()
    store.hand_back(lost)
    settled = store.settle(
        Complete(first, (new("after a"),)),
        Complete(lost, (new("after b"),)),
        Complete(third, (new("after c"),)),
    )
    assert settled == {first.id, third.id}
    assert sorted(store.order()) == ["after a", "after c", "b"]


def test_what_follows_and_is_there_already_is_left_alone(store: Store) -> None:
    store.dispatch("first")
    reservation = store.take_one()
    following = store.dispatch("following")
    assert store.complete(reservation, following) == {reservation.id}
    assert store.order() == ["following"]


# A worker that was superseded


@pytest.mark.parametrize(
    "settlement",
    [
        Complete,
        lambda reservation: Release(reservation, 0),
        lambda reservation: Release(reservation, 30),
        lambda reservation: Release(reservation, 0, attempt()),
        lambda reservation: Release(reservation, 30, attempt()),
        lambda reservation: Fail(reservation, attempt()),
    ],
    ids=[
        "complete",
        "release",
        "release later",
        "release, failed",
        "release later, failed",
        "fail",
    ],
)
def test_a_superseded_worker_cannot_settle(store: Store, settlement) -> None:
    old, current = superseded(store)
    before = store.get(current)
    assert store.settle(settlement(old)) == set()
    assert store.get(current) == before
    assert store.driver.failed_count() == 0
    assert store.complete(current) == {current.id}


def test_a_superseded_worker_cannot_renew(store: Store, clock: Clock) -> None:
    old, current = superseded(store)
    before = store.get(current)
    clock.tick()
    assert store.renew(old) == {old.id}
    assert store.get(current) == before


def test_a_superseded_worker_cannot_hand_back(store: Store) -> None:
    old, current = superseded(store)
    before = store.get(current)
    assert store.hand_back(old) == set()
    assert store.get(current) == before


def test_a_superseded_worker_that_has_the_job_again_holds_the_new_one_only(store: Store) -> None:
    store.dispatch(max_attempts=5)
    old = store.take_one(worker="same")
    store.lose()
    current = store.take_one(worker="same")
    assert store.complete(old) == set()
    assert store.complete(current) == {current.id}


def test_a_worker_whose_job_was_rescued_cannot_settle_it(store: Store) -> None:
    store.dispatch()
    old = store.take_one()
    store.lose()
    assert store.settle(Complete(old)) == set()
    assert store.order() == ["shop.work"]


def test_a_worker_whose_job_became_a_dead_letter_cannot_settle_it(store: Store) -> None:
    store.dispatch(max_attempts=1)
    old = store.take_one()
    store.lose()
    assert store.settle(Complete(old, (new("after"),))) == set()
    assert store.order() == []
    assert store.driver.failed_count() == 1


# Rescuing


def test_a_reservation_that_has_not_expired_is_left_alone(store: Store, clock: Clock) -> None:
    store.dispatch()
    reservation = store.take_one()
    clock.tick(RETRY_AFTER - 1)
    assert store.rescue() == []
    assert store.complete(reservation) == {reservation.id}


def test_an_expired_reservation_taken_in_a_batch_gives_its_attempt_back(store: Store, clock: Clock) -> None:
    store.push(new(), new())
    store.take()
    assert [rescued.dead_lettered for rescued in store.lose()] == [False, False]
    reservation = store.take_one()
    assert (reservation.attempt, reservation.crashes, reservation.exceptions) == (1, 1, 0)
    assert reservation.ready_at == clock.now
    assert store.get(reservation).errors.total == 0


def test_an_expired_reservation_that_was_alone_has_spent_its_attempt(store: Store, clock: Clock) -> None:
    store.dispatch()
    store.take_one()
    assert [rescued.dead_lettered for rescued in store.lose()] == [False]
    reservation = store.take_one()
    assert (reservation.attempt, reservation.crashes, reservation.exceptions) == (2, 1, 0)
    assert reservation.ready_at == clock.now
    assert [error.number for error in store.get(reservation).errors.last] == [1]


def test_a_job_lost_alone_on_its_last_attempt_becomes_a_dead_letter(store: Store, clock: Clock) -> None:
    job = store.dispatch(max_attempts=2)
    for _ in range(2):
        store.take_one(worker="host:7")
        rescued = store.lose()
    assert [(found.id, found.dead_lettered) for found in rescued] == [(job.id, True)]
    record = store.get(job)
    assert (record.state, record.attempts, record.failed_at) == ("failed", 2, clock.now)
    assert record.exception_class == "django_jobqueue.exceptions.ReservationLost"
    assert "eserved 2 times without finishing" in record.exception_message
    assert [(error.number, error.worker) for error in record.errors.last] == [
        (1, "host:7"),
        (2, "host:7"),
    ]
    assert record.errors.last[-1].message == record.exception_message


def test_a_job_with_one_attempt_never_starts_twice(store: Store) -> None:
    job = store.dispatch(max_attempts=1)
    store.take_one()
    assert [rescued.dead_lettered for rescued in store.lose()] == [True]
    assert store.get(job).state == "failed"
    assert store.take() == []


def test_a_job_without_a_limit_is_rescued_under_the_given_one(store: Store) -> None:
    store.push(new("a"), new("b"))
    store.take_one()
    assert [rescued.dead_lettered for rescued in store.lose(max_attempts=1)] == [True]
    store.take_one()
    assert [rescued.dead_lettered for rescued in store.lose(max_attempts=2)] == [False]


def test_a_job_with_a_limit_is_rescued_under_its_own(store: Store) -> None:
    store.dispatch(max_attempts=2)
    store.take_one()
    assert [rescued.dead_lettered for rescued in store.lose(max_attempts=1)] == [False]


def test_a_job_lost_alone_after_retry_until_becomes_a_dead_letter(store: Store) -> None:
    job = store.dispatch(retry_for=RETRY_AFTER / 2)
    store.take_one()
    assert [rescued.dead_lettered for rescued in store.lose()] == [True]
    assert "eserved once without finishing" in store.get(job).exception_message


def test_a_job_lost_alone_before_retry_until_runs_again(store: Store) -> None:
    store.dispatch(retry_for=RETRY_AFTER * 2)
    store.take_one()
    assert [rescued.dead_lettered for rescued in store.lose()] == [False]


def test_a_job_lost_in_a_batch_after_retry_until_has_its_first_attempt_before_it(
    store: Store,
) -> None:
    store.push(new(retry_for=10), new(retry_for=10))
    store.take()
    assert [rescued.dead_lettered for rescued in store.lose()] == [False, False]


def test_a_rescued_job_goes_behind_those_that_wait(store: Store, clock: Clock) -> None:
    store.dispatch("lost")
    store.take_one()
    clock.tick()
    store.push(new("waits"), new("low", rank=1))
    store.lose()
    assert store.order() == ["waits", "lost", "low"]


def test_a_rescue_says_whose_job_was_lost(store: Store) -> None:
    job = store.dispatch("shop.sync", queue="mail")
    store.take_one("mail", worker="host:7")
    rescued = store.lose(max_attempts=4)
    assert rescued == [
        Rescued(
            id=job.id,
            name="shop.sync",
            queue="mail",
            attempt=1,
            max_attempts=4,
            worker="host:7",
            record=store.get(job).errors.last[0],
            dead_lettered=False,
        )
    ]


def test_a_rescue_that_spends_no_attempt_has_no_record(store: Store) -> None:
    store.push(new(max_attempts=7), new(max_attempts=7))
    store.take()
    for rescued in store.lose():
        assert (rescued.attempt, rescued.max_attempts, rescued.record) == (1, 7, None)


def test_a_rescue_that_buries_a_job_has_the_record_of_its_last_attempt(store: Store) -> None:
    job = store.dispatch(max_attempts=1)
    store.take_one()
    (rescued,) = store.lose()
    assert rescued.record == store.get(job).errors.last[-1]


def test_a_rescue_serves_all_queues(store: Store) -> None:
    jobs = [store.dispatch(queue="a"), store.dispatch(queue="b")]
    store.take("a")
    store.take("b")
    assert ids(store.lose()) == ids(jobs)


def test_a_rescue_takes_those_that_expired_first_and_no_more_than_its_limit(store: Store, clock: Clock) -> None:
    for name in "abc":
        store.dispatch(name)
        store.take_one()
        clock.tick()
    assert {rescued.name for rescued in store.lose(limit=2)} == {"a", "b"}
    assert {rescued.name for rescued in store.rescue(limit=2)} == {"c"}
    assert store.rescue(limit=2) == []


def test_healthy_long_jobs_never_hide_a_lost_one(store: Store, clock: Clock) -> None:
    """F20: more of them than a rescue takes at once, and reserved before it."""
    store.push(*(new() for _ in range(3)))
    healthy = store.take(rows=3)
    lost = store.dispatch()
    store.take_one(worker="killed")
    clock.tick(RETRY_AFTER - 1)
    assert store.renew(*healthy) == set()
    clock.tick(2)
    assert ids(store.rescue(limit=1)) == {lost.id}
    assert store.settle(*map(Complete, healthy)) == ids(healthy)


def test_a_dead_letter_of_a_rescue_keeps_the_earlier_errors(store: Store) -> None:
    job = store.dispatch(max_attempts=2)
    store.release(store.take_one(), 0, attempt(1, "first"))
    store.take_one()
    store.lose()
    errors = store.get(job).errors
    assert errors.total == 2
    assert [error.number for error in errors.last] == [1, 2]
    assert errors.last[0].message == "first"


def test_one_rescue_may_bury_some_and_put_back_others(store: Store) -> None:
    store.push(new("spent", max_attempts=1), new("left"))
    store.take_one()
    store.take_one()
    assert {found.name: found.dead_lettered for found in store.lose()} == {
        "spent": True,
        "left": False,
    }


def test_a_worker_that_ends_keeps_what_it_had_started(store: Store) -> None:
    store.push(new("started"), new("unstarted"))
    started, _ = store.take(worker="dead")
    assert store.driver.release_worker("dead", but=[started.id]) == 1
    assert store.order() == ["unstarted"]
    assert store.get(started).state == "reserved"


def in_hand(store: Store, reservation: Reservation, **changes: Any) -> Rescued | None:
    given = {"max_attempts": 3, "now": store.clock.now, **changes}
    return store.driver.rescue_in_hand(reservation.id, reservation.token, **given)


def test_a_job_in_hand_spends_its_attempt_though_it_was_taken_in_a_batch(store: Store, clock: Clock) -> None:
    store.push(new("in hand"), new())
    reservation, _ = store.take(worker="host:7")
    clock.tick()
    rescued = in_hand(store, reservation)
    record = store.get(reservation)
    assert rescued == Rescued(
        id=reservation.id,
        name="in hand",
        queue="default",
        attempt=1,
        max_attempts=3,
        worker="host:7",
        record=record.errors.last[0],
        dead_lettered=False,
    )
    assert (record.state, record.attempts, record.ready_at) == ("ready", 1, clock.now)
    assert "eserved once without finishing" in record.errors.last[0].message
    again = store.take_one()
    assert (again.attempt, again.crashes, again.exceptions) == (2, 1, 0)


def test_a_job_in_hand_on_its_last_attempt_becomes_a_dead_letter(store: Store) -> None:
    job = store.dispatch(max_attempts=1)
    rescued = in_hand(store, store.take_one())
    assert rescued is not None
    assert rescued.dead_lettered
    record = store.get(job)
    assert (record.state, record.attempts) == ("failed", 1)
    assert record.exception_class == "django_jobqueue.exceptions.ReservationLost"


def test_a_job_in_hand_has_the_cause_that_is_given(store: Store) -> None:
    job = store.dispatch(max_attempts=1)
    cause = Cause(exception_class="shop.Hung", message="it hung", traceback="where it hung")
    in_hand(store, store.take_one(), cause=cause)
    (error,) = store.get(job).errors.last
    assert (error.exception_class, error.message, error.traceback) == ("shop.Hung", "it hung", "where it hung")


def test_a_job_in_hand_of_a_process_that_was_ended_for_another_spends_nothing(store: Store, clock: Clock) -> None:
    store.dispatch(max_attempts=2)
    reservation = store.take_one()
    rescued = in_hand(store, reservation, spends=False)
    assert rescued is not None
    assert (rescued.record, rescued.dead_lettered) == (None, False)
    again = store.take_one()
    assert (again.attempt, again.crashes) == (1, 0)


def test_a_job_in_hand_that_may_run_once_is_not_started_again_whoever_is_to_blame(store: Store) -> None:
    job = store.dispatch(max_attempts=1)
    in_hand(store, store.take_one(), spends=False)
    assert store.get(job).state == "failed"


def test_a_job_in_hand_that_was_settled_or_taken_meanwhile_is_left_alone(store: Store) -> None:
    old, current = superseded(store)
    assert in_hand(store, old) is None
    assert store.complete(current) == {current.id}
    assert in_hand(store, current) is None


def test_two_rescues_at_once_deal_with_each_job_once(store: Store, clock: Clock) -> None:
    jobs = [new(max_attempts=1) for _ in range(5)]
    for job in jobs:
        store.push(job)
        store.take_one()
    clock.tick(RETRY_AFTER + 1)
    rescued = [found.id for each in at_once(2, store.rescue) for found in each]
    rescued += [found.id for found in store.rescue()]
    assert sorted(rescued) == sorted(ids(jobs))
    assert store.driver.failed_count() == 5


def test_one_job_that_kills_its_worker_harms_no_other(store: Store) -> None:
    jobs = [new("good") for _ in range(20)]
    jobs.insert(7, new("poison"))
    store.push(*jobs)
    started = {"good": 0, "poison": 0}
    for _ in range(100):
        batch = store.take(rows=10)
        for reservation in batch:
            started[reservation.name] += 1
            if reservation.name == "poison":
                store.lose()  # and with it everything of this batch that was not settled
                break
            store.complete(reservation)
    assert [dead.name for dead in store.driver.failed()] == ["poison"]
    assert started["good"] == 20
    assert started["poison"] <= 4
    assert store.driver.queues() == []


# What people do


@pytest.mark.parametrize("delay", [None, 60], ids=["ready", "scheduled"])
def test_a_waiting_job_can_be_cancelled(store: Store, delay: float | None) -> None:
    job = store.dispatch("unwanted", delay=delay)
    before = store.get(job)
    assert store.driver.cancel(job.id) == before
    assert store.gone(job)
    assert store.driver.cancel(job.id) is None


def test_a_reserved_job_cannot_be_cancelled(store: Store) -> None:
    job = store.dispatch()
    reservation = store.take_one()
    assert store.driver.cancel(job.id) is None
    assert store.complete(reservation) == {job.id}


def test_what_is_no_waiting_job_cannot_be_cancelled(store: Store) -> None:
    (dead,) = store.bury(new())
    assert store.driver.cancel(dead.id) is None
    assert store.driver.cancel(new_job_id()) is None
    assert store.driver.failed_count() == 1


def test_clearing_removes_the_waiting_jobs_of_one_queue(store: Store) -> None:
    store.dispatch("reserved")
    reservation = store.take_one()
    store.push(new("ready"), new("scheduled", delay=60), new("other", queue="mail"))
    assert store.driver.clear("default", limit=100) == 2
    assert store.driver.clear("default", limit=100) == 0
    assert store.order("mail") == ["other"]
    assert store.complete(reservation) == {reservation.id}


def test_clearing_is_bounded(store: Store) -> None:
    store.push(*(new() for _ in range(5)))
    assert [store.driver.clear("default", limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_clearing_leaves_dead_letters(store: Store) -> None:
    store.bury(new())
    assert store.driver.clear("default", limit=100) == 0
    assert store.driver.failed_count() == 1


def test_a_job_that_was_never_there_is_none(store: Store) -> None:
    assert store.driver.get(new_job_id()) is None


def test_what_waits_is_shown_ready_jobs_first_and_reserved_ones_not(store: Store, clock: Clock) -> None:
    store.dispatch("reserved", rank=-9)
    store.take_one()
    store.push(new("later", delay=60), new("soon", delay=5), new("second"), new("other", queue="mail"))
    store.dispatch("first", rank=-1)
    waiting = store.driver.waiting("default", limit=9)
    assert [job.name for job in waiting] == ["first", "second", "soon", "later"]
    assert [job.state for job in waiting] == ["ready", "ready", "scheduled", "scheduled"]
    assert [job.name for job in store.driver.waiting("default", limit=3)] == ["first", "second", "soon"]
    assert [job.name for job in store.driver.waiting("default", limit=1)] == ["first"]


def test_the_sizes_count_the_jobs_of_each_state(store: Store) -> None:
    store.bury(new())
    store.push(new(), new(), new())
    store.take_one()
    store.push(new(delay=60), new(queue="mail", delay=60))
    sizes = store.driver.sizes(now=store.clock.now)
    assert sizes == {
        "default": QueueSize(ready=2, scheduled=1, reserved=1, failed=1, oldest=0.0),
        "mail": QueueSize(scheduled=1),
    }
    assert sizes["default"].waiting == 3


def test_the_sizes_say_how_long_the_oldest_ready_job_waits(store: Store, clock: Clock) -> None:
    store.dispatch("reserved", rank=-1)
    store.take_one()
    clock.tick(10)
    store.dispatch("oldest", rank=5)
    clock.tick(2.5)
    store.dispatch("newest")
    clock.tick(1)
    assert store.driver.sizes(now=clock.now)["default"].oldest == pytest.approx(3.5)


def test_a_queue_with_dead_letters_only_has_a_size(store: Store) -> None:
    store.bury(new(queue="mail"), new(queue="mail"))
    assert store.driver.sizes(now=store.clock.now) == {"mail": QueueSize(failed=2)}


def test_an_empty_store_has_no_sizes(store: Store) -> None:
    assert store.driver.sizes(now=store.clock.now) == {}


# Dead letters


def test_dead_letters_are_listed_by_ascending_number(store: Store) -> None:
    dead = store.bury(new("a"), new("b"), new("c"))
    found = store.driver.failed()
    assert found == dead
    assert [each.name for each in found] == ["a", "b", "c"]
    assert [each.number for each in found] == sorted({each.number for each in found})


def test_dead_letters_are_listed_newest_first_when_asked(store: Store) -> None:
    dead = store.bury(new(), new(), new())
    assert store.driver.failed(newest_first=True, limit=2) == [dead[2], dead[1]]


def test_a_line_of_the_list_says_what_failed(store: Store, clock: Clock) -> None:
    job = store.dispatch("shop.sync", queue="mail", max_attempts=4)
    store.fail(store.take_one("mail"), attempt(1, "no such stock"))
    (found,) = store.driver.failed()
    assert found == FailedSummary(
        number=found.number,
        id=job.id,
        connection=store.driver.alias,
        queue="mail",
        name="shop.sync",
        attempts=1,
        max_attempts=4,
        exception_class="ValueError",
        exception_message="no such stock",
        retries=0,
        failed_at=clock.now,
    )
    assert store.get(job).number == found.number


def test_dead_letters_are_walked_in_pages_frozen_against_newcomers(store: Store) -> None:
    dead = store.bury(new("a"), new("b"), new("c"))
    up_to = store.driver.last_failed_number()
    store.bury(new("newcomer"))
    first = store.driver.failed(up_to=up_to, limit=2)
    second = store.driver.failed(up_to=up_to, after=first[-1].number, limit=2)
    third = store.driver.failed(up_to=up_to, after=second[-1].number, limit=2)
    assert (first, second, third) == (dead[:2], dead[2:], [])


def test_dead_letters_are_found_by_number(store: Store) -> None:
    first, _, third = store.bury(new(), new(), new())
    assert store.driver.failed(numbers=[third.number, first.number, 10**9]) == [first, third]
    assert store.driver.failed(numbers=[]) == []


def test_dead_letters_are_found_by_queue(store: Store) -> None:
    _, mail = store.bury(new(), new(queue="mail"))
    assert store.driver.failed(queue="mail") == [mail]
    assert store.driver.failed(queue="Mail") == []


def test_a_dead_letter_is_found_by_its_id(store: Store) -> None:
    first, _ = store.bury(new(), new())
    assert store.driver.failed(job_id=first.id) == [first]
    assert store.driver.failed(job_id=new_job_id()) == []


@pytest.mark.parametrize("length", [6, 12, 13, 20, 36])
def test_a_dead_letter_is_found_by_the_end_of_its_id(store: Store, length: int) -> None:
    first, _ = store.bury(new(), new())
    assert store.driver.failed(ending=str(first.id)[-length:]) == [first]


def test_the_end_of_an_id_may_be_given_in_capitals(store: Store) -> None:
    dead, _ = store.bury(new(id=UUID(int=0xABCDEF)), new())
    assert store.driver.failed(ending="ABCDEF") == [dead]


@pytest.mark.parametrize("ending", ["zzzzzz", "%", "______", "'", "------"])
def test_an_ending_that_no_id_has_finds_nothing(store: Store, ending: str) -> None:
    store.bury(new(), new())
    assert store.driver.failed(ending=ending) == []


def test_conditions_on_dead_letters_hold_together(store: Store) -> None:
    first, mail, last = store.bury(new(), new(queue="mail"), new(queue="mail"))
    numbers = [first.number, mail.number]
    assert store.driver.failed(queue="mail", numbers=numbers) == [mail]
    assert store.driver.failed(queue="mail", after=mail.number) == [last]
    assert store.driver.failed(queue="mail", job_id=first.id) == []


def test_dead_letters_are_counted(store: Store) -> None:
    assert store.driver.failed_count() == 0
    store.bury(new(), new(queue="mail"), new(queue="mail"))
    assert store.driver.failed_count() == 3
    assert store.driver.failed_count(queue="mail") == 2
    assert store.driver.failed_count(queue="none") == 0


def test_the_last_number_is_the_greatest(store: Store) -> None:
    assert store.driver.last_failed_number() == 0
    dead = store.bury(new(), new())
    assert store.driver.last_failed_number() == dead[-1].number


def test_a_retried_job_is_as_new_under_its_old_id(store: Store, clock: Clock) -> None:
    job = store.dispatch("shop.sync", queue="mail", rank=-7, max_attempts=2, metadata='{"a":1}')
    store.take_one("mail")
    store.lose()
    store.fail(store.take_one("mail"), attempt(2, "broken"))
    (dead,) = store.driver.failed()
    clock.tick(3600)
    assert store.retry(dead.number) == {dead.number}
    record = store.get(job)
    assert (record.state, record.attempts, record.retries) == ("ready", 0, 1)
    assert record.ready_at == record.available_at == clock.now
    assert [error.number for error in record.errors.last] == [1, 2]
    assert record.errors.last[-1].message == "broken"
    assert (record.payload, record.metadata) == (job.payload, job.metadata)
    assert (record.priority, record.max_attempts) == (7, 2)
    assert store.driver.failed_count() == 0
    reservation = store.take_one("mail")
    assert (reservation.id, reservation.attempt) == (job.id, 1)
    assert (reservation.exceptions, reservation.crashes) == (0, 0)


def test_a_retried_job_counts_its_failures_anew(store: Store) -> None:
    store.dispatch(max_attempts=3)
    store.release(store.take_one(), 0, attempt(1))
    store.fail(store.take_one(), attempt(2))
    store.retry(store.driver.last_failed_number())
    assert store.take_one().exceptions == 0


def test_a_retried_job_has_a_new_retry_until(store: Store, clock: Clock) -> None:
    limited, unlimited = store.bury(new(retry_for=10), new(retry_for=10))
    clock.tick(3600)
    store.driver.retry({limited.number: 60.0, unlimited.number: None}, now=clock.now)
    until = {reservation.id: reservation.retry_until for reservation in store.take()}
    assert until == {limited.id: clock.after(60), unlimited.id: None}


def test_retries_are_counted_and_errors_kept_through_another_failure(store: Store) -> None:
    (dead,) = store.bury(new())
    for expected in (1, 2):
        store.retry(store.driver.last_failed_number())
        store.fail(store.take_one(), attempt())
        (dead,) = store.driver.failed()
        assert dead.retries == expected
    record = store.driver.get(dead.id)
    assert record is not None
    assert (record.retries, record.attempts, record.errors.total) == (2, 1, 3)


def test_a_job_lost_after_a_retry_keeps_its_retries(store: Store) -> None:
    store.bury(new(max_attempts=1))
    store.retry(store.driver.last_failed_number())
    store.take_one()
    store.lose()
    assert [dead.retries for dead in store.driver.failed()] == [1]


def test_many_dead_letters_are_retried_at_once(store: Store) -> None:
    dead = store.bury(*(new() for _ in range(30)))
    numbers = {each.number for each in dead}
    assert store.retry(*numbers) == numbers
    assert ids(store.take(rows=100)) == {each.id for each in dead}


def test_a_retry_names_only_the_dead_letters_that_were_there(store: Store) -> None:
    first, second = store.bury(new(), new())
    assert store.retry(first.number) == {first.number}
    assert store.retry(first.number, second.number, 10**9) == {second.number}
    assert store.retry() == set()
    assert len(store.take()) == 2


def test_two_people_at_once_retry_each_dead_letter_once(store: Store) -> None:
    dead = store.bury(*(new() for _ in range(5)))
    numbers = [each.number for each in dead]
    retried = [found for each in at_once(2, lambda: store.retry(*numbers)) for found in each]
    assert sorted(retried) == numbers
    assert ids(store.take()) == {each.id for each in dead}
    assert store.driver.failed_count() == 0


def test_forgotten_dead_letters_are_gone(store: Store) -> None:
    first, second, third = store.bury(new(), new(), new())
    gone = {first.number, third.number}
    assert store.driver.forget([first.number, third.number, 10**9]) == gone
    assert store.driver.failed() == [second]
    assert store.driver.get(first.id) is None
    assert store.driver.forget(gone) == set()
    assert store.driver.forget([]) == set()


def test_a_forgotten_dead_letter_cannot_be_retried(store: Store) -> None:
    (dead,) = store.bury(new())
    store.driver.forget([dead.number])
    assert store.retry(dead.number) == set()
    assert store.take() == []


# Waiting


def test_a_driver_can_be_used_after_it_was_closed(store: Store) -> None:
    job = store.dispatch()
    store.driver.close()
    assert store.take_one().id == job.id


def test_more_queues_are_found_than_a_database_recurses_deep(driver: Driver) -> None:
    names = sorted(f"q{number:04}" for number in range(1203))
    for start in range(0, len(names), 400):
        driver.push([new(queue=name) for name in names[start : start + 400]])
    assert driver.queues() == names
