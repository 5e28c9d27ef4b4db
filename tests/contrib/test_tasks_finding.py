"""Which code a stored name can lead to: Tasks below an installed app, or in what is loaded anyway."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from django_jobqueue.drivers import Driver
from django_jobqueue.exceptions import UnknownJob
from django_jobqueue.jobs.registry import registry
from tests.contrib.names import tasks

MakeModule = Callable[[str, str], None]

TASKS = f"""
    from {tasks.__name__} import task

    @task
    def work(): ...

    def plain(): ...

    task_of_plain = task(plain)

    class Fake:
        module_path = "fake"
"""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, board: Any) -> Iterator[MakeModule]:
    """Modules in a folder of their own, forgotten at the end; of packages that begin with "made"."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, text: str = TASKS) -> None:
        file = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        for folder in file.relative_to(tmp_path).parents[:-1]:
            tmp_path.joinpath(folder, "__init__.py").touch()
        file.write_text(dedent(text))

    yield make
    for module in [module for module in sys.modules if module.startswith("made")]:
        del sys.modules[module]


def install(settings: Any, app: str) -> None:
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, app]


def test_a_task_below_an_installed_app_is_found(make: MakeModule, settings: Any) -> None:
    make("made_app.tasks", TASKS)
    make("made_app.mails.sending", TASKS)
    install(settings, "made_app")
    assert registry.get("made_app.tasks.work@default").name == "made_app.tasks.work@default"
    assert registry.find("made_app.mails.sending.work@default") is not None


def test_a_task_under_another_name_than_its_function_is_found(make: MakeModule, settings: Any) -> None:
    make("made_app.tasks", TASKS)
    install(settings, "made_app")
    assert registry.find("made_app.tasks.plain@default") is not None


def test_a_module_of_no_app_is_not_imported(make: MakeModule) -> None:
    make("made_else.tasks", TASKS)
    assert registry.find("made_else.tasks.work@default") is None
    with pytest.raises(UnknownJob, match="was not imported"):
        registry.get("made_else.tasks.work@default")
    assert "made_else" not in sys.modules


def test_the_program_of_an_app_is_not_run(make: MakeModule, settings: Any) -> None:
    make("made_app.__main__", TASKS)
    install(settings, "made_app")
    assert registry.find("made_app.__main__.work@default") is None
    assert "made_app.__main__" not in sys.modules


def test_a_module_of_no_app_that_is_loaded_is_looked_into(make: MakeModule) -> None:
    make("made_else.tasks", TASKS)
    __import__("made_else.tasks")
    assert registry.find("made_else.tasks.work@default") is not None


@pytest.mark.parametrize(
    "path",
    [
        "made_app.tasks.Fake",
        "made_app.tasks.missing",
        "made_app.tasks.task",
        "made_app.missing.work",
        "made_app.tasks.work.func",
        "made_app..tasks.work",
        ".made_app.tasks.work",
        "made_app.tasks.work ",
        "os.system",
        "builtins.eval",
        "",
        "work",
    ],
)
def test_what_is_no_task_is_not_found(make: MakeModule, settings: Any, path: str) -> None:
    make("made_app.tasks", TASKS)
    install(settings, "made_app")
    assert registry.find(f"{path}@default") is None
    with pytest.raises(UnknownJob):
        registry.get(f"{path}@default")


@pytest.mark.parametrize("name", ["made_app.tasks.work", "made_app.tasks.work@other", "tests.contrib.board.add@other"])
def test_a_name_of_no_backend_of_ours_is_no_task(make: MakeModule, settings: Any, name: str) -> None:
    make("made_app.tasks", TASKS)
    install(settings, "made_app")
    other = tasks.__name__ + ".backends.dummy.DummyBackend"
    settings.TASKS = {**settings.TASKS, "other": {"BACKEND": other}}
    assert registry.find(name) is None
    assert "made_app.tasks" not in sys.modules


@pytest.mark.parametrize("text", ["raise OSError('no disk')", "raise SystemExit(3)", "import made_missing", "("])
def test_a_module_that_is_broken_fails_its_own_task_only(
    make: MakeModule, settings: Any, memory: Driver, worker: Any, clock: Any, board: Any, text: str
) -> None:
    make("made_app.tasks", TASKS)
    install(settings, "made_app")
    broken = __import__("made_app.tasks", fromlist=["work"]).work.enqueue()
    del sys.modules["made_app.tasks"], sys.modules["made_app"]
    make("made_app.tasks", text)
    sound = board.add.enqueue(1)
    while worker.work_once(now=clock.tick(3600)):
        pass
    backend = tasks.default_task_backend
    assert backend.get_result(sound.id).status == "SUCCESSFUL"
    assert backend.get_result(broken.id).status == "FAILED"
