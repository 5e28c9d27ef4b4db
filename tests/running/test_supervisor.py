"""What a supervisor does about its processes, with processes that a test plays; and what they note for it."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobqueue import get_job
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs.records import Reservation, ReserveLimit
from django_jobqueue.jobs.workers import LATE_SECONDS
from django_jobqueue.running import notes, recovering, supervisor
from django_jobqueue.running.health import HealthFile
from django_jobqueue.running.notes import Notes
from django_jobqueue.running.options import WorkerOptions, WorkerStats
from django_jobqueue.running.recovering import InHand, Recovery
from django_jobqueue.running.stopping import Stopping
from django_jobqueue.running.supervisor import Supervisor
from tests.helpers.fixtures import FLAKY
from tests.helpers.flaky import FlakyDriver
from tests.helpers.listening import Heard
from tests.helpers.waiting import DEADLINE, wait_until

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
WORKER = "host:7:abc"


class Played:
    """A process that a test plays: it runs until the test says how it ends."""

    def __init__(self, notes_path: Path, workers: int) -> None:
        self.notes = Notes.create(notes_path, workers)
        self.path = notes_path
        self.pid = 7
        self.code: int | None = None
        self.late: list[Any] = []
        self.late_until = self.kill_at = float("inf")
        self.heard: list[tuple[int, bool]] = []
        self.is_closed = False

    def pass_on(self, number: int, *, now: bool) -> None:
        self.heard.append((number, now))

    def kill(self) -> None:
        self.code = -signal.SIGKILL

    def ask_for_stack(self) -> bool:
        return True

    def stack(self, thread: int) -> str:
        return "where it hung"

    def close(self) -> None:
        self.is_closed = True

    def end(self, code: int, stats: WorkerStats | None = None, *, is_over: bool = False) -> None:
        self.notes.report(stats or WorkerStats(), is_over=is_over)
        self.code = code


class Stage:
    """A supervisor whose loop the test turns."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.now = 1000.0
        self.played: list[Played] = []
        monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: self.now))
        processes = options.pop("processes", 2)
        self.stopping = Stopping()
        self.supervisor: Any = Supervisor(
            WorkerOptions(**options),
            [connections["default"]],
            processes=processes,
            command=[],
            stopping=self.stopping,
            start=self._play,  # type: ignore[arg-type]
        )
        self.supervisor._folder = folder

    def _play(self, command: Sequence[str], path: Path, workers: int) -> Played:
        self.played.append(Played(path, workers))
        return self.played[-1]

    def look(self, seconds: float = 0.0) -> bool:
        self.now += seconds
        return bool(self.supervisor._look())


@pytest.fixture
def make_stage(memory: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(**options: Any) -> Stage:
        made.append(Stage(tmp_path, monkeypatch, **options))
        return made[-1]

    yield make
    monkeypatch.undo()
    for stage in made:
        assert stage.supervisor._recovery.end(DEADLINE)


def reserve(count: int = 1, worker: str = WORKER) -> list[Reservation]:
    limit = ReserveLimit(rows=count, max_attempts=3)
    return connections["default"].reserve("default", worker, limit, retry_after=90).jobs


def state(job_id: Any) -> tuple[str, int] | None:
    job = get_job(job_id)
    return None if job is None else (job.state, job.attempts)


# Replacing


def test_a_ready_process_that_ends_is_replaced_at_once(make_stage: Any) -> None:
    stage = make_stage(processes=1)
    stage.look()
    stage.played[0].notes.say_ready()
    for code in (-signal.SIGKILL, 1, 0, 12):
        stage.played[-1].notes.say_ready()
        stage.played[-1].end(code)
        assert not stage.look()
    assert len(stage.played) == 5
    assert [played.is_closed for played in stage.played] == [True] * 4 + [False]


def test_a_process_that_ends_before_it_is_ready_is_replaced_with_growing_pauses(make_stage: Any) -> None:
    stage = make_stage(processes=1)
    stage.look()
    pauses = []
    for _ in range(8):
        stage.played[-1].end(1)
        stage.look()
        count, before = len(stage.played), stage.now
        while len(stage.played) == count:
            stage.look(0.05)
        pauses.append(stage.now - before)
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0], abs=0.06)
    stage.played[-1].notes.say_ready()
    stage.look()
    stage.played[-1].end(1)
    stage.look()
    assert len(stage.played) == 10


def test_it_ends_when_every_process_has_found_nothing(make_stage: Any) -> None:
    stage = make_stage(processes=2)
    stage.look()
    for number, played in enumerate(stage.played):
        assert not stage.look()
        played.notes.say_ready()
        played.end(0, WorkerStats(processed=number + 1), is_over=True)
    assert stage.look()
    assert stage.supervisor.stats == WorkerStats(processed=3)
    assert len(stage.played) == 2


