"""Job modules are imported lazily, once, and by nobody's accident; what is wrong inside of one shows as it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from django_jobqueue import UnknownJob, dispatch
from django_jobqueue.dispatching import discovery
from django_jobqueue.dispatching.discovery import OWN_APP, job_modules, load_handlers, resolve
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.registry import registry
from tests.helpers.threads import in_threads

MakeApp = Callable[..., str]
JOBS = """
    import sys
    from django_jobqueue import job

    sys.imported = [*getattr(sys, "imported", []), __name__]

    @job(name="{name}.work")
    def work(): ...
"""


@pytest.fixture
def make_app(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, memory: Driver) -> Iterator[MakeApp]:
    """An installed app made of files; discovery begins anew."""
    made: list[str] = []
    known = {definition.name for definition in registry.definitions()}
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(discovery, "_loaded", False)
    monkeypatch.setattr(sys, "imported", [], raising=False)

    def make(name: str, **files: str) -> str:
        for path, text in {"__init__": "", **files}.items():
            file = tmp_path.joinpath(name, *path.split("/")).with_suffix(".py")
            file.parent.mkdir(exist_ok=True)
            file.write_text(dedent(text).replace("{name}", name))
        made.append(name)
        settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, name]
        return name

    yield make
    for module in [module for module in sys.modules if module.split(".")[0] in made]:
        del sys.modules[module]
    for definition in registry.definitions():
        if definition.name not in known:
            registry.unregister(definition.name)


def imported() -> list[str]:
    return list(sys.imported)  # type: ignore[attr-defined]


def test_nothing_is_imported_before_it_is_needed(make_app: MakeApp) -> None:
    make_app("lazy_app", jobs=JOBS)
    assert imported() == []


def test_a_name_that_nobody_knows_yet_is_looked_for_in_the_job_modules(make_app: MakeApp) -> None:
    make_app("found_app", jobs=JOBS)
    assert resolve("found_app.work").name == "found_app.work"
    assert imported() == ["found_app.jobs"]


def test_a_dispatch_by_name_looks(make_app: MakeApp, memory: Driver) -> None:
    make_app("named_app", jobs=JOBS)
    assert dispatch("named_app.work").stored


def test_a_name_that_is_known_imports_nothing(make_app: MakeApp, register: Any) -> None:
    make_app("unneeded_app", jobs=JOBS)

    @register()
    def known() -> None: ...

    assert resolve("tests.known").name == "tests.known"
    assert imported() == []


def test_modules_are_imported_once(make_app: MakeApp) -> None:
    make_app("once_app", jobs=JOBS)
    for _ in range(3):
        load_handlers()
        with pytest.raises(UnknownJob):
            resolve("once_app.wurk")
    assert imported() == ["once_app.jobs"]


def test_threads_that_look_at_once_import_once(make_app: MakeApp) -> None:
    make_app("threads_app", jobs=JOBS)
    found = in_threads(4, lambda _: resolve("threads_app.work").name)
    assert found == ["threads_app.work"] * 4
    assert imported() == ["threads_app.jobs"]


def test_an_app_without_a_job_module_is_fine(make_app: MakeApp) -> None:
    name = make_app("plain_app", models="")
    load_handlers()
    assert f"{name}.jobs" not in job_modules()


def test_a_job_module_may_be_a_package(make_app: MakeApp) -> None:
    make_app("package_app", **{"jobs/__init__": JOBS})
    load_handlers()
    assert imported() == ["package_app.jobs"]


def test_the_names_of_job_modules_are_a_setting(make_app: MakeApp, settings: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "MODULES": ["jobs", "background.mail", "cron"]}
    mail = JOBS.replace(".work", ".mail")
    make_app("many_app", **{"jobs": JOBS, "background/__init__": "", "background/mail": mail})
    load_handlers()
    assert imported() == ["many_app.jobs", "many_app.background.mail"]


def test_a_dotted_module_below_one_that_is_missing_is_missing(make_app: MakeApp, settings: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "MODULES": ["background.mail", "jobs.mail"]}
    make_app("below_app", jobs=JOBS)
    load_handlers()
    assert "below_app.jobs.mail" not in job_modules()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("1 / 0", ZeroDivisionError),
        ("import nowhere_to_be_found", ModuleNotFoundError),
        ("from django_jobqueue import nope", ImportError),
        ("raise SystemExit(3)", SystemExit),
        ("def", SyntaxError),
    ],
)
def test_an_error_inside_a_job_module_shows_as_it_is(make_app: MakeApp, text: str, error: type[BaseException]) -> None:
    make_app("broken_app", jobs=text)
    for _ in range(2):  # not hidden by the first look
        with pytest.raises(error):
            load_handlers()
        with pytest.raises(error):
            resolve("broken_app.work")


def test_an_error_in_the_package_of_a_job_module_shows_as_it_is(make_app: MakeApp, settings: Any) -> None:
    """A missing library is no missing job module."""
    settings.JOBQUEUE = {**settings.JOBQUEUE, "MODULES": ["background.mail"]}
    make_app("hidden_app", **{"background/__init__": "import nowhere_to_be_found", "background/mail": JOBS})
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        load_handlers()


def test_what_was_mended_is_found_without_a_restart(make_app: MakeApp, tmp_path: Path) -> None:
    import importlib

    make_app("mended_app", jobs="1 / 0")
    with pytest.raises(ZeroDivisionError):
        load_handlers()
    (tmp_path / "mended_app" / "jobs.py").write_text(dedent(JOBS).replace("{name}", "mended_app") + "# another size\n")
    importlib.invalidate_caches()
    assert resolve("mended_app.work").name == "mended_app.work"


def test_a_job_module_may_dispatch_by_name_while_it_is_imported(make_app: MakeApp) -> None:
    make_app("eager_app", jobs=JOBS + "\n    from django_jobqueue import dispatch\n    dispatch('other_app.work')\n")
    make_app("other_app", jobs=JOBS)
    load_handlers()
    assert imported() == ["eager_app.jobs", "other_app.jobs"]


def test_the_package_of_its_own_jobs_is_not_a_job_module() -> None:
    """``django_jobqueue.jobs`` is what a job is, and no list of handlers."""
    assert not [path for path in job_modules() if path.startswith(OWN_APP)]
    assert "shop.jobs" in job_modules()
