"""Two connections at once: nobody waits for a worker's open transaction, whatever the project's isolation level is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, TypeVar
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, connections, transaction

from django_jobqueue.drivers.database import DatabaseDriver
from django_jobqueue.drivers.transactions import READ_COMMITTED
from django_jobqueue.jobs.records import Complete, Fail, NewJob, Release, Reservation, ReserveLimit
from django_jobqueue.models import FailedJob, Job
from tests.drivers.contract import attempt, new
from tests.helpers.aliases import database_alias
from tests.helpers.holding import held_open
from tests.helpers.rows import analyze, statements
from tests.helpers.threads import all_at_once, in_threads

pytestmark = pytest.mark.django_db(transaction=True)

T = TypeVar("T")
# The level of the project's connections, by vendor; None is the server's default.
LEVELS: dict[str, dict[str, Any]] = {
    "postgresql": {"read committed": 2, "repeatable read": 3, "serializable": 4},
    "mysql": {"read committed": "read committed", "repeatable read": "repeatable read", "serializable": "serializable"},
    "sqlite": {"serializable": None},
}
EVERY_LEVEL = sorted({level for levels in LEVELS.values() for level in levels})
# Of the server, in seconds: what does not wait never notices.
LONGEST_WAIT = 1


@pytest.fixture(params=EVERY_LEVEL)
def level(request: pytest.FixtureRequest) -> str:
    if request.param not in LEVELS[connection.vendor]:
        pytest.skip(f"{connection.vendor} has no such level")
    return request.param


@pytest.fixture
def driver(level: str) -> Iterator[DatabaseDriver]:
    """A driver whose connections have the level."""
    wanted = LEVELS[connection.vendor][level]
    with database_alias("strict", OPTIONS={"isolation_level": wanted} if wanted else {}):
        yield DatabaseDriver("default", {"DATABASE": "strict"})


@pytest.fixture
def needs_row_locks() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("the only lock of this database is that of everything")


def take(driver: DatabaseDriver, rows: int, *, worker: str = "w1", retry_after: float = 90) -> list[Reservation]:
    limit = ReserveLimit(rows=rows, max_attempts=3)
    return driver.reserve("default", worker, limit, retry_after=retry_after).jobs


# Whoever meets an open transaction of a worker


@dataclass
class Scene:
    """50 ready jobs, 200 reserved ones, of which 20 have expired, 200 scheduled ones, of which 20 are due."""

    driver: DatabaseDriver
    held: list[Reservation]

    def impatiently(self, action: Callable[[], Any]) -> Any:
        """What an action returns in a thread that does not wait for locks."""

        def run() -> Any:
            with connections["strict"].cursor() as cursor:
                if connection.vendor == "postgresql":
                    cursor.execute(f"SET lock_timeout = '{LONGEST_WAIT}s'")
                else:
                    cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {LONGEST_WAIT}")
            return action()

        return all_at_once([run])[0]


@pytest.fixture
def scene(driver: DatabaseDriver, needs_row_locks: None) -> Scene:
    driver.push([new(f"reserved.{number}") for number in range(200)])
    held = take(driver, 180) + take(driver, 20, worker="lost", retry_after=0)
    driver.push([new(f"ready.{number}", rank=number % 3 - 1) for number in range(50)])
    driver.push([new(f"late.{number}", delay=3600) for number in range(180)])
    driver.push([new(f"due.{number}", delay=0.000001) for number in range(20)])
    analyze()
    return Scene(driver, held)


def take_ten(scene: Scene) -> None:
    assert len(take(scene.driver, 10)) == 10


# What a worker does, and the statement behind which its transaction is held open. One statement commits by itself.
HOLDERS: dict[str, tuple[str, Callable[[Scene], Any]]] = {
    "a reserve that has locked": ("SELECT", take_ten),
    "a reserve that has taken": ("UPDATE", take_ten),
    "a completion": ("DELETE", lambda scene: scene.driver.settle([Complete(scene.held[0]), Release(scene.held[1], 0)])),
    "a release": ("UPDATE", lambda scene: scene.driver.settle([Release(job, 0) for job in scene.held[:2]])),
    "a failure": ("INSERT", lambda scene: scene.driver.settle([Fail(job, attempt()) for job in scene.held[:2]])),
    "a hand-back": ("UPDATE", lambda scene: scene.driver.hand_back(scene.held[:10])),
    "a renewal": ("UPDATE", lambda scene: scene.driver.renew(scene.held[:10], retry_after=90)),
    "a staging": ("UPDATE", lambda scene: scene.driver.stage("default", limit=10)),
    "a rescue": ("UPDATE", lambda scene: scene.driver.rescue(max_attempts=3, limit=10)),
}


def others_take(scene: Scene) -> None:
    assert len(take(scene.driver, 10, worker="w2")) == 10


def others_dispatch(scene: Scene) -> None:
    for rank in (-5, 0, 5):
        assert scene.driver.push([new(rank=rank)])
        assert len(scene.driver.push([new(rank=rank), new(rank=rank, delay=60)])) == 2
    with transaction.atomic(using="strict"):
        assert scene.driver.push([new(), new(delay=1)])


def others_settle(scene: Scene) -> None:
    a, b, c, d, e, *_ = scene.held[20:]
    scene.driver.settle([Complete(a), Release(b, 0), Release(c, 5, attempt()), Fail(d, attempt())])
    assert scene.driver.settle([Complete(e)]) == {e.id}


def others_give_back(scene: Scene) -> None:
    held = scene.held[30:40]
    assert scene.driver.hand_back(held) == {job.id for job in held}


def others_renew(scene: Scene) -> None:
    assert scene.driver.renew(scene.held[40:60], retry_after=90) == set()


def others_renew_all(scene: Scene) -> None:
    """Rows that are locked are neither waited for nor lost; the first forty may have ended by now."""
    assert scene.driver.renew(scene.held[:180], retry_after=90) <= {job.id for job in scene.held[:40]}


def others_stage(scene: Scene) -> None:
    assert scene.driver.stage("default") >= 10


def others_rescue(scene: Scene) -> None:
    assert len(scene.driver.rescue(max_attempts=3)) >= 10


def others_cancel(scene: Scene) -> None:
    late = Job.objects.using("strict").filter(name="late.170").values_list("id", flat=True).get()
    record = scene.driver.cancel(late)
    assert record is not None
    assert record.name == "late.170"


def others_look(scene: Scene) -> None:
    assert scene.driver.queues() == ["default"]
    assert scene.driver.get(scene.held[2].id) is not None
    assert scene.driver.sizes()["default"].ready


OTHERS = [
    others_take,
    others_dispatch,
    others_settle,
    others_give_back,
    others_renew,
    others_renew_all,
    others_stage,
    others_rescue,
    others_cancel,
    others_look,
]


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda name: name.replace(" ", "_"))
def test_nobody_waits_for_a_workers_open_transaction(scene: Scene, holder: str) -> None:
    """F76"""
    scene.driver.uses_vendor_forms = False  # which are one statement, and never wait in the middle
    after, hold = HOLDERS[holder]
    with held_open("strict", lambda: hold(scene), after=after):
        scene.impatiently(lambda: [other(scene) for other in OTHERS])


def test_nobody_waits_for_a_caller_who_has_dispatched(scene: Scene) -> None:
    with transaction.atomic(using="strict"):
        scene.driver.push([new(rank=-100), new(), new(rank=100), new(delay=5)])
        scene.impatiently(lambda: [other(scene) for other in OTHERS])


# Exactly once


def patiently(driver: DatabaseDriver, action: Callable[[], T]) -> T:
    """What an action returns; as a worker does, try again when the store says that somebody was in the way."""
    for _ in range(100):
        try:
            return action()
        except driver.outages as error:
            if not driver.is_busy(error):
                raise
    return action()


def drain(driver: DatabaseDriver, worker: str, rows: int) -> list[tuple[UUID, int]]:
    """Reserve and settle until nothing is left; returns what was completed, and by which attempt."""
    ran: list[tuple[UUID, int]] = []
    chance = random.Random(worker)
    while jobs := patiently(driver, lambda: take(driver, rows, worker=worker)):
        settlements: list[Complete | Release] = []
        back = []
        for job in jobs:
            fate = chance.random()
            if fate < 0.1:
                back.append(job)
            elif fate < 0.2:
                settlements.append(Release(job, 0))
            else:
                settlements.append(Complete(job))
        assert len(patiently(driver, partial(driver.hand_back, back))) == len(back)
        assert len(patiently(driver, partial(driver.settle, settlements))) == len(settlements)
        ran += [(item.reservation.id, item.reservation.attempt) for item in settlements if isinstance(item, Complete)]
    return ran


def assert_drained_once(driver: DatabaseDriver, ids: set[UUID]) -> None:
    ran = [item for found in in_threads(4, lambda number: drain(driver, f"w{number}", 7)) for item in found]
    assert Counter(job_id for job_id, _ in ran) == dict.fromkeys(ids, 1)
    assert {attempts for _, attempts in ran} == {1}
    assert driver.queues() == []


@pytest.mark.parametrize("form", ["own", "portable"])
def test_four_workers_run_1000_jobs_once_and_spend_no_other_attempt(driver: DatabaseDriver, form: str) -> None:
    """F77"""
    driver.uses_vendor_forms = form == "own"
    ids = {job_id for _ in range(10) for job_id in driver.push([new() for _ in range(100)])}
    assert_drained_once(driver, ids)


def test_without_skip_locked_each_job_still_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """F78: As on MariaDB before 10.6."""
    monkeypatch.setattr(type(connection.features), "has_select_for_update_skip_locked", False)
    driver = DatabaseDriver("default", {"DATABASE": "default"})
    driver.uses_vendor_forms = False
    ids = driver.push([new() for _ in range(200)])
    late = driver.push([new(delay=0.000001) for _ in range(100)])
    assert sum(in_threads(2, lambda number: patiently(driver, lambda: driver.stage("default")))) == 100
    assert_drained_once(driver, ids | late)


def test_without_returning_each_job_still_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on MySQL."""
    if connection.vendor == "postgresql":
        pytest.skip("always has RETURNING")
    monkeypatch.setattr(type(connection.features), "can_return_rows_from_bulk_insert", False)
    driver = DatabaseDriver("default", {"DATABASE": "default"})
    assert_drained_once(driver, driver.push([new() for _ in range(200)]))


