"""The pages say what the code has: every name, in both directions, and examples that run."""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand
from django.dispatch import Signal

import django_jobqueue
from django_jobqueue import conf, exceptions, logs, signals
from django_jobqueue.dispatching.handler import JobOptions, UsingOptions

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PACKAGE = Path(django_jobqueue.__file__).resolve().parent
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^(?P<mark>`{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=mark)$", re.DOTALL | re.MULTILINE)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def sections(text: str, level: int = 2) -> dict[str, str]:
    """What stands under each heading of one level, by the heading without its backticks."""
    parts = re.split(rf"^{'#' * level} (.+)$", text, flags=re.MULTILINE)
    return {title.replace("`", ""): body for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def first_cells(text: str) -> list[str]:
    """The names in backticks in the first cell of each table row."""
    cells = re.findall(r"^\| (.*?) \|", text, flags=re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def blocks(text: str, language: str) -> list[str]:
    return [found["code"] for found in FENCE.finditer(text) if found["language"].strip() == language]


def file_block(text: str, name: str) -> str:
    """The one Python block that begins with the name of a file."""
    (found,) = [code for code in blocks(text, "python") if code.startswith(f"# {name}\n")]
    return found


# Reference pages


def test_every_settings_key_has_a_section_and_a_row_and_no_other_has() -> None:
    text = page("reference/settings.md")
    assert set(sections(text)) == set(conf._READERS)
    rows = re.findall(r"^\| \[`(\w+)`\]", text, flags=re.MULTILINE)
    assert sorted(rows) == sorted(conf._READERS)


def test_the_defaults_of_the_settings_page_are_the_real_ones() -> None:
    text = page("reference/settings.md")
    defaults = conf.Settings()
    told = dict(re.findall(r"^\| \[`(\w+)`\]\(#\w+\) \| `([^`]+)`", text, flags=re.MULTILINE))
    assert set(told) == set(conf._READERS) - {"MASK"}
    for key, value in told.items():
        real = getattr(defaults, key.lower())
        shown = list(real) if isinstance(real, tuple) else real
        assert value == repr(shown).replace("'", '"') or ast.literal_eval(value) == shown, key
    (masked,) = [code for code in blocks(text, "python") if code.startswith("[")]
    assert tuple(ast.literal_eval(masked)) == conf.MASKED_NAMES


def test_every_key_of_a_redis_connection_and_every_key_in_redis_has_a_row_and_no_other_has() -> None:
    pytest.importorskip("django_redis", reason="django-redis is not installed")
    from django_jobqueue.drivers.redis import form, options

    parts = sections(page("howto/redis.md"))
    assert sorted(first_cells(parts["Set it up"])) == sorted(options.KEYS)
    keys = form.Keys("shop:")
    callers = [keys.answered(caller) for caller in ("<worker>", "<thread>")]
    real = {*keys.common, *keys.of(["<queue>"]), *callers}
    text = parts["How jobs lie in Redis"]
    told = {name if name.startswith("{") else f"{{shop:}}{name}" for name in first_cells(text)}
    assert told == real
    assert f"`{keys.channel}`" in text


def test_every_option_of_job_has_a_row_and_no_other_has() -> None:
    text = sections(page("reference/job-and-dispatch.md"))["@job"].split("### ")[0]
    assert sorted(first_cells(text)) == sorted({*JobOptions.__annotations__, "takes_context"})


def test_every_option_of_using_has_a_row_and_no_other_has() -> None:
    text = sections(page("reference/job-and-dispatch.md"), level=3)["using"].split("## ")[0]
    assert sorted(first_cells(text)) == sorted(UsingOptions.__annotations__)


def test_every_public_name_is_on_the_page_of_job_and_dispatch() -> None:
    text = page("reference/job-and-dispatch.md")
    missing = [name for name in django_jobqueue.__all__ if not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_every_error_has_a_row_and_no_other_has() -> None:
    text = sections(page("reference/job-and-dispatch.md"))["Errors"]
    errors = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, exceptions.JobQueueError)
    }
    told = {name for name in first_cells(text) if name in vars(exceptions)}
    assert told == errors - {"JobQueueError"}


def all_signals() -> set[str]:
    return {name for name, value in vars(signals).items() if isinstance(value, Signal)}


def test_every_signal_has_a_row_and_no_other_has() -> None:
    text = sections(page("reference/signals.md"))["Signals"]
    named = re.findall(r"^\| `((?:job|worker|batch|queue)_\w+)` \|", text, flags=re.MULTILINE)
    assert sorted(named) == sorted(all_signals())


def test_every_log_event_has_a_row_and_no_other_has() -> None:
    text = sections(page("reference/signals.md"))["Log events"]
    written = {receiver.__name__ for receiver in logs.RECEIVERS}
    for path in PACKAGE.rglob("*.py"):
        written |= set(re.findall(r'"event": "(\w+)"', path.read_text(encoding="utf-8")))
    assert {name for name in first_cells(text) if name != "event"} == written


def test_every_check_has_a_row_and_no_other_has() -> None:
    sources = [(PACKAGE / "checks.py").read_text(encoding="utf-8")]
    sources += [path.read_text(encoding="utf-8") for path in (PACKAGE / "contrib").rglob("*.py")]
    numbers = re.findall(r'"(?:django_jobqueue\.)?([EWI]\d{3})"', "".join(sources))
    ids = {f"django_jobqueue.{number}" for number in numbers}
    assert ids
    assert set(first_cells(page("reference/checks.md"))) - {"Id"} == ids


@pytest.mark.parametrize(
    "name", ["Job", "FailedJob", "Result", "Batch", "BatchMember", "Progress", "Worker", "WorkerRequest", "QueueStat"]
)
def test_every_column_has_a_row_and_no_other_has(name: str) -> None:
    from django_jobqueue import models

    text = sections(page("reference/tables.md"))[name]
    columns = {field.column for field in getattr(models, name)._meta.fields}
    assert set(first_cells(text)) == columns


def test_every_index_and_permission_is_told() -> None:
    from django_jobqueue.models import Batch, BatchMember, FailedJob, Job, Progress, QueueStat, Result

    text = page("reference/tables.md")
    indexed = (Job, Result, Batch, BatchMember, Progress, QueueStat)
    names = [index.name for model in indexed for index in model._meta.indexes]
    names += [codename for model in (Job, FailedJob) for codename, _ in model._meta.permissions]
    assert [name for name in names if f"`{name}`" not in text] == []


# Commands


def commands() -> dict[str, BaseCommand]:
    names = sorted(path.stem for path in (PACKAGE / "management" / "commands").glob("queue_*.py"))
    return {name: load_command_class("django_jobqueue", name) for name in names}


def own_flags(name: str, command: BaseCommand) -> Iterator[argparse.Action]:
    """The arguments that a command has beside those of every Django command."""
    common = {flag for action in _actions(BaseCommand(), name) for flag in action.option_strings}
    for action in _actions(command, name):
        if not common & set(action.option_strings) and action.help != argparse.SUPPRESS:
            yield action


def _actions(command: BaseCommand, name: str) -> list[argparse.Action]:
    return command.create_parser("manage.py", name)._actions


def test_every_command_has_a_section_and_no_other_has() -> None:
    told = {title for title in sections(page("reference/commands.md")) if title.startswith("queue_")}
    assert told == set(commands())


def test_every_flag_is_told_in_the_section_of_its_command_and_no_other_is() -> None:
    told = sections(page("reference/commands.md"))
    for name, command in commands().items():
        flags = {flag for action in own_flags(name, command) for flag in action.option_strings}
        named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(first_cells(told[name]))))
        assert named == flags, name


