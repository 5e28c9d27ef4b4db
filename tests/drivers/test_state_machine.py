"""Any operations in any order: a driver and a plain model of the queue do the same, and must show the same.

A failure prints the shortest run of operations that was found; its minimal case belongs into test_contract.py as
a plain test. Jobs are called j1, j2 …, and j1.2 is the second reservation of j1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_jobqueue.drivers.base import Driver
from django_jobqueue.jobs.records import (
    Cause,
    Complete,
    Fail,
    JobRecord,
    NewJob,
    Position,
    Release,
    Reservation,
    ReserveLimit,
    Settlement,
)
from django_jobqueue.models import FailedJob, Job
from tests.drivers.contract import RETRY_AFTER, Clock, attempt
from tests.drivers.model import ModelQueue
from tests.helpers.redis import wipe

# Several seeds of few examples each: after ten, hypothesis repeats and changes those that it had, which are long.
SEEDS = range(5)
BOUNDED = settings(
    max_examples=10,
    stateful_step_count=40,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
QUEUES = ("default", "Default")
WORKERS = ("w1", "w2", "w3")
NAMES = ("fast", "slow", "unknown")
NO_NUMBER = 10**9
TIMEOUT = Cause(exception_class="JobTimeout", message="hung", traceback="File shop.py")
# Less than a microsecond is no time at all.
DELAYS = (0.0, 1e-7, 0.000001, 1.0, 10.0, 100.0)


class Wanted(NamedTuple):
    """A job to push; ``due`` is in seconds from now, ``first_byte`` that of its id, which decides between equals."""

    name: str
    queue: str
    rank: int
    delay: float | None
    due: float | None
    max_attempts: int | None
    retry_for: float | None
    first_byte: int


class Way(NamedTuple):
    """How one reservation ends."""

    verb: str
    delay: float
    then: list[Wanted]
    then_known: bool


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def _due_once(wanted: Wanted) -> Wanted:
    return wanted if wanted.due is None else wanted._replace(delay=None)


wanted_jobs = st.builds(
    Wanted,
    name=one_of(*NAMES),
    queue=one_of(*QUEUES),
    rank=one_of(0, -1, 1),
    delay=one_of(None, None, None, None, None, *DELAYS),
    due=one_of(None, None, None, 0.0, -10.0, 10.0),
    max_attempts=one_of(None, None, 5, 5, 2, 1),
    retry_for=one_of(None, None, 0.0, 10.0, 200.0),
    first_byte=one_of(0x01, 0x7F, 0xFE),
).map(_due_once)
ways = st.builds(
    Way,
    verb=one_of("complete", "try again", "try again", "fail", "fail", "release"),
    delay=one_of(0.0, *DELAYS),
    then=st.lists(wanted_jobs, max_size=1),
    then_known=st.booleans(),
)
limits = st.builds(
    ReserveLimit,
    rows=one_of(10, 10, 10, 3, 1),
    max_attempts=one_of(3, 3, 3, 1),
    seconds=one_of(float("inf"), float("inf"), 1.0),
    averages=one_of({"fast": 0.25, "slow": 0.5}, {}, {"fast": 0.25}, {"fast": 0.5, "slow": 2.0}),
)
# A call of its own, or one that joins a transaction of the caller.
joined = one_of("alone", "alone", "commit", "roll back")


class QueueMachine(RuleBasedStateMachine):
    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self.driver = driver
        self.clock = Clock()
        self.model = ModelQueue(driver.alias, goes_on_behind=driver.supports_transactions)
        self.ids: dict[str, UUID] = {}
        self.reservations: dict[str, Reservation] = {}
        self.only_time_passed = False
        self.last_number = driver.last_failed_number()

    @property
    def now(self) -> datetime:
        return self.clock.now

    # Dispatch

    @initialize(wanted=st.lists(wanted_jobs, min_size=3, max_size=6))
    def begin(self, wanted: list[Wanted]) -> None:
        self._push([self._new(each) for each in wanted], "alone")

    # Few jobs with a long history show more than many with none.
    @precondition(lambda self: len(self.model.jobs) < 8)
    @rule(
        data=st.data(), wanted=st.lists(wanted_jobs, min_size=1, max_size=2), is_known=one_of(False, True), how=joined
    )
    def push(self, data: st.DataObject, wanted: list[Wanted], is_known: bool, how: str) -> None:
        jobs = [self._new(each) for each in wanted]
        if is_known:
            jobs += [*self._known(data, wanted[0]), jobs[0]._replace(name="again", rank=1)]
        self._push(jobs, how)

    def _known(self, data: st.DataObject, changed: Wanted) -> list[NewJob]:
        """Other jobs under ids that are there already, or are gone."""
        known = self._labels(lambda job_id: job_id not in self.model.dead)
        return [self._new(changed, self.ids[label]) for label in self._pick(data, "known", known, 2)]

    def _push(self, jobs: list[NewJob], how: str) -> None:
        with self._joined(how) as model:
            assert self.driver.push(jobs, now=self.now) == model.push(jobs, self.now)

    # A worker's turn

    @precondition(lambda self: any(self.model.due(queue, self.now) for queue in QUEUES))
    @rule(data=st.data(), limit=one_of(500, 2, 1))
    def stage(self, data: st.DataObject, limit: int) -> None:
        queue = self._pick_queue(data, "scheduled")
        due = self.model.due(queue, self.now)
        assert self.driver.stage(queue, limit=limit, now=self.now) == min(limit, len(due))
        staged = {job.id for job in due if self._get(job.id).state == "ready"}
        _check_first({job.id: job.available_at for job in due}, staged, limit)
        self.model.stage(staged, self.now)

    @precondition(lambda self: any(self.model.in_state(queue, "ready") for queue in QUEUES))
    @rule(
        data=st.data(),
        worker=one_of(*WORKERS),
        limit=limits,
        retry_after=one_of(10.0, RETRY_AFTER),
        goes_on=st.booleans(),
    )
    def reserve(self, data: st.DataObject, worker: str, limit: ReserveLimit, retry_after: float, goes_on: bool) -> None:
        queue = self._pick_queue(data, "ready")
        self._reserve(queue, worker, limit, retry_after=retry_after, after=self._mark(queue) if goes_on else None)

    def _reserve(
        self, queue: str, worker: str, limit: ReserveLimit, *, retry_after: float, after: Position | None
    ) -> list[Reservation]:
        reserved = self.driver.reserve(queue, worker, limit, retry_after=retry_after, after=after, now=self.now)
        expected, more = self.model.reserve(queue, worker, limit, retry_after=retry_after, after=after, now=self.now)
        nameless = [reservation._replace(token=UUID(int=0)) for reservation in reserved.jobs]
        assert nameless == expected
        assert reserved.more == more
        _check_poison_rule(reserved.jobs, limit)
        known = {(reservation.id, reservation.token) for reservation in self.reservations.values()}
        assert not known & {(reservation.id, reservation.token) for reservation in reserved.jobs}
        self.model.adopt(reserved.jobs)
        for reservation in reserved.jobs:
            label = next(label for label, job_id in self.ids.items() if job_id == reservation.id)
            turn = sum(1 for earlier in self.reservations.values() if earlier.id == reservation.id) + 1
            self.reservations[f"{label}.{turn}"] = reservation
        return reserved.jobs

    def _mark(self, queue: str) -> Position | None:
        """Behind what was taken of this queue last."""
        taken = [reservation for reservation in self.reservations.values() if reservation.queue == queue]
        return taken[-1].position if taken else None

    @precondition(lambda self: any(self.model.in_state(queue, "ready") for queue in QUEUES))
    @rule(data=st.data(), limit=limits, end=one_of("settled", "settled", "lost", "killed"))
    def work(self, data: st.DataObject, limit: ReserveLimit, end: str) -> None:
        """What most of a job's life is: reserved, then settled, or lost with its worker."""
        held = self._reserve(self._pick_queue(data, "ready"), "w1", limit, retry_after=10.0, after=None)
        self.the_driver_shows_what_the_model_has()
        if end == "lost":
            self.clock.tick(data.draw(one_of(10.0, 3600.0), label="seconds"))
            self._rescue(limit.max_attempts, 500)
        elif held and end == "killed":
            self._rescue_in_hand(held[0], limit.max_attempts, spends=True, cause=None)
        elif held:
            self._settle(data, held, "alone")

    @precondition(lambda self: self.model.held())
    @rule(data=st.data(), retry_after=one_of(RETRY_AFTER, 10.0))
    def renew(self, data: st.DataObject, retry_after: float) -> None:
        held = self._pick_reservations(data)
        lost = self.driver.renew(held, retry_after=retry_after, now=self.now)
        assert lost == self.model.renew(held, retry_after=retry_after, now=self.now)

    @precondition(lambda self: self.reservations)
    @rule(data=st.data(), how=joined)
    def settle(self, data: st.DataObject, how: str) -> None:
        self._settle(data, self._pick_reservations(data), how)

    def _settle(self, data: st.DataObject, held: list[Reservation], how: str) -> None:
        settlements = [self._settlement(data, reservation, held) for reservation in held]
        with self._joined(how) as model:
            if how != "alone" and self.driver.supports_transactions:
                assert [self.driver.lock(each) for each in held] == [model.holds(each) is not None for each in held]
            assert self.driver.settle(settlements, now=self.now) == model.settle(settlements, self.now)

    def _settlement(self, data: st.DataObject, held: Reservation, settled: list[Reservation]) -> Settlement:
        way = data.draw(ways, label="way")
        record = attempt(held.attempt, f"{way.verb} of {held.name}")
        if way.verb == "fail":
            return Fail(held, record)
        if way.verb != "complete":
            return Release(held, way.delay, record if way.verb == "try again" else None)
        then = [self._new(wanted) for wanted in way.then]
        others = [job_id for job_id in self.model.jobs if job_id not in {each.id for each in settled}]
        if way.then_known and others:
            then.insert(0, self._new(Wanted("again", "default", 0, None, None, None, None, 1), others[0]))
        return Complete(held, tuple(then))

    @precondition(lambda self: self.model.held())
    @rule(data=st.data(), worker=one_of(None, *WORKERS))
    def hand_back(self, data: st.DataObject, worker: str | None) -> None:
        held = self._pick_reservations(data)
        if worker is not None:
            started = {each.id for each in held[1:]}
            released = self.driver.release_worker(worker, but=started, now=self.now)
            assert released == self.model.release_worker(worker, but=started)
            return
        valid = [each for each in held if self.model.holds(each)]
        assert self.driver.hand_back(held) == self.model.hand_back(held)
        assert all(self._get(each.id).ready_at == each.ready_at for each in valid)

    @precondition(lambda self: self.model.expired(self.now))
    @rule(max_attempts=one_of(3, 1), limit=one_of(500, 2, 1))
    def rescue(self, max_attempts: int, limit: int) -> None:
        self._rescue(max_attempts, limit)

    def _rescue(self, max_attempts: int, limit: int) -> None:
        expired = {held.id: held.reserved_until for held in self.model.expired(self.now)}
        rescued = self.driver.rescue(max_attempts=max_attempts, limit=limit, now=self.now)
        chosen = [each.id for each in rescued]
        _check_first(expired, set(chosen), limit)
        assert rescued == self.model.rescue(chosen, max_attempts=max_attempts, now=self.now)

    @precondition(lambda self: self.model.held())
    @rule(data=st.data(), max_attempts=one_of(3, 1), spends=st.booleans(), cause=one_of(None, TIMEOUT))
    def rescue_in_hand(self, data: st.DataObject, max_attempts: int, spends: bool, cause: Cause | None) -> None:
        self._rescue_in_hand(self._pick_reservations(data)[0], max_attempts, spends=spends, cause=cause)

    def _rescue_in_hand(self, held: Reservation, max_attempts: int, *, spends: bool, cause: Cause | None) -> None:
        how: dict[str, Any] = {"max_attempts": max_attempts, "spends": spends, "cause": cause, "now": self.now}
        assert self.driver.rescue_in_hand(held.id, held.token, **how) == self.model.rescue_in_hand(held, **how)

    # What people do

    @precondition(lambda self: len(self.model.jobs) > 4)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        label = data.draw(st.sampled_from([*self.ids, *QUEUES]), label="job or queue")
        if label in QUEUES:
            self._clear(label, data.draw(one_of(1, 2, 500), label="limit"))
        else:
            assert self.driver.cancel(self.ids[label]) == self.model.cancel(self.ids[label])

    def _clear(self, queue: str, limit: int) -> None:
        idle = self.model.idle(queue)
        assert self.driver.clear(queue, limit=limit) == min(limit, len(idle))
        self.model.clear([job_id for job_id in idle if self.driver.get(job_id) is None])

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        numbers = self._pick_numbers(data)
        retry_for = {number: data.draw(one_of(None, 10.0), label="retry_for") for number in numbers}
        assert self.driver.retry(retry_for, now=self.now) == self.model.retry(retry_for, self.now)

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data(), newest_first=st.booleans(), limit=one_of(1, 2, 500), is_forgetting=st.booleans())
    def find_and_forget(self, data: st.DataObject, newest_first: bool, limit: int, is_forgetting: bool) -> None:
        numbers = [job.number for job in self.model.dead.values() if job.number]
        some = st.sampled_from(numbers)
        texts = [str(self.ids[label]) for label in self._labels(lambda job_id: job_id in self.model.dead)]
        endings = st.builds(lambda text, length: text[-length:], st.sampled_from(texts), st.integers(1, 36))
        conditions = data.draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "numbers": st.lists(some, max_size=2),
                    "job_id": st.sampled_from(list(self.ids.values())),
                    "ending": endings,
                    "queue": one_of(*QUEUES),
                    "up_to": some,
                    "after": some,
                },
            ),
            label="conditions",
        )
        conditions |= {"newest_first": newest_first, "limit": limit}
        assert self.driver.failed(**conditions) == self.model.failed(**conditions)
        if is_forgetting:
            numbers = self._pick_numbers(data)
            assert self.driver.forget(numbers) == self.model.forget(numbers)
        queue = conditions.get("queue")
        assert self.driver.failed_count(queue=queue) == len(
            self.model.failed(**{} if queue is None else {"queue": queue})
        )

    @rule(data=st.data())
    def let_time_pass(self, data: st.DataObject) -> None:
        """To the very moment at which something is due or expires, past it, and back, as when a clock is set."""
        scheduled = [job.available_at for job in self.model.jobs.values() if job.state == "scheduled"]
        expiring = [held.reserved_until for held in self.model.held()]
        steps = [(moment - self.now).total_seconds() for moment in {*scheduled, *expiring} if moment > self.now]
        self.only_time_passed = True
        self.clock.tick(data.draw(st.sampled_from([*sorted(steps) * 2, 1.0, 3600.0, 0.000001, -5.0]), label="seconds"))

    # What must hold after each

    @invariant()
    def the_driver_shows_what_the_model_has(self) -> None:
        self._number()
        assert self.driver.sizes(now=self.now) == self.model.sizes(self.now)
        if not self.only_time_passed:
            self._compare_jobs()
        self.only_time_passed = False

    def _compare_jobs(self) -> None:
        """Every job; where the sizes say that there is none, none is asked for."""
        driver, model = self.driver, self.model
        assert driver.queues() == model.queues()
        if model.dead:
            assert driver.failed() == model.failed()
        for queue in QUEUES:
            ready = [model.get(job.id) for job in model.in_state(queue, "ready")]
            assert not ready or driver.peek(queue, limit=100) == ready
        for job in (*model.jobs.values(), *model.dead.values()):
            assert job.attempts >= (1 if job.held else 0)
            if job.state != "ready":
                assert driver.get(job.id) == model.get(job.id)

    def _number(self) -> None:
        """Learn the numbers of new dead letters: greater than any before, however many were forgotten since."""
        new = [job for job in self.model.dead.values() if job.number is None]
        if new:
            found = {summary.id: summary.number for summary in self.driver.failed(after=self.last_number)}
            assert found.keys() == {job.id for job in new}
            for job in new:
                job.number = found[job.id]
            self.last_number = max(found.values())
            assert self.driver.last_failed_number() == self.last_number

    # Details

    def _new(self, wanted: Wanted, job_id: UUID | None = None) -> NewJob:
        if job_id is None:
            turn = len(self.ids) + 1
            # Neither in the order of dispatch nor at random: ids decide between jobs that are equal otherwise.
            job_id = UUID(int=(wanted.first_byte << 120) + (0x7 << 76) + (0x2 << 62) + turn)
            self.ids[f"j{turn}"] = job_id
        return NewJob(
            id=job_id,
            name=wanted.name,
            queue=wanted.queue,
            payload=f'{{"args":[{len(self.ids)}],"kwargs":{{}}}}',
            format=1,
            rank=wanted.rank,
            max_attempts=wanted.max_attempts,
            retry_for=wanted.retry_for,
            delay=wanted.delay,
            available_at=None if wanted.due is None else self.now + timedelta(seconds=wanted.due),
            metadata=f'{{"n":{len(self.ids)}}}',
        )

    @contextmanager
    def _joined(self, how: str) -> Iterator[ModelQueue]:
        """A model that becomes ours when the transaction commits."""
        model = self.model if how == "alone" else deepcopy(self.model)
        if how == "alone":
            yield model
        elif self.driver.supports_transactions:
            with transaction.atomic(using=self.driver.database):
                yield model
                transaction.set_rollback(how == "roll back", using=self.driver.database)
            self.model = self.model if how == "roll back" else model
        else:
            yield self.model

    def _get(self, job_id: UUID) -> JobRecord:
        record = self.driver.get(job_id)
        assert record is not None
        return record

    def _labels(self, wanted: Callable[[UUID], bool] = lambda job_id: True) -> list[str]:
        return [label for label, job_id in self.ids.items() if wanted(job_id)]

    def _pick(self, data: st.DataObject, label: str, choices: list[Any], most: int, *, least: int = 0) -> list[Any]:
        if not choices:
            return []
        some = st.lists(st.sampled_from(choices), unique=True, min_size=least, max_size=most)
        return data.draw(some, label=label)

    def _pick_queue(self, data: st.DataObject, state: str) -> str:
        useful = [queue for queue in QUEUES if self.model.in_state(queue, state)]
        return data.draw(st.sampled_from([*useful * 3, *QUEUES]), label="queue")

    def _pick_reservations(self, data: st.DataObject) -> list[Reservation]:
        """Valid and stale ones, and of one job both."""
        valid = [label for label, held in self.reservations.items() if self.model.holds(held)]
        stale = [label for label in self.reservations if label not in valid]
        picked = self._pick(data, "valid", valid, 4, least=1)
        picked += self._pick(data, "stale", stale[::-1], 2, least=0 if picked else 1)
        return [self.reservations[label] for label in data.draw(st.permutations(picked), label="order")]

    def _pick_numbers(self, data: st.DataObject) -> list[int]:
        numbers = [job.number for job in self.model.dead.values()]
        return self._pick(data, "numbers", [*numbers, NO_NUMBER], 3, least=1)