def test_without_returning_a_settle_knows_what_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor == "postgresql":
        pytest.skip("always has RETURNING")
    monkeypatch.setattr(type(connection.features), "can_return_rows_from_bulk_insert", False)
    driver = DatabaseDriver("default", {"DATABASE": "default"})
    driver.push([new() for _ in range(10)])
    held = take(driver, 10)
    driver.hand_back(held[:3])
    follow = {job.id: new("next") for job in held}
    owned = driver.settle([Complete(job, (follow[job.id],)) for job in held])
    assert owned == {job.id for job in held[3:]}
    kept = set(Job.objects.filter(name="next").values_list("id", flat=True))
    assert kept == {follow[job_id].id for job_id in owned}


def test_two_stagers_share_what_is_due(driver: DatabaseDriver) -> None:
    driver.push([new(delay=0.000001) for _ in range(1200)])

    def stage(number: int) -> int:
        moved = 0
        while now := driver.stage("default", limit=100):
            moved += now
        return moved

    assert sum(in_threads(2, stage)) == 1200
    assert set(Job.objects.values_list("state", flat=True)) == {"ready"}


# Deadlocks


@pytest.fixture
def met() -> Iterator[list[str]]:
    """The errors of all statements, those that were repeated too."""
    errors: list[str] = []
    lock = Lock()

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except DatabaseError as error:
            with lock:
                errors.append(f"{error}: {' '.join(sql.split())[:200]}")
            raise

    def listen(*, connection: Any, **sent: Any) -> None:
        if note not in connection.execute_wrappers:
            connection.execute_wrappers.append(note)

    from django.db.backends.signals import connection_created

    connection_created.connect(listen)
    yield errors
    connection_created.disconnect(listen)