def test_no_page_names_a_command_that_does_not_exist() -> None:
    known = {*commands(), *all_signals(), "queue_name"}  # the last is an argument of Django's @task
    for path in PAGES:
        named = set(re.findall(r"\bqueue_[a-z]+\b", path.read_text(encoding="utf-8")))
        assert named <= known, path.name


# Examples


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_python_examples_compile(path: Path) -> None:
    for code in blocks(path.read_text(encoding="utf-8"), "python"):
        compile(code, path.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_readme_has_the_two_command_lines_that_ci_runs() -> None:
    text = README.read_text(encoding="utf-8")
    found = dict(re.findall(r"^<!-- ci: (\w+) -->\n+```sh\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE))
    assert found == {
        "demo": 'python3 -m venv .venv && .venv/bin/pip install -e ".[demo]" && '
        ".venv/bin/python testproject/manage.py demo\n",
        "tests": 'python3 -m venv .venv && .venv/bin/pip install -e ".[dev]" && '
        ".venv/bin/python -m pytest -n 2 --dist loadgroup\n",
    }


def test_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_to_files_lead_to_files(path: Path) -> None:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [target for target in targets if not (path.parent / target).exists()] == []


class Project:
    """A new Django project in a folder of its own, as the quickstart makes one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run("-m", "django", "startproject", "mysite", ".")
        self.manage("startapp", "shop")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def manage(self, *arguments: str, code: int = 0) -> str:
        return self.run("manage.py", *arguments, code=code)

    def run(self, *arguments: str, code: int = 0) -> str:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("DJANGO_", "JOBQUEUE_"))}
        environment["PYTHONPATH"] = str(PACKAGE.parent)
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


GET = """
from django.test import Client
response = Client(headers={{"host": "localhost"}}).get({url!r})
assert response.status_code == 200, response
"""

STATE = """
from django_jobqueue.models import FailedJob, Job
print("jobs", Job.objects.count(), "dead letters", FailedJob.objects.count())
"""


MEND_AND_RETRY_IN_THE_ADMIN = """
from django.contrib.auth.models import User
from django.test import Client
from django_jobqueue.models import FailedJob
User.objects.filter(username="bob").update(email="bob@example.com")
client = Client(headers={"host": "localhost"})
client.force_login(User.objects.create_superuser("admin"))
page = f"/admin/django_jobqueue/failedjob/{FailedJob.objects.get().pk}"
assert b"bob has no e-mail address" in client.get(f"{page}/change/").content
assert client.post(f"{page}/retry/").status_code == 302
"""


def quickstart_project(folder: Path) -> Project:
    """The project that the quickstart's files make."""
    text = page("quickstart.md")
    project = Project(folder)
    apps, options = blocks(sections(text)["2. Settings"], "python")
    names = re.findall(r'^    "(\w+)",$', apps, flags=re.MULTILINE)
    settings = (folder / "mysite" / "settings.py").read_text(encoding="utf-8")
    settings = settings.replace("INSTALLED_APPS = [", f"INSTALLED_APPS = [{', '.join(map(repr, names))},")
    project.write("mysite/settings.py", f"{settings}\n{options}")
    for name in ("shop/jobs.py", "shop/views.py", "mysite/urls.py"):
        project.write(name, file_block(text, name))
    assert "django_jobqueue.W" not in project.manage("migrate"), "the quickstart's settings leave no warning"
    return project


@pytest.mark.process
@pytest.mark.slow
def test_the_quickstart_runs(tmp_path: Path) -> None:
    project = quickstart_project(tmp_path)
    urls = re.findall(r"http://127\.0\.0\.1:8000(/sign-up/\S*?)>", page("quickstart.md"))
    for url in urls:
        project.manage("shell", "-c", GET.format(url=url))
    assert "jobs 2 dead letters 0" in project.manage("shell", "-c", STATE)

    output = project.manage("queue_work", "--max-jobs", "3", "--max-time", "60")  # waits for the second attempt
    assert "To ada@example.com: welcome, ada!" in output
    assert output.count("bob has no e-mail address") == 2
    assert "jobs 0 dead letters 1" in project.manage("shell", "-c", STATE)

    project.manage("shell", "-c", MEND_AND_RETRY_IN_THE_ADMIN)
    assert "To bob@example.com: welcome, bob!" in project.manage("queue_work", "--stop-when-empty")
    assert "jobs 0 dead letters 0" in project.manage("shell", "-c", STATE)


@pytest.mark.process
@pytest.mark.slow
def test_the_dead_letter_of_the_quickstart_is_retried_on_the_command_line(tmp_path: Path) -> None:
    project = quickstart_project(tmp_path)
    project.manage("shell", "-c", GET.format(url="/sign-up/bob/"))
    project.manage("queue_work", "--max-jobs", "2", "--max-time", "60")
    assert "bob has no e-mail address" in project.manage("queue_failed")
    project.manage("shell", "-c", "from django.contrib.auth.models import User; User.objects.update(email='b@c.de')")
    assert "status=retried" in project.manage("queue_retry", "all")
    assert "To b@c.de: welcome, bob!" in project.manage("queue_work", "--stop-when-empty")
    assert "jobs 0 dead letters 0" in project.manage("shell", "-c", STATE)


# The house

TEXTS = {".cfg", ".css", ".html", ".ini", ".js", ".md", ".po", ".py", ".sh", ".svg", ".toml", ".txt", ""}
OURS = [".ci", "docs", "testproject", "tests"]
NOT_OURS = {"__pycache__", "_build", "data", "demo_data", "node_modules"}


def our_files() -> Iterator[Path]:
    folders = [ROOT / name for name in OURS] + [PACKAGE]
    files = [path for folder in folders for path in folder.rglob("*")] + list(ROOT.glob("*"))
    for path in files:
        if path.is_file() and path.suffix in TEXTS and not NOT_OURS & set(path.parts[len(ROOT.parts) :]):
            yield path


def test_no_file_names_a_path_of_one_machine() -> None:
    homes = "|".join(["home", "Users"])
    pattern = re.compile(rf"(?<![\w.$}}/-])/(?:(?:{homes})/\w+|root|work/\w+|opt/pypi\w*|tmp/venvs)(?=[/\s\"'`]|$)")
    found = []
    for path in our_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path}: {match[0]}" for match in pattern.finditer(text) if path != Path(__file__)]
        if str(ROOT) in text and len(ROOT.parts) > 2:
            found.append(f"{path}: {ROOT}")
    assert found == []


def test_every_setting_is_a_field() -> None:
    """The test of defaults above reads the fields by the keys' names."""
    assert {field.name.upper() for field in fields(conf.Settings)} == set(conf._READERS)