def _check_first(moments: dict[UUID, datetime], chosen: set[UUID], limit: int) -> None:
    """The chosen are the first; between those of one moment the driver may choose."""
    assert chosen <= moments.keys()
    assert len(chosen) == min(limit, len(moments))
    left = [moment for job_id, moment in moments.items() if job_id not in chosen]
    assert all(moments[job_id] <= min(left) for job_id in chosen if left)


def _check_poison_rule(reserved: list[Reservation], limit: ReserveLimit) -> None:
    """What may kill its worker takes no other job with it."""
    assert all(reservation.alone == (len(reserved) == 1) for reservation in reserved)
    for reservation in reserved:
        most = limit.max_attempts if reservation.max_attempts is None else reservation.max_attempts
        assert reservation.alone or not (reservation.crashes or reservation.attempt >= most)


@pytest.mark.parametrize("start", SEEDS)
def test_a_driver_does_what_the_model_does(driver: Driver, start: int) -> None:
    @seed(start)  # the same examples in every run, so that CI never fails for a change that is not to blame
    def machine() -> QueueMachine:
        if driver.supports_transactions:
            for table in (Job, FailedJob):
                table.objects.using(driver.database).all().delete()
            return QueueMachine(driver)
        if driver.is_shared:
            wipe(driver)
            return QueueMachine(driver)
        return QueueMachine(type(driver)(driver.alias, {}))

    run_state_machine_as_test(machine, settings=BOUNDED)