def test_workers_and_callers_never_deadlock(driver: DatabaseDriver, met: list[str], needs_row_locks: None) -> None:
    """Stagers, reservers, rescuers, cancellers, people who retry, and callers at the level of the project."""
    rounds = 40

    def dispatch(number: int) -> None:
        for step in range(rounds):
            with transaction.atomic(using="strict"):
                driver.push([new(rank=step % 5 - 2)])
                driver.push([new(rank=step % 3), new(delay=0.000001), new(delay=0.01)])

    def work(number: int) -> None:
        for step in range(rounds):
            jobs = take(driver, 10, worker=f"w{number}", retry_after=90 if step % 3 else 0)
            driver.renew(jobs[::2], retry_after=90 if step % 3 else 0)
            driver.hand_back(jobs[8:])
            fates = (Complete, lambda job: Release(job, 0), lambda job: Fail(job, attempt()), Complete)
            driver.settle([fates[(index + step) % 4](job) for index, job in enumerate(jobs[:8])])

    def tend(number: int) -> None:
        for _ in range(rounds):
            driver.rescue(max_attempts=100)
            driver.stage("default", limit=20)

    def help_out(number: int) -> None:
        for _ in range(rounds):
            for record in driver.peek("default", limit=2):
                driver.cancel(record.id)
            driver.retry({letter.number: None for letter in driver.failed(limit=5)})
            driver.forget([letter.number for letter in driver.failed(limit=1)])

    roles = [dispatch, dispatch, work, work, tend, tend, help_out, help_out]
    all_at_once([lambda role=role, number=number: role(number) for number, role in enumerate(roles)])
    # People who retry and forget the same dead letters may meet; they are not told either.
    assert [error for error in met if "django_jobqueue_failedjob" not in error] == []


