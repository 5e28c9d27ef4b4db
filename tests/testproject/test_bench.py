"""The bench of the test project: that it counts rightly, not what it measures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command

import django_jobqueue
from django_jobqueue import using
from django_jobqueue.models import Job
from lab.benchmark.draining import MEBIBYTE
from lab.benchmark.figures import Figure, Result, merged, percentile
from lab.benchmark.profiling import HANDLER, LAB, PACKAGE, STORE, divided, group_of
from lab.benchmark.report import table
from lab.benchmark.session import Session
from lab.benchmark.tally import LANES, MOST_COUNTED, Tally, hitting
from lab.benchmark.targets import TARGETS, Target, target_of
from lab.benchmark.workers import own_bytes
from lab.jobs import noop
from lab.management.commands import bench

DOCUMENT = {"store", "host", "options", "figures", "skipped", "profile", "verified", "problems"}
FIGURE = {
    "measurement",
    "key",
    "label",
    "jobs",
    "value",
    "values",
    "unit",
    "against",
    "ratio",
    "target",
    "met",
    "note",
}


@pytest.fixture
def tally(tmp_path: Path) -> Any:
    tally = Tally.create(tmp_path / "tally", 5)
    yield tally
    tally.close()


def result(**changes: Any) -> Result:
    values: dict[str, Any] = {
        "key": "drain.1",
        "label": "drain",
        "value": 10.0,
        "values": (10.0,),
        "jobs": 5,
        "unit": "jobs/s",
        "against": "raw",
        "ratio": 0.5,
        "note": "",
    }
    return Result(**{**values, **changes})


class TestTally:
    def test_each_job_is_counted_and_its_first_start_is_kept(self, tally: Tally) -> None:
        tally.hit(1)
        first = tally.starts()[1]
        tally.hit(1)
        tally.hit(4)
        assert list(tally.runs()) == [0, 2, 0, 0, 1]
        assert tally.started() == 2
        assert tally.starts()[1] == first > 0
        assert tally.starts()[0] == 0

    def test_what_did_not_run_exactly_once_is_wrong(self, tally: Tally) -> None:
        for index in (0, 1, 1, 2, 3):
            tally.hit(index)
        wrong = tally.wrong()
        assert (wrong.missing, wrong.repeated) == (1, 1)
        assert bool(wrong)
        assert str(wrong) == "1 jobs did not run, and 1 ran more than once"

    def test_nothing_is_wrong_when_each_ran_once(self, tally: Tally) -> None:
        for index in range(5):
            tally.hit(index)
        assert not tally.wrong()
        assert tally.rate() > 0

    def test_processes_count_in_lanes_of_their_own(self, tally: Tally) -> None:
        other = Tally(tally.path, 5, lane=LANES - 1)
        tally.hit(2)
        other.hit(2)
        assert list(tally.runs()) == list(other.runs()) == [0, 0, 2, 0, 0]
        other.close()

    def test_many_runs_of_one_job_do_not_count_for_its_neighbour(self, tally: Tally) -> None:
        others = [Tally(tally.path, 5, lane=lane) for lane in range(LANES)]
        for _ in range(MOST_COUNTED + 10):
            for other in others:
                other.hit(1)
        assert list(tally.runs()) == [0, MOST_COUNTED * LANES, 0, 0, 0]
        for other in others:
            other.close()

    def test_what_it_makes_resident_is_no_memory_of_the_worker(self, tmp_path: Path) -> None:
        before = own_bytes(os.getpid())
        if before is None:
            pytest.skip("this system has no /proc, which tells what memory a process uses")
        large = Tally.create(tmp_path / "large", 1_000_000)
        for index in range(0, large.size, 500):  # a page of starts is 512
            large.hit(index)
        assert (own_bytes(os.getpid()) or 0) - before < 4 * MEBIBYTE, "it maps 16, of which 9 are touched"
        large.close()

    def test_there_is_no_lane_behind_the_last(self, tally: Tally) -> None:
        with pytest.raises(ValueError, match="lanes 0 to 7"):
            Tally(tally.path, 5, lane=LANES)

    def test_fewer_than_two_starts_have_no_rate(self, tally: Tally) -> None:
        assert tally.rate() == 0
        tally.hit(3)
        assert tally.rate() == 0

    def test_a_job_hits_the_tally_that_is_open_and_does_nothing_without_one(self, tally: Tally) -> None:
        noop(3)
        with hitting(tally):
            noop(3)
        noop(3)
        assert list(tally.runs()) == [0, 0, 0, 1, 0]


class TestFigures:
    @pytest.mark.parametrize(
        ("values", "percent", "expected"),
        [
            ([7], 50, 7),
            ([7], 99, 7),
            ([3, 1, 2], 50, 2),
            ([4, 3, 2, 1], 50, 2),
            (range(1, 101), 95, 95),
            (range(1, 101), 99, 99),
            (range(1, 201), 99, 198),
            ([1, 2, 3], 100, 3),
            ([1, 2, 3], 0, 1),
        ],
    )
    def test_a_percentile_is_one_of_the_values(self, values: Any, percent: float, expected: float) -> None:
        assert percentile(values, percent) == expected

    def test_nothing_has_no_percentile(self) -> None:
        with pytest.raises(ValueError, match="nothing"):
            percentile([], 50)

    def test_repeats_come_to_medians_of_the_values_and_of_their_own_ratios(self) -> None:
        repeats = [
            Figure(key="a", label="A", value=value, jobs=1, against="b", limit=limit)
            for value, limit in ((10, 100), (30, 100), (20, 20))
        ]
        [found] = merged(repeats)
        assert (found.value, found.values, found.ratio) == (20, (10, 30, 20), 0.3)

    def test_results_stand_in_the_order_in_which_they_came(self) -> None:
        figures = [Figure(key=key, label=key, value=1, jobs=1) for key in ("b", "a", "b")]
        assert [found.key for found in merged(figures)] == ["b", "a"]
        assert merged(figures)[0].ratio is None


class TestTargets:
    def test_a_target_is_of_the_ratio_or_of_the_value(self) -> None:
        assert Target(key="drain.1", bound=0.5).is_met(result()) is True
        assert Target(key="drain.1", bound=0.6).is_met(result()) is False
        assert Target(key="drain.1", bound=0.6).is_met(result(ratio=None)) is None
        assert Target(key="drain.1", bound=9, is_of_ratio=False).is_met(result()) is True
        assert Target(key="drain.1", bound=9, is_of_ratio=False, is_most=True).is_met(result()) is False

    def test_a_target_is_said_in_words(self) -> None:
        assert Target(key="a", bound=0.35).text(result()) == "at least 0.35 x"
        assert Target(key="a", bound=50_000, is_of_ratio=False).text(result()) == "at least 50,000 jobs/s"
        assert Target(key="a", bound=0.05, is_of_ratio=False, is_most=True).text(result()) == "at most 0.05 jobs/s"

    def test_each_database_has_targets_of_its_own(self) -> None:
        assert target_of(result(), "postgresql") == Target(key="drain.1", bound=0.35, vendors=("postgresql", "mysql"))
        assert target_of(result(), "sqlite") == next(target for target in TARGETS if "sqlite" in target.vendors)
        assert target_of(result(key="other"), "postgresql") is None


class TestProfile:
    def test_a_module_belongs_to_the_group_with_the_longest_fitting_beginning(self) -> None:
        assert group_of(str(PACKAGE / "drivers" / "database.py")) == STORE
        assert group_of(str(PACKAGE / "jobs" / "payloads.py")) == "decode the payload"
        assert group_of(str(PACKAGE / "jobs" / "registry.py")) == "begin and end the attempt"
        assert group_of(str(LAB / "jobs.py")) == HANDLER
        assert group_of(json.__file__) is None

    def test_time_of_others_counts_for_those_of_ours_who_called_them(self) -> None:
        ours, store = (str(PACKAGE / "jobs/payloads.py"), 1, "decode"), (str(PACKAGE / "drivers/base.py"), 1, "push")
        library, inner = ("library.py", 1, "loads"), ("~", 0, "<built-in>")
        stats = {
            ours: (1, 1, 1.0, 4.0, {}),
            store: (1, 1, 2.0, 3.0, {}),
            library: (2, 2, 0.0, 4.0, {ours: (1, 1, 0.0, 3.0), store: (1, 1, 0.0, 1.0)}),
            inner: (2, 2, 4.0, 4.0, {library: (2, 2, 4.0, 4.0)}),
        }
        assert divided(stats) == pytest.approx({"decode the payload": 1 + 3, STORE: 2 + 1})


@pytest.mark.process
def test_a_small_run_verifies_every_job_and_writes_what_the_report_documents(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    names = ["dispatch", "dispatch-many", "drain", "each", "long-reader", "not-analyzed"]
    environment = {
        **os.environ,
        "JOBQUEUE_TEST_DATABASE": "sqlite",
        "SQLITE_NAME": str(tmp_path / "db.sqlite3"),
        "PYTHONPATH": str(Path(django_jobqueue.__file__).parent.parent),
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
    }

    def manage(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(Path(django_settings.BASE_DIR) / "manage.py"), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)

    assert manage("migrate", "--verbosity", "0").returncode == 0
    done = manage("bench", "--jobs", "200", "--json", str(file), "--profile", "--only", *names)
    assert done.returncode == 0, done.stderr
    assert "Every job ran exactly once." in done.stdout
    assert "[1/6] dispatch" in done.stderr

    found = json.loads(file.read_text())
    assert set(found) == DOCUMENT
    assert (found["verified"], found["problems"]) == (True, [])
    assert all(set(figure) == FIGURE for figure in found["figures"])
    assert {figure["measurement"] for figure in found["figures"]} == set(names) - {"not-analyzed"}
    assert {"drain.raw", "drain.1", "drain.2", "each", "dispatch-many"} <= {
        figure["key"] for figure in found["figures"]
    }
    assert [skipped["measurement"] for skipped in found["skipped"]] == ["not-analyzed"]
    assert found["store"]["vendor"] == "sqlite"
    assert found["options"]["jobs"] == 200
    assert set(found["profile"]) == {"jobs", "rate", "overhead", "groups", "functions"}
    assert table(found) in done.stdout


@pytest.mark.redis
@pytest.mark.process
@pytest.mark.django_db(transaction=True)
def test_a_small_run_on_redis_verifies_every_job(settings: Any) -> None:
    pytest.importorskip("django_redis", reason="django-redis is not installed")
    environment = {
        "PYTHONPATH": str(Path(django_jobqueue.__file__).parent.parent),
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
    }
    out = StringIO()
    prefixed = {**settings.REDIS_CONNECTION, "PREFIX": f"test-{os.getpid()}:"}
    settings.REDIS_CONNECTION = prefixed
    with mock.patch.dict(os.environ, {**environment, "JOBQUEUE_REDIS_PREFIX": prefixed["PREFIX"]}):
        call_command(
            "bench", store="redis", jobs=50, only=["dispatch-many", "drain"], json="-", stdout=out, stderr=StringIO()
        )
    found = json.loads(out.getvalue())
    assert (found["verified"], found["store"]["vendor"]) == (True, "redis")
    assert {"dispatch-many.raw", "drain.raw", "drain.raw-like", "drain.1"} <= {each["key"] for each in found["figures"]}


def test_only_a_database_is_profiled(settings: Any) -> None:
    pytest.importorskip("django_redis", reason="django-redis is not installed")
    with pytest.raises(CommandError, match="--profile"):
        call_command("bench", store="redis", profile=True, stdout=StringIO(), stderr=StringIO())


@pytest.mark.django_db
def test_bench_refuses_queues_that_hold_foreign_jobs() -> None:
    using("lab.jobs.noop", queue="bench-noop").dispatch(1)
    Job.objects.update(name="shop.jobs.make_thumbnail")
    with pytest.raises(CommandError, match="1 jobs in the queues of bench are not its own"):
        call_command("bench", stdout=StringIO(), stderr=StringIO())
    assert Job.objects.count() == 1


def test_bench_refuses_a_store_that_no_other_process_sees(settings: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    with pytest.raises(CommandError, match="cannot measure the connection 'default'"):
        call_command("bench", stdout=StringIO(), stderr=StringIO())


@pytest.mark.django_db(transaction=True)
def test_bench_fails_when_a_job_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(session: Session) -> Any:
        with session.tally(2) as tally:
            session.fill(noop, 2)
            tally.hit(0)
            session.check(tally)
        yield Figure(key="drain.1", label="drain", value=1, jobs=2)

    monkeypatch.setattr(bench, "measurements", lambda **options: {"drain": losing})
    out = StringIO()
    with pytest.raises(CommandError, match="Not every job is known to have run exactly once"):
        call_command("bench", json="-", stdout=out, stderr=StringIO())
    found = json.loads(out.getvalue())
    assert found["verified"] is False
    assert found["problems"] == [
        "[1/1] drain: 1 jobs did not run, and 0 ran more than once.",
        "[1/1] drain: 2 jobs have not left the store.",
    ]
    assert Job.objects.count() == 0


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_bench_takes_a_number_of_at_least_one(jobs: str) -> None:
    with pytest.raises(CommandError, match="is no number of at least 1"):
        call_command("bench", f"--jobs={jobs}")
