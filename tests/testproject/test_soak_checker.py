"""The checker of the soak: silent on a history that is clean, and one word for each promise that was broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command

import django_jobqueue
from lab.soaking import history
from lab.soaking.cases import Content, DeadLetter, Effect, Waiting
from lab.soaking.checker import again_after, back_after, check, repeated, rescued_after, spread
from lab.soaking.flow_rules import begun
from lab.soaking.history import How, Record, Trouble, TroubleKind
from lab.soaking.report import RULES, document, lines
from lab.soaking.rules import Rules, Violation
from tests.helpers.servers import private_redis

RETRY_AFTER = 3.0
MATRIX = {
    "store": {"version", "own_server"},
    "options": {"seconds", "kill", "workers", "rate", "retry_after", "seed"},
    "jobs": {"committed", "rolled_back", "unknown", "finished", "dead_letters", "runs"},
    "flows": {"chains", "batches"},
    "recovery": {"rescued", "again", "server", "drain"},
    "violations": set(RULES),
}


class Story:
    """A history, told step by step; ``at`` is the moment of the next record, ten milliseconds after the last."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.waiting: list[Waiting] = []
        self.dead_letters: list[DeadLetter] = []
        self.effects: list[Effect] = []
        self.batches: list[str] = []
        self.at = 100.0

    def step(self) -> float:
        self.at += 0.01
        return self.at

    def dispatch(
        self, *keys: str, kind: str = "quick", outcome: history.Outcome = "committed", delay: float = 0.0
    ) -> None:
        name = f"of {keys[0]}"
        self.records += [
            history.Dispatching(name, [history.Job(key, kind, delay) for key in keys], self.step()),
            history.Ended(name, outcome, self.step()),
        ]

    def chain(self, *keys: str, kind: str = "step", outcome: history.Outcome = "committed") -> None:
        self.dispatch(*keys, kind=kind, outcome=outcome)
        self.records.append(history.Flow("chain", "chain", [[key] for key in keys], self.step()))

    def batch(self, *members: str, callbacks: list[str], outcome: history.Outcome = "committed") -> None:
        self.dispatch(*members, *callbacks, outcome=outcome)
        self.records.append(history.Flow("batch", "batch", [list(members), callbacks], self.step()))

    def reserve(self, *keys: str, token: str = "t1", pid: int = 1, attempt: int = 1) -> None:
        asked = self.step()
        jobs = [(key, attempt) for key in keys]
        self.records.append(history.Reserved(token, f"host:{pid}:beef", pid, len(keys) == 1, jobs, asked, self.step()))

    def start(self, key: str, *, token: str = "t1", pid: int = 1, attempt: int = 1, job_id: str | None = None) -> None:
        self.records.append(history.Started(key, job_id or f"id of {key}", attempt, token, pid, self.step()))

    def end(self, key: str, *, token: str = "t1", done: bool = True) -> None:
        self.records.append(history.Finished(key, token, done, self.step()))

    def run(self, key: str, *, token: str = "t1", pid: int = 1, done: bool = True, attempt: int = 1) -> None:
        self.start(key, token=token, pid=pid, attempt=attempt)
        self.end(key, token=token, done=done)

    def settle(
        self, *keys: str, token: str = "t1", how: How = "complete", owned: bool = True, joined: bool = False
    ) -> None:
        asked = self.step()
        self.records += [
            history.Settling([(key, token) for key in keys], asked),
            history.Settled([(key, token, how, owned) for key in keys], joined, asked, self.step()),
        ]

    def whole(self, key: str, *, token: str = "t1", pid: int = 1) -> None:
        """Reserved, run and completed."""
        self.reserve(key, token=token, pid=pid)
        self.run(key, token=token, pid=pid)
        self.settle(key, token=token)

    def trouble(self, kind: TroubleKind, pid: int | None = 1, *, seconds: float = 0.0) -> None:
        begun = self.step()
        self.at += seconds
        self.records.append(Trouble(kind, pid, begun, self.at))

    def atomic(self, key: str, token: str = "t1", *, pid: int = 1) -> None:
        """An atomic job that has committed its effect."""
        self.reserve(key, token=token, pid=pid)
        self.run(key, token=token, pid=pid)
        self.settle(key, token=token, joined=True)
        self.effects.append(Effect(key, token))

    def content(self) -> Content:
        return Content(waiting=self.waiting, dead_letters=self.dead_letters, effects=self.effects, batches=self.batches)

    def check(self, **rules: Any) -> list[Violation]:
        return check(self.records, self.content(), Rules(**{"retry_after": RETRY_AFTER, **rules})).violations

    def rules(self, **rules: Any) -> list[tuple[str, str]]:
        """The rule and the key of each violation."""
        return [(violation.rule, violation.key) for violation in self.check(**rules)]


