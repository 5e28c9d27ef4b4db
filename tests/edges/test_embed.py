"""Workers in a web server's process: real servers, real signals, a SQLite file of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
from django.db import connection

import django_jobqueue
from django_jobqueue import embed, job
from django_jobqueue.dispatching.handler import Handler
from django_jobqueue.exceptions import InvalidOption
from django_jobqueue.jobs.registry import registry

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("embed")]

FILES = {
    "manage.py": """
        import os, sys
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
        from django.core.management import execute_from_command_line
        execute_from_command_line(sys.argv)
    """,
    "site_settings.py": """
        import os
        from pathlib import Path
        BASE = Path(__file__).parent
        SECRET_KEY = "none"
        DEBUG = os.environ.get("SITE_DEBUG", "1") == "1"
        ALLOWED_HOSTS = ["127.0.0.1"]
        USE_TZ = True
        INSTALLED_APPS = ["django_jobqueue", "work"]
        ROOT_URLCONF = "site_urls"
        DATABASES = {"default": {
            "ENGINE": "django.db.backends.sqlite3", "NAME": str(BASE / "db.sqlite3"),
            "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"},
        }}
        JOBQUEUE = {"POLL_INTERVAL": 0.1}
        if "SITE_WORKERS" in os.environ:
            JOBQUEUE["EMBEDDED_WORKERS"] = int(os.environ["SITE_WORKERS"])
    """,
    "site_urls.py": """
        import threading
        from django.http import HttpResponse
        from django.urls import path

        def dispatch_job(request, name):
            from django_jobqueue import dispatch
            return HttpResponse(str(dispatch(name).id))

        def threads(request):
            return HttpResponse(",".join(thread.name for thread in threading.enumerate()))

        urlpatterns = [path("dispatch/<name>/", dispatch_job), path("threads/", threads)]
    """,
    "work/__init__.py": "",
    "work/jobs.py": """
        import os, time
        from pathlib import Path
        from django_jobqueue import job
        RUNS = Path(__file__).parent.parent / "runs.txt"

        def note(event):
            with RUNS.open("a") as file:
                file.write(f"{event} {os.getpid()}\\n")

        @job(name="quick")
        def quick():
            note("quick")

        @job(name="second")
        def second():
            note("second-started")
            time.sleep(1)
            note("second-ended")

        @job(name="endless")
        def endless():
            note("endless")
            time.sleep(300)
    """,
    "work/management/__init__.py": "",
    "work/management/commands/__init__.py": "",
    "work/management/commands/threads.py": """
        import threading, time
        from django.core.management.base import BaseCommand

        class Command(BaseCommand):
            def handle(self, **options):
                time.sleep(0.5)
                self.stdout.write(",".join(thread.name for thread in threading.enumerate()))
    """,
}


def wait_for(condition: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Site:
    """A project in a folder of its own, and the processes that a test starts in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.log = folder / "server.log"
        self.server: subprocess.Popen[bytes] | None = None

    def environment(self, **changes: str) -> dict[str, str]:
        paths = [str(self.folder), str(Path(django_jobqueue.__file__).parent.parent)]
        inherited = {key: value for key, value in os.environ.items() if key not in {"RUN_MAIN", "PYTHONPATH"}}
        return {
            **inherited,
            "DJANGO_SETTINGS_MODULE": "site_settings",
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            **changes,
        }

    def manage(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self.folder,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def script(self, code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def serve(self, *flags: str, answers: bool = True, **environment: str) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            self.server = subprocess.Popen(
                [sys.executable, "manage.py", "runserver", f"127.0.0.1:{self.port}", *flags],
                cwd=self.folder,
                env=self.environment(**environment),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that it and its children end with the test, and nothing else does
            )
        if answers:
            wait_for(self.answers)
        return self.server

    def answers(self) -> bool:
        assert self.server is not None
        assert self.server.poll() is None, self.log.read_text()
        try:
            self.get("threads/")
        except OSError:
            return False
        return True

    def get(self, path: str) -> str:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{self.port}/{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def dispatch(self, name: str) -> None:
        self.get(f"dispatch/{name}/")

    def runs(self, event: str) -> list[int]:
        """The processes that noted an event, in order."""
        file = self.folder / "runs.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == event]

    def jobs(self) -> list[tuple[str, str, int]]:
        connection = sqlite3.connect(self.folder / "db.sqlite3", timeout=20)
        try:
            return connection.execute("SELECT name, state, attempts FROM django_jobqueue_job ORDER BY id").fetchall()
        finally:
            connection.close()

    def end(self) -> None:
        if self.server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.server.pid, signal.SIGKILL)
            self.server.wait(10)


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    Site(folder).manage("migrate", "--verbosity=0")
    return folder


@pytest.fixture
def site(migrated: Path, tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "site"
    shutil.copytree(migrated, folder, ignore=shutil.ignore_patterns("__pycache__"))
    found = Site(folder)
    yield found
    found.end()


# The development server


def test_a_dispatched_job_runs_in_the_server_without_reloader(site: Site) -> None:
    server = site.serve("--noreload")
    site.dispatch("quick")
    wait_for(lambda: site.runs("quick"))
    assert site.runs("quick") == [server.pid]
    wait_for(lambda: site.jobs() == [])


def test_sigterm_gives_back_the_job_in_hand_and_spends_no_attempt(site: Site) -> None:
    server = site.serve("--noreload")
    site.dispatch("endless")
    wait_for(lambda: site.runs("endless"))
    assert site.jobs() == [("endless", "reserved", 1)]
    started = time.monotonic()
    server.terminate()
    assert server.wait(10) == 0
    assert time.monotonic() - started < 5
    assert site.jobs() == [("endless", "ready", 0)]


def test_a_reload_gives_back_at_once_and_the_new_process_runs_it_again(site: Site) -> None:
    parent = site.serve()
    site.dispatch("endless")
    (first,) = wait_for(lambda: site.runs("endless"))
    assert first != parent.pid
    time.sleep(2.5)  # the reloader looks once a second, and its first look only remembers
    source = site.folder / "work" / "jobs.py"
    source.write_text(source.read_text() + "\n# changed\n")
    os.utime(source, (time.time() + 2, time.time() + 2))
    wait_for(lambda: len(site.runs("endless")) == 2, 15)
    assert site.runs("endless")[1] not in {first, parent.pid}
    assert site.jobs() == [("endless", "reserved", 1)]


def test_ctrl_c_gives_back_before_the_reloader_kills_the_server(site: Site) -> None:
    server = site.serve()
    site.dispatch("endless")
    wait_for(lambda: site.runs("endless"))
    os.killpg(server.pid, signal.SIGINT)  # what a terminal does
    server.wait(10)
    assert site.jobs() == [("endless", "ready", 0)]


def test_the_reloaders_parent_has_no_workers(site: Site) -> None:
    parent = site.serve()
    wait_for(lambda: "jobqueue-worker-1" in site.get("threads/"))
    tasks = Path(f"/proc/{parent.pid}/task")
    if not tasks.exists():
        pytest.skip("threads of another process are counted in /proc")
    assert len(list(tasks.iterdir())) == 1


def test_without_debug_there_are_none_unless_the_setting_says_so(site: Site) -> None:
    site.serve("--noreload", SITE_DEBUG="0")
    site.dispatch("quick")
    time.sleep(1)
    assert "jobqueue" not in site.get("threads/")
    assert site.jobs() == [("quick", "ready", 0)]
    site.end()
    site.serve("--noreload", SITE_DEBUG="0", SITE_WORKERS="2")
    wait_for(lambda: site.runs("quick"))
    assert "jobqueue-worker-2" in site.get("threads/")


def test_the_setting_0_switches_it_off(site: Site) -> None:
    site.serve("--noreload", SITE_WORKERS="0")
    time.sleep(0.5)
    assert "jobqueue" not in site.get("threads/")


def test_other_commands_have_none(site: Site) -> None:
    assert site.manage("threads").strip() == "MainThread"
    assert site.manage("threads", RUN_MAIN="true").strip() == "MainThread"


def test_a_broken_job_module_is_logged_and_the_site_goes_on(site: Site) -> None:
    (site.folder / "work" / "jobs.py").write_text("raise RuntimeError('broken on purpose')\n")
    site.serve("--noreload")
    wait_for(lambda: "Traceback" in site.log.read_text())
    assert "RuntimeError: broken on purpose" in site.log.read_text()
    assert "jobqueue-worker" not in site.get("threads/")


def test_missing_tables_are_one_line_and_an_outage_that_ends_with_migrate(site: Site) -> None:
    (site.folder / "db.sqlite3").unlink()
    site.serve("--noreload")
    wait_for(lambda: "not reachable" in site.log.read_text())
    time.sleep(1)
    lines = [line for line in site.log.read_text().splitlines() if "no such table" in line]
    assert len(lines) == 1
    assert "Traceback" not in site.log.read_text()
    site.manage("migrate", "--verbosity=0")
    site.dispatch("quick")
    wait_for(lambda: site.runs("quick"))


def test_a_server_whose_checks_fail_runs_no_job(site: Site) -> None:
    site.script("import django; django.setup(); from django_jobqueue import dispatch; dispatch('quick')")
    assert site.jobs() == [("quick", "ready", 0)]
    checks = "from django.core import checks\n@checks.register\ndef fail(**kwargs):\n    return [checks.Error('no')]\n"
    (site.folder / "work" / "__init__.py").write_text(checks)
    site.serve(answers=False)
    wait_for(lambda: "SystemCheckError" in site.log.read_text())
    time.sleep(2)
    assert site.jobs() == [("quick", "ready", 0)], site.log.read_text()


def test_wrong_settings_are_told_by_the_checks(site: Site) -> None:
    settings = site.folder / "site_settings.py"
    settings.write_text(settings.read_text() + "\nJOBQUEUE['TYPO'] = 1\n")
    server = site.serve("--noreload", answers=False)
    assert server.wait(20) == 1
    assert "TYPO" in site.log.read_text()
    assert "Exception in thread" not in site.log.read_text()


# Any other server

SETUP = """
    import django, os, sys, time
    django.setup()
    from django_jobqueue import dispatch, embed
    from work.jobs import RUNS

    def wait_for(event):
        while not (RUNS.exists() and event in RUNS.read_text()):
            time.sleep(0.02)
"""


def test_at_exit_a_short_job_finishes(site: Site) -> None:
    code = f"{SETUP}\n    embed.start(1); dispatch('second'); dispatch('quick'); wait_for('second-started')"
    assert site.script(code).stderr == ""
    assert site.runs("second-ended")
    assert site.runs("quick") == []
    assert site.jobs() == [("quick", "ready", 0)]


def test_at_exit_a_long_job_is_released_within_the_grace_time(site: Site) -> None:
    started = time.monotonic()
    done = site.script(f"{SETUP}\n    embed.start(); dispatch('endless'); wait_for('endless')")
    assert done.returncode == 0
    assert time.monotonic() - started < embed.EXIT_GRACE + embed.STORE_TIME + 10
    assert site.jobs() == [("endless", "ready", 0)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_starts_its_own_and_leaves_the_parents_alone(site: Site) -> None:
    code = """
    first = embed.start(1)
    dispatch('quick')
    wait_for('quick')
    time.sleep(0.5)  # a thread that holds a lock at a fork would hold it in the child for ever
    child = os.fork()
    if child == 0:
        assert not first.is_running
        embed.stop()
        second = embed.start(1)
        assert second is not first and second.is_running
        embed.stop()
        assert not second.is_running
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert first.is_running and embed.start(1) is first
    """
    done = site.script(SETUP + code)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def stopped() -> Iterator[None]:
    yield
    embed.stop()


def do_nothing() -> None: ...


@pytest.fixture
def nothing() -> Iterator[Handler[..., Any, Any]]:
    yield job(name="tests.do_nothing")(do_nothing)
    registry.unregister("tests.do_nothing")


def worker_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("jobqueue")]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("stopped")
def test_start_twice_is_once_and_stop_leaves_nothing_behind() -> None:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    first = embed.start(2)
    assert embed.start(5) is first
    assert first.workers == 2
    wait_for(lambda: "jobqueue-worker-2" in worker_threads())
    embed.stop()
    assert not first.is_running
    wait_for(lambda: worker_threads() == [], 5)
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers
    embed.stop()
    assert embed.start(1) is not first


@pytest.mark.usefixtures("stopped")
def test_none_and_nonsense() -> None:
    assert not embed.start(0).is_running
    with pytest.raises(InvalidOption, match="workers"):
        embed.start(-1)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("stopped")
def test_one_connection_for_each_thread_and_none_after_the_end(nothing: Handler[..., Any, Any]) -> None:
    def others() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return int(cursor.fetchone()[0])

    before = others()
    for _number in range(300):
        nothing.dispatch()
    embed.start(4)
    most = 0
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        most = max(most, others() - before)
        time.sleep(0.02)
    assert 0 < most <= 4 + 2
    embed.stop()
    wait_for(lambda: others() <= before, 5)