def test_callers_who_dispatch_the_same_jobs_in_another_order_store_each_once(driver: DatabaseDriver) -> None:
    """A dispatch is repeated when it met another; outside of a caller's transaction nobody is told."""
    jobs: list[NewJob] = [new() for _ in range(50)]

    def push(number: int) -> set[UUID]:
        return driver.push(jobs if number % 2 else jobs[::-1])

    stored = in_threads(2, push)
    assert set().union(*stored) == {job.id for job in jobs}
    assert sum(map(len, stored)) == Job.objects.count() == 50


def test_retrying_and_forgetting_the_same_dead_letters_at_once_does_one_of_both(driver: DatabaseDriver) -> None:
    driver.push([new() for _ in range(100)])
    driver.settle([Fail(job, attempt()) for job in take(driver, 100)])
    numbers = [letter.number for letter in driver.failed()]
    retried, again, forgotten = all_at_once(
        [
            lambda: driver.retry(dict.fromkeys(numbers)),
            lambda: driver.retry(dict.fromkeys(numbers[::-1])),
            lambda: driver.forget(numbers),
        ]
    )
    assert sorted([*retried, *again, *forgotten]) == sorted(numbers)
    assert Job.objects.count() == len(retried) + len(again)
    assert not FailedJob.objects.exists()


# The isolation level


def test_a_worker_reads_what_is_committed_whatever_the_level_of_the_project(
    driver: DatabaseDriver, level: str, needs_row_locks: None
) -> None:
    driver.push([new()])
    sent = statements(lambda: take(driver, 1), alias="strict")
    assert [sql for sql in sent if "ISOLATION LEVEL" in sql] == ([] if level == "read committed" else [READ_COMMITTED])


def test_the_level_is_asked_for_once_for_each_connection(driver: DatabaseDriver, needs_row_locks: None) -> None:
    def asked() -> list[str]:
        return [
            sql
            for sql in statements(lambda: (take(driver, 1), driver.stage("default")), alias="strict")
            if "default_transaction_isolation" in sql or "isolation@@" in sql or "@@session." in sql
        ]

    connections["strict"].close()
    first = len(asked())
    assert first <= 1
    assert asked() == []
    connections["strict"].close()
    assert len(asked()) == first


def test_the_level_of_a_callers_transaction_is_left_alone(driver: DatabaseDriver, needs_row_locks: None) -> None:
    driver.push([new(), new(delay=0.000001)])
    with transaction.atomic(using="strict"):
        connections["strict"].cursor().execute("SELECT 1")
        sent = statements(lambda: (driver.stage("default"), take(driver, 1), driver.push([new()])), alias="strict")
    assert not [sql for sql in sent if "ISOLATION" in sql]


def test_a_transaction_of_the_project_keeps_its_level(
    driver: DatabaseDriver, level: str, needs_row_locks: None
) -> None:
    take(driver, 1)
    question = "SHOW transaction_isolation" if connection.vendor == "postgresql" else "SELECT @@session.tx_isolation"
    with transaction.atomic(using="strict"), connections["strict"].cursor() as cursor:
        cursor.execute(question)
        assert cursor.fetchone()[0].replace("-", " ").lower() == level