def test_another_release_under_a_supervisor_ends_it(
    make_stage: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What keeps it running starts one of the new release; its processes stop as after a SIGTERM."""
    stage = make_stage(processes=2)
    stage.look()
    first, second = stage.played
    with monkeypatch.context() as release:
        release.setattr(notes, "__version__", "99.0")
        assert Notes.are_outdated(first.path)
    first.end(0)
    stage.look()
    stage.look()
    assert second.heard == [(0, False)]
    second.end(0)
    assert stage.look()
    assert len(stage.played) == 2
    assert [record.event for record in caplog.records if record.levelname == "WARNING"] == ["supervisor_outdated"]


# Stopping


def test_a_wish_to_stop_is_passed_on_once_and_a_second_one_too(make_stage: Any) -> None:
    stage = make_stage(processes=2)
    stage.look()
    for wanted in ([(15, False)], [(15, False), (15, True)]):
        stage.stopping.ask("SIGTERM", 15)
        stage.look()
        stage.look()
        assert [played.heard for played in stage.played] == [wanted, wanted]


def test_what_has_not_ended_after_the_grace_time_and_a_little_is_killed(make_stage: Any) -> None:
    stage = make_stage(processes=1, grace=30)
    stage.look()
    stage.played[0].notes.say_ready()
    stage.stopping.ask("SIGTERM", 15)
    stage.stopping.asked_at = stage.now
    stage.look()
    stage.look(30 + supervisor.STORE_TIME - 0.1)
    assert stage.played[0].code is None
    stage.look(0.2)
    assert stage.look()
    assert len(stage.played) == 1
    assert stage.supervisor._left_jobs


def test_without_an_end_of_the_grace_time_nothing_is_killed(make_stage: Any) -> None:
    stage = make_stage(processes=1, grace=0)
    stage.look()
    stage.stopping.ask("SIGTERM", 15)
    stage.look(100_000)
    assert stage.played[0].code is None


# Health


def test_the_health_file_is_touched_while_every_process_is_well(
    make_stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_stage(processes=2)
    file = tmp_path / "health"
    stage.supervisor._health = HealthFile(file)
    monkeypatch.setattr(notes, "time", SimpleNamespace(monotonic=lambda: stage.now))
    stage.look()
    first, second = stage.played
    first.notes.say_well()
    stage.look(1)
    assert not file.exists(), "one has said nothing yet"
    second.notes.say_well()
    stage.look(1)
    assert file.exists()
    file.unlink()
    stage.look(LATE_SECONDS)
    second.notes.say_well()
    stage.look(1)
    assert not file.exists(), "one has been silent for long"
    first.notes.say_well()
    first.end(0)
    stage.look(1)
    assert not file.exists(), "one has ended, and the next has said nothing yet"


# What a dead process held


def test_only_the_job_in_hand_pays(make_stage: Any, register: Register, heard: Heard) -> None:
    @register()
    def work() -> None: ...

    stage = make_stage(processes=1)
    stage.look()
    ids = [work.dispatch().id for _ in range(3)]
    first, *_ = reserve(3)
    page = stage.played[0].notes.page()
    page.introduce(WORKER)
    page.note(first, None)
    stage.played[0].notes.say_ready()
    stage.played[0].kill()
    stage.look()
    wait_until(lambda: heard.all("job_failed"), "it is rescued, and that is said")
    assert state(ids[0]) == ("ready", 1)
    assert [state(job_id) for job_id in ids[1:]] == [("ready", 0), ("ready", 0)]
    assert [sent["id"] for sent in heard.all("job_failed")] == [first.id]


def test_a_job_that_hangs_past_its_timeout_has_its_process_ended_and_others_in_hand_spend_nothing(
    make_stage: Any, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    @register(max_attempts=2)
    def work() -> None: ...

    stage = make_stage(processes=1, workers=2)
    stage.look()
    late, beside = work.dispatch().id, work.dispatch().id
    for job, times_out in zip(reserve(2), (stage.now, None), strict=True):
        page = stage.played[0].notes.page()
        page.introduce(WORKER)
        page.note(job, times_out)
    stage.played[0].notes.say_ready()
    stage.look(supervisor.LAST_SECONDS - 0.1)
    assert not stage.played[0].late
    stage.look(0.2)
    stage.look(supervisor.STACK_SECONDS - 0.1)
    assert stage.played[0].code is None
    stage.look(0.2)
    stage.look()
    wait_until(lambda: state(late) == ("ready", 1), "it is rescued")
    wait_until(lambda: state(beside) == ("ready", 0), "the other is given back")
    job = get_job(late)
    assert job is not None
    (error,) = job.errors
    assert error.exception_class == "django_jobqueue.exceptions.JobTimeout"
    assert error.traceback == "where it hung"
    assert "had not ended after its timeout; it is replaced" in caplog.text


def test_a_job_that_ends_after_all_saves_its_process(make_stage: Any, register: Register) -> None:
    @register()
    def work() -> None: ...

    stage = make_stage(processes=1)
    stage.look()
    work.dispatch()
    page = stage.played[0].notes.page()
    page.introduce(WORKER)
    page.note(reserve()[0], stage.now)
    stage.look(supervisor.LAST_SECONDS + 0.1)
    assert stage.played[0].late
    page.clear()
    stage.look(supervisor.STACK_SECONDS + 0.1)
    stage.look(10)
    assert stage.played[0].code is None


def test_what_a_dead_process_held_is_given_back_when_the_store_is_back(
    settings: Any, register: Register, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": FLAKY}}}
    store = connections["default"]
    assert isinstance(store, FlakyDriver)

    @register()
    def work() -> None: ...

    ids = [work.dispatch().id for _ in range(2)]
    first, _ = reserve(2)
    written = Notes.create(tmp_path / "notes", 1)
    page = written.page()
    page.introduce(WORKER)
    page.note(first, None)
    store.go_down()
    recovery = Recovery(WorkerOptions(sleep=0.01, error_backoff_cap=0.02), [store])
    recovery.recover(written.identities(), [InHand(noted) for noted in written.in_hand()])
    wait_until(lambda: store.calls["release_worker"] > 3, "it tries again")
    assert [state(job_id) for job_id in ids] == [("reserved", 1), ("reserved", 1)]
    store.come_back()
    assert recovery.end(DEADLINE)
    assert [state(job_id) for job_id in ids] == [("ready", 1), ("ready", 0)]
    assert sum(getattr(record, "event", "") == "store_lost" for record in caplog.records) == 1


def test_what_was_reserved_just_when_its_worker_died_is_found_at_a_second_look(
    memory: Driver, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovering, "LOOK_AGAIN_SECONDS", 0.3)

    @register()
    def work() -> None: ...

    recovery = Recovery(WorkerOptions(), [memory])
    released = []
    real = memory.release_worker
    monkeypatch.setattr(memory, "release_worker", lambda *given, **more: released.append(real(*given, **more)))
    recovery.recover([WORKER], [])
    wait_until(lambda: released, "the first look")
    job_id = work.dispatch().id
    reserve()
    wait_until(lambda: state(job_id) == ("ready", 0), "the second look")
    assert recovery.end(DEADLINE)


# Notes


@pytest.fixture
def job(memory: Driver, register: Register) -> Reservation:
    @register()
    def work() -> None: ...

    work.dispatch()
    return reserve()[0]


def test_a_supervisor_reads_what_a_process_notes(tmp_path: Path, job: Reservation) -> None:
    read = Notes.create(tmp_path / "notes", 2)
    written = Notes(tmp_path / "notes", 2)
    assert (read.is_ready, read.is_over, read.identities(), read.in_hand()) == (False, False, [], [])
    pages = [written.page(), written.page()]
    for number, page in enumerate(pages):
        page.introduce(f"höst:{number}")
    pages[1].note(job, 12.5)
    written.say_ready()
    assert read.is_ready
    assert read.identities() == ["höst:0", "höst:1"]
    (noted,) = read.in_hand()
    assert (noted.worker, noted.connection, noted.id, noted.token) == ("höst:1", "default", job.id, job.token)
    assert noted.times_out == 12.5
    pages[1].clear()
    assert read.in_hand() == []
    written.report(WorkerStats(1, 2, 3, 4), is_over=True)
    assert (read.stats, read.is_over) == (WorkerStats(1, 2, 3, 4), True)


def test_notes_of_the_same_release_are_not_outdated(tmp_path: Path) -> None:
    made = Notes.create(tmp_path / "notes", 1)
    assert not Notes.are_outdated(tmp_path / "notes")
    assert not made.found_another_release


def test_a_note_that_was_being_written_is_none(tmp_path: Path, job: Reservation) -> None:
    notes = Notes.create(tmp_path / "notes", 1)
    page = notes.page()
    page.note(job, None)

    class Killed(Exception): ...

    class Dying:
        connection = job.connection
        id = job.id

        @property
        def token(self) -> Any:
            raise Killed

    with pytest.raises(Killed):
        page.note(Dying(), None)  # type: ignore[arg-type]
    assert notes.in_hand() == []


def test_the_page_of_a_loop_that_ended_is_the_next_ones(tmp_path: Path) -> None:
    notes = Notes.create(tmp_path / "notes", 1)
    for identity in ("first", "second"):
        page = notes.page()
        page.introduce(identity)
        assert notes.identities() == [identity]
        notes.free(page)


def test_a_loop_notes_a_job_until_it_is_settled(
    memory: Driver, register: Register, make_worker: Callable[..., Any], tmp_path: Path
) -> None:
    from django_jobqueue.running.worker import Worker

    notes = Notes.create(tmp_path / "notes", 1)
    seen: list[Any] = []

    @register(max_attempts=1)
    def work() -> None:
        seen.extend(notes.in_hand())

    job_id = work.dispatch().id
    worker = Worker(WorkerOptions.from_settings(stop_when_empty=True), page=notes.page())
    real = memory.settle
    memory.settle = lambda *given, **more: (seen.extend(notes.in_hand()), real(*given, **more))[1]  # type: ignore[method-assign]
    worker.run()
    assert [noted.id for noted in seen] == [job_id, job_id]
    assert notes.identities() == [worker.identity]
    assert notes.in_hand() == []
    assert logging.getLogger("django_jobqueue").handlers == []