@pytest.fixture
def story() -> Story:
    return Story()


# Clean histories


def test_a_history_of_everything_that_may_happen_is_clean(story: Story) -> None:
    story.dispatch("a", "b")
    story.reserve("a", "b")
    story.run("a")
    story.run("b")
    story.settle("a", "b")
    story.dispatch("undone", outcome="rolled back")
    story.dispatch("never heard of", outcome="unknown")
    story.dispatch("heard of", outcome="unknown")
    story.whole("heard of", token="t2")
    story.dispatch("fails", kind="always")
    for attempt in (1, 2, 3):
        token = f"f{attempt}"
        story.reserve("fails", token=token, attempt=attempt)
        story.run("fails", token=token, done=False, attempt=attempt)
        story.settle("fails", token=token, how="release" if attempt < 3 else "fail")
    story.dead_letters.append(DeadLetter("fails", 3, "Meant"))
    story.dispatch("effect", kind="atomic")
    story.atomic("effect", "t3")
    assert story.check() == []


def test_a_job_in_hand_at_a_kill_may_run_again(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    story.trouble("kill")
    story.at += RETRY_AFTER
    story.whole("a", token="t2", pid=2)
    assert story.check() == []


def test_a_job_of_the_last_slice_at_a_kill_may_run_again(story: Story) -> None:
    story.dispatch("a", "b")
    story.reserve("a", "b")
    story.run("a")
    story.start("b")
    story.trouble("kill")
    story.at += RETRY_AFTER
    for key in ("a", "b"):
        story.whole(key, token=f"t of {key}", pid=2)
    assert story.check() == []


def test_a_job_whose_settling_was_cut_short_by_a_kill_may_run_again(story: Story) -> None:
    """However long the store took to answer."""
    story.dispatch("a")
    story.reserve("a")
    story.run("a")
    story.records.append(history.Settling([("a", "t1")], story.step()))
    story.at += 2
    story.trouble("kill")
    story.at += RETRY_AFTER
    story.whole("a", token="t2", pid=2)
    assert story.check() == []


def test_a_worker_stopped_past_its_reservation_may_run_a_job_while_another_does(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    stopped_at = story.step()
    story.at += RETRY_AFTER + 0.5
    story.reserve("a", token="t2", pid=2)
    story.start("a", token="t2", pid=2)
    story.records.append(Trouble("pause", 1, stopped_at, story.step()))
    story.end("a")
    story.settle("a", owned=False)
    story.end("a", token="t2")
    story.settle("a", token="t2")
    assert story.check() == []


def test_an_unstarted_job_of_a_worker_that_was_stopped_may_start_when_it_goes_on(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    stopped_at = story.step()
    story.at += RETRY_AFTER + 0.5
    story.whole("a", token="t2", pid=2)
    story.records.append(Trouble("pause", 1, stopped_at, story.step()))
    story.run("a")
    story.settle("a", owned=False)
    assert story.check() == []


def test_a_worker_that_was_stopped_while_it_reserved_may_start_a_job_that_is_over(story: Story) -> None:
    """Its record is written last, though its reservation was the first."""
    story.dispatch("a")
    asked = story.step()
    stopped_at = story.step()
    story.at += RETRY_AFTER + 0.5
    story.whole("a", token="t2", pid=2)
    story.records.append(Trouble("pause", 1, stopped_at, story.step()))
    story.records.append(history.Reserved("t1", "host:1:beef", 1, True, [("a", 1)], asked, story.step()))
    story.run("a")
    story.settle("a", owned=False)
    assert story.check() == []


def test_a_job_in_hand_when_the_server_went_may_run_again(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.run("a")
    story.trouble("server", None, seconds=RETRY_AFTER + 1)
    story.whole("a", token="t2", pid=2)
    assert story.check() == []


def test_an_atomic_job_that_failed_when_it_committed_runs_again(story: Story) -> None:
    story.dispatch("a", kind="atomic")
    story.reserve("a")
    story.run("a")
    story.settle("a", how="release")
    story.atomic("a", "t2")
    assert story.check() == []


def test_a_renewed_reservation_is_valid_for_longer(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    story.at += 2
    story.records.append(history.Renewed([("a", "t1")], story.step(), story.step()))
    story.at += 2
    story.reserve("a", token="t2", pid=2)
    assert ("overlap", "a") in story.rules()


def test_a_renewal_that_came_too_late_counts_for_nothing(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    story.at += RETRY_AFTER + 0.1
    story.records.append(history.Renewed([("a", "t1")], story.step(), story.step()))
    story.reserve("a", token="t2", pid=2)
    assert ("overlap", "a") not in story.rules()


def test_whoever_is_dead_holds_nothing(story: Story) -> None:
    """So that a supervisor may pass a killed worker's jobs on at once."""
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    story.trouble("kill")
    story.whole("a", token="t2", pid=2)
    assert story.check() == []


# Each violation


def test_a_committed_job_that_is_gone_without_a_run_is_lost(story: Story) -> None:
    story.dispatch("a")
    assert story.rules() == [("lost", "a")]


def test_a_job_that_only_failed_and_is_no_dead_letter_is_lost(story: Story) -> None:
    story.dispatch("a", kind="once")
    story.reserve("a")
    story.run("a", done=False)
    story.settle("a", how="release")
    assert story.rules() == [("lost", "a")]


def test_a_job_of_unknown_outcome_that_was_seen_may_be_lost_too(story: Story) -> None:
    story.dispatch("a", outcome="unknown")
    story.reserve("a")
    assert story.rules() == [("lost", "a")]


def test_a_job_that_still_waits_is_stuck(story: Story) -> None:
    story.dispatch("a")
    story.waiting.append(Waiting("a", "reserved"))
    assert story.rules() == [("stuck", "a")]


def test_a_job_that_was_settled_twice_is_doubled(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    stopped_at = story.step()
    story.at += RETRY_AFTER + 0.5
    story.reserve("a", token="t2", pid=2)
    story.run("a", token="t2", pid=2)
    story.records.append(Trouble("pause", 1, stopped_at, story.step()))
    story.end("a")
    story.settle("a")
    story.settle("a", token="t2")
    assert story.rules() == [("doubled", "a")]


def test_a_job_that_is_reserved_after_its_end_is_doubled(story: Story) -> None:
    story.dispatch("a")
    story.whole("a")
    story.reserve("a", token="t2", pid=2)
    assert story.rules() == [("doubled", "a")]


def test_a_job_that_completed_and_is_a_dead_letter_is_doubled(story: Story) -> None:
    story.dispatch("a", kind="single")
    story.whole("a")
    story.dead_letters.append(DeadLetter("a", 1, "ReservationLost"))
    assert story.rules() == [("doubled", "a")]


def test_a_job_that_completed_and_still_waits_is_doubled(story: Story) -> None:
    story.dispatch("a")
    story.whole("a")
    story.waiting.append(Waiting("a", "ready"))
    assert story.rules() == [("stuck", "a"), ("doubled", "a")]


def test_a_job_with_two_dead_letters_is_doubled(story: Story) -> None:
    story.dispatch("a", kind="always")
    story.dead_letters += [DeadLetter("a", 3, "Meant")] * 2
    assert story.rules() == [("doubled", "a")]


def test_one_dispatch_that_has_stored_two_jobs_is_doubled(story: Story) -> None:
    story.dispatch("a", kind="once")
    for token, job_id in (("t1", "first"), ("t2", "second")):
        story.reserve("a", token=token)
        story.start("a", token=token, job_id=job_id)
        story.end("a", token=token, done=token == "t2")
        story.settle("a", token=token, how="complete" if token == "t2" else "release")
    assert story.rules() == [("doubled", "a")]


def test_two_runs_by_reservations_that_were_both_valid_overlap(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    story.at += 1
    story.reserve("a", token="t2", pid=2)
    story.run("a", token="t2", pid=2)
    story.settle("a", token="t2")
    story.trouble("kill")
    assert story.rules() == [("overlap", "a")]


def test_a_third_reservation_overlaps_the_first_when_the_second_was_short(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    story.at += RETRY_AFTER - 1
    story.records.append(history.Renewed([("a", "t1")], story.step(), story.step()))
    for token in ("t2", "t3"):
        story.reserve("a", token=token, pid=2)
        story.run("a", token=token, pid=2, done=token == "t3")
        story.settle("a", token=token, how="complete" if token == "t3" else "release")
    story.trouble("kill")
    assert story.rules() == [("overlap", "a")] * 2


def test_an_atomic_job_without_its_effect_is_told(story: Story) -> None:
    story.dispatch("a", kind="atomic")
    story.atomic("a")
    story.effects.clear()
    assert story.rules() == [("effects", "a")]


def test_an_effect_that_is_there_twice_is_told(story: Story) -> None:
    story.dispatch("a", kind="atomic")
    story.atomic("a")
    story.effects *= 2
    assert story.rules() == [("effects", "a")]


def test_the_effect_of_a_job_that_did_not_complete_is_told(story: Story) -> None:
    story.dispatch("a", kind="atomic")
    story.atomic("a")
    story.dead_letters.append(DeadLetter("a", 50, "OperationalError"))
    assert ("effects", "a") in story.rules()


def test_a_rolled_back_job_that_ran_is_a_ghost(story: Story) -> None:
    story.dispatch("a", outcome="rolled back")
    story.whole("a")
    assert story.rules() == [("ghost", "a")]


@pytest.mark.parametrize("place", ["waiting", "dead_letters"])
def test_a_rolled_back_job_that_was_stored_is_a_ghost(story: Story, place: str) -> None:
    story.dispatch("a", outcome="rolled back")
    story.waiting += [Waiting("a", "ready")] * (place == "waiting")
    story.dead_letters += [DeadLetter("a", 3, "Meant")] * (place == "dead_letters")
    assert story.rules()[0] == ("ghost", "a")


def test_a_job_that_nobody_dispatched_is_a_ghost(story: Story) -> None:
    story.whole("a")
    assert story.rules() == [("ghost", "a")]


def test_what_an_atomic_job_dispatched_exists_exactly_when_its_effect_does(story: Story) -> None:
    story.dispatch("a", kind="atomic")
    for token, child in (("t1", "a.1"), ("t2", "a.2")):
        story.reserve("a", token=token)
        story.records.append(history.Child(child, "a", token, story.step()))
        story.run("a", token=token, done=token == "t2")
        if token == "t1":
            story.settle("a", token=token, how="release")
        else:
            story.settle("a", token=token, joined=True)
    story.effects.append(Effect("a", "t2"))
    assert story.rules() == [("lost", "a.2")]
    story.whole("a.2", token="t3")
    assert story.rules() == []
    story.whole("a.1", token="t4")
    assert story.rules() == [("ghost", "a.1")]


def test_a_job_that_runs_again_though_nothing_happened_is_a_repeat(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.run("a")
    story.at += RETRY_AFTER
    story.whole("a", token="t2", pid=2)
    assert story.rules() == [("repeat", "a")]


def test_a_job_that_ended_long_before_the_kill_is_a_repeat(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.run("a")
    story.at += 1
    story.trouble("kill")
    story.at += RETRY_AFTER
    story.whole("a", token="t2", pid=2)
    assert story.rules() == [("repeat", "a")]


@pytest.mark.parametrize("kind", ["stop", "cut"])
def test_neither_a_clean_stop_nor_a_lost_connection_makes_a_job_run_again(story: Story, kind: TroubleKind) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    story.trouble(kind)
    story.at += RETRY_AFTER
    story.whole("a", token="t2", pid=2)
    assert story.rules() == [("repeat", "a")]


@pytest.mark.parametrize("kind", ["kill", "pause"])
def test_the_trouble_of_another_process_explains_nothing(story: Story, kind: TroubleKind) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    story.trouble(kind, 7)
    story.at += RETRY_AFTER
    story.whole("a", token="t2", pid=2)
    assert story.rules() == [("repeat", "a")]


def test_where_a_stopped_process_may_hold_the_only_lock_it_concerns_all(story: Story) -> None:
    story.dispatch("a")
    story.reserve("a")
    story.start("a")
    story.trouble("pause", 7, seconds=4)
    story.whole("a", token="t2", pid=2)
    assert story.rules(stops_concern_all=True) == []


def test_a_transaction_that_was_stored_in_part_is_split(story: Story) -> None:
    story.dispatch("a", "b", outcome="unknown")
    story.whole("a")
    assert story.rules() == [("split", "a")]
    assert story.rules(joins_transactions=False) == []


def test_a_producer_that_never_heard_of_an_end_does_not_know_it(story: Story) -> None:
    story.records.append(history.Dispatching("t", [history.Job("a", "quick"), history.Job("b", "quick")], 1.0))
    assert story.rules() == []
    story.whole("a")
    assert story.rules() == [("split", "a")]


def test_chains_and_batches_that_went_as_they_should_are_clean(story: Story) -> None:
    story.chain("s1", "s2")
    story.whole("s1")
    story.whole("s2", token="t2")
    story.batch("m1", "m2", callbacks=["then", "finally"])
    for number, key in enumerate(("m2", "m1", "finally", "then"), start=3):
        story.whole(key, token=f"t{number}")
    story.batch("never", callbacks=["heard of"], outcome="unknown")
    assert story.check() == []
    book = check(story.records, story.content(), Rules(retry_after=RETRY_AFTER)).book
    assert begun(book) == {"chain": 1, "batch": 1}


def test_a_step_that_ran_again_after_the_next_one_began_is_in_order(story: Story) -> None:
    story.chain("s1", "s2")
    story.reserve("s1")
    story.run("s1")
    story.settle("s1")
    story.reserve("s2", token="t2", pid=2)
    story.start("s2", token="t2", pid=2)
    story.trouble("kill", pid=2)
    story.whole("s2", token="t3", pid=3)
    assert story.rules() == []


def test_a_step_that_never_came_is_lost(story: Story) -> None:
    story.chain("s1", "s2", "s3")
    story.whole("s1")
    assert story.rules() == [("lost", "s2"), ("lost", "s3")]


def test_a_step_that_starts_before_the_one_before_it_has_ended_is_out_of_order(story: Story) -> None:
    story.chain("s1", "s2")
    story.reserve("s1")
    story.start("s1")
    story.whole("s2", token="t2", pid=2)
    story.end("s1")
    story.settle("s1")
    assert story.rules() == [("unordered", "s2")]


def test_steps_in_the_wrong_order_are_told(story: Story) -> None:
    story.chain("s1", "s2")
    story.whole("s2")
    story.whole("s1", token="t2")
    assert story.rules() == [("unordered", "s2")]


def test_a_step_behind_a_failure_is_a_ghost(story: Story) -> None:
    story.chain("s1", "catch")
    story.whole("s1")
    story.whole("catch", token="t2")
    story.whole("s2", token="t3")
    assert story.rules() == [("ghost", "s2")]


def test_what_follows_a_dead_letter_comes_after_its_last_run(story: Story) -> None:
    story.chain("s1", "catch", kind="always")
    for attempt in (1, 2, 3):
        token = f"f{attempt}"
        story.reserve("s1", token=token, attempt=attempt)
        story.run("s1", token=token, done=False, attempt=attempt)
        story.settle("s1", token=token, how="release" if attempt < 3 else "fail")
        if attempt == 2:
            story.whole("catch", token="t2", pid=2)
    story.dead_letters.append(DeadLetter("s1", 3, "Meant"))
    assert story.rules() == [("unordered", "catch")]


def test_what_follows_a_dead_letter_of_a_worker_that_was_stopped_may_come_before_that_goes_on(story: Story) -> None:
    story.chain("s1", "catch", kind="always")
    for attempt in (1, 2):
        token = f"f{attempt}"
        story.reserve("s1", token=token, attempt=attempt)
        story.run("s1", token=token, done=False, attempt=attempt)
        story.settle("s1", token=token, how="release")
    story.reserve("s1", token="f3", attempt=3)
    story.start("s1", token="f3", attempt=3)
    story.trouble("pause", seconds=5)
    story.dead_letters.append(DeadLetter("s1", 3, "WorkerLost"))
    story.whole("catch", token="t2", pid=2)
    story.end("s1", token="f3", done=False)
    story.settle("s1", token="f3", how="fail", owned=False)
    assert story.rules() == []


def test_a_chain_of_unknown_outcome_that_began_and_did_not_go_on_is_told(story: Story) -> None:
    story.chain("s1", "s2", outcome="unknown")
    story.whole("s1")
    assert story.rules(joins_transactions=False) == [("lost", "s2")]


def test_a_callback_that_was_not_called_is_lost(story: Story) -> None:
    story.batch("m1", callbacks=["then", "finally"])
    story.whole("m1")
    story.whole("then", token="t2")
    assert story.rules() == [("lost", "finally")]


def test_a_callback_that_was_called_twice_is_doubled(story: Story) -> None:
    story.batch("m1", callbacks=["then"])
    story.whole("m1")
    story.whole("then", token="t2")
    story.reserve("then", token="t3")
    story.start("then", token="t3", job_id="another")
    story.end("then", token="t3")
    story.settle("then", token="t3")
    assert ("doubled", "then") in story.rules()


def test_a_callback_that_was_called_before_all_had_ended_is_out_of_order(story: Story) -> None:
    story.batch("m1", "m2", callbacks=["then"])
    story.whole("m1")
    story.whole("then", token="t2")
    story.whole("m2", token="t3")
    assert story.rules() == [("unordered", "then")]


def test_a_batch_that_is_open_at_the_end_is_told(story: Story) -> None:
    story.batch("m1", callbacks=["then"])
    story.whole("m1")
    story.whole("then", token="t2")
    story.batches.append("batch")
    assert story.rules() == [("unclosed", "batch")]


def test_a_batch_of_unknown_outcome_may_be_open_only_where_it_is_not_stored_in_one_step(story: Story) -> None:
    story.batch("m1", "m2", callbacks=["then"], outcome="unknown")
    story.whole("m1")
    story.batches.append("batch")
    assert story.rules(joins_transactions=False) == []
    assert ("unclosed", "batch") in story.rules()


@pytest.mark.parametrize("outcome", ["rolled back", None])
def test_a_batch_that_nobody_has_dispatched_is_a_ghost(story: Story, outcome: Any) -> None:
    if outcome is not None:
        story.batch("m1", callbacks=["then"], outcome=outcome)
    story.batches.append("batch")
    assert story.rules() == [("ghost", "batch")]


def test_a_delayed_job_that_starts_too_soon_is_early(story: Story) -> None:
    story.dispatch("a", kind="delayed", delay=1)
    story.whole("a")
    assert story.rules() == [("early", "a")]


def test_a_delayed_job_that_starts_in_time_is_not_early(story: Story) -> None:
    story.dispatch("a", kind="delayed", delay=1)
    story.at += 1
    story.whole("a")
    assert story.rules() == []


def test_a_sound_job_that_became_a_dead_letter_has_not_earned_it(story: Story) -> None:
    story.dispatch("a")
    story.dead_letters.append(DeadLetter("a", 3, "ReservationLost"))
    assert story.rules() == [("unearned", "a")]


def test_a_job_that_failed_for_good_too_soon_has_not_earned_it(story: Story) -> None:
    story.dispatch("a", kind="always")
    story.dead_letters.append(DeadLetter("a", 2, "Meant"))
    assert story.rules() == [("unearned", "a")]


def test_a_job_that_may_start_once_and_started_twice_is_told(story: Story) -> None:
    story.dispatch("a", kind="single")
    story.reserve("a")
    story.start("a")
    story.trouble("kill")
    story.at += RETRY_AFTER
    story.whole("a", token="t2", pid=2)
    assert story.rules() == [("unearned", "a")]


def test_a_run_without_a_reservation_is_told(story: Story) -> None:
    story.dispatch("a")
    story.run("a")
    assert story.rules() == [("unreserved", "a")]


def test_two_runs_by_one_reservation_are_told(story: Story) -> None:
    story.dispatch("a", kind="once")
    story.reserve("a")
    story.run("a", done=False)
    story.run("a")
    story.settle("a")
    assert story.rules() == [("unreserved", "a")]


def test_a_worker_that_ended_by_itself_is_told(story: Story) -> None:
    story.trouble("ended")
    assert story.rules() == [("ended", "")]


# Figures


def test_repeats_and_recoveries_are_counted(story: Story) -> None:
    story.dispatch("a", "b")
    story.reserve("a", "b")
    story.start("a")
    story.trouble("kill")
    story.at += RETRY_AFTER
    story.records.append(history.Rescued([("id of a", "host:1:beef"), ("id of b", "host:1:beef")], story.step()))
    story.at += 1
    story.whole("a", token="t2", pid=2)
    story.whole("b", token="t3", pid=2)
    story.trouble("server", None, seconds=1)
    story.dispatch("c")
    story.whole("c", token="t4", pid=2)
    book = check(story.records, story.content(), Rules(retry_after=RETRY_AFTER)).book
    assert [len(repeated(book.cases[key])) for key in "abc"] == [1, 0, 0]
    assert rescued_after(book) == pytest.approx([RETRY_AFTER + 0.01])
    assert again_after(book) == pytest.approx([RETRY_AFTER + 1.04])
    assert back_after(book) == pytest.approx([0.04])
    assert spread([]) is None
    assert spread([1, 2, 6]) == {"median": 2, "worst": 6, "times": 3}


# The history itself


def test_a_history_is_read_as_it_was_written(story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(history.FOLDER_VARIABLE, str(tmp_path))
    story.dispatch("a", kind="atomic", delay=1)
    story.chain("b", "c")
    story.atomic("a")
    story.settle("a", how="release")
    story.records += [
        history.Child("a.1", "a", "t1", 1.0),
        history.Renewed([("a", "t1")], 1.0, 2.0),
        history.HandedBack([("a", "t1", True)], 1.0, 2.0),
        history.Rescued([("id of a", "host:1:beef")], 1.0),
        Trouble("kill", 1, 1.0, 2.0, "why\nso"),
    ]
    assert {type(record) for record in story.records} == set(history.RECORDS.values())
    writer = history.Writer()
    for record in story.records:
        writer.write(record)
    (file,) = tmp_path.iterdir()
    assert file.name.startswith(f"{os.getpid()}-")
    assert json.loads(json.dumps(history.read(tmp_path))) == json.loads(json.dumps(story.records))
    assert [type(record) for record in history.read(tmp_path)] == [type(record) for record in story.records]
    assert history.read(tmp_path)[0] == story.records[0]


def test_threads_do_not_mix_their_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(history.FOLDER_VARIABLE, str(tmp_path))
    writer = history.Writer()

    def tell(number: int) -> None:
        for step in range(200):
            writer.write(history.Finished(f"{number}-{step}", "t" * 500, True, 1.0))

    threads = [threading.Thread(target=tell, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = {record.key for record in history.read(tmp_path) if isinstance(record, history.Finished)}
    assert keys == {f"{number}-{step}" for number in range(4) for step in range(200)}


# The command


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--kill=worker,everything"], "'everything' is none of worker, server, connection, pause"),
        (["--minutes=0"], "'0' is no number"),
        (["--retry-after=1"], "'1' is no number from 2"),
        (["--rate=many"], "'many' is no number"),
        (["--store=other"], "no queue connection 'other'"),
    ],
)
def test_soak_says_what_is_wrong_with_its_options(arguments: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        call_command("soak", *arguments)


@pytest.mark.parametrize("kill", ["server", "connection"])
def test_soak_says_what_sqlite_lacks(kill: str, settings: Any) -> None:
    if "sqlite" not in django_settings.DATABASES["default"]["ENGINE"]:
        pytest.skip("a server has both")
    with pytest.raises(CommandError, match="SQLite has no"):
        call_command("soak", f"--kill={kill}")


def test_soak_refuses_a_store_that_no_other_process_sees(settings: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    with pytest.raises(CommandError, match="soak cannot try the connection 'default'"):
        call_command("soak")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Not below that of pytest, into which only its own user may look: a server may run as another one."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def soak(folder: Path, temporary: Path, *options: str) -> dict[str, Any]:
    """A short soak of workers that are killed, whose rows are in a file; returns its figures."""
    file = folder / "figures.json"
    environment = {
        **os.environ,
        "JOBQUEUE_TEST_DATABASE": "sqlite",
        "SQLITE_NAME": str(folder / "project.sqlite3"),
        "PYTHONPATH": str(Path(django_jobqueue.__file__).parent.parent),
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "TMPDIR": str(temporary),
    }
    command = [sys.executable, str(Path(django_settings.BASE_DIR) / "manage.py"), "soak"]
    command += ["--minutes=0.1", "--workers=3", "--rate=60", "--retry-after=2", f"--json={file}", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("Every promise was kept.\n")
    assert not (folder / "project.sqlite3").exists()
    found: dict[str, Any] = json.loads(file.read_text())
    # A supervisor that is killed leaves its folder behind.
    assert len(list(temporary.iterdir())) <= found["disturbances"]["kills_of_supervisors"]
    assert "\n".join(lines(found)) in done.stdout
    return found


@pytest.mark.process
def test_a_short_soak_keeps_every_promise_and_leaves_nothing_behind(tmp_path: Path, temporary: Path) -> None:
    found = soak(tmp_path, temporary, "--kill=worker,pause")
    assert all(set(found[key]) == keys for key, keys in MATRIX.items())
    assert found["verified"] is True
    assert found["options"]["kill"] == ["pause", "worker"]
    assert found["jobs"]["committed"] > 50
    assert found["jobs"]["committed"] <= found["jobs"]["runs"]
    assert any(found["flows"].values())
    assert found["disturbances"]["kills"] + found["disturbances"]["clean_stops"] > 0
    assert set(found["violations"].values()) == {0}


@pytest.mark.slow
@pytest.mark.process
def test_a_short_soak_of_redis_keeps_every_promise(tmp_path: Path, temporary: Path) -> None:
    """With its server killed or stopped, too."""
    private_redis()  # skips where the programs of one are missing
    found = soak(tmp_path, temporary, "--store=redis", "--kill=worker,server,connection,pause")
    assert found["store"]["version"].startswith("Redis")
    assert found["disturbances"]["restarts"] > 0
    assert found["disturbances"]["kills"] + found["disturbances"]["clean_stops"] > 0
    assert any(found["flows"].values())


def test_a_report_is_of_every_rule(story: Story) -> None:
    found = {violation.rule for violation in story.check()}
    assert found <= set(RULES)
    assert document.__module__ == "lab.soaking.report"
