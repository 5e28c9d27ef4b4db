"""The package root: importable before settings are configured, and without a model."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import django_jobqueue


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_needs_no_settings_and_loads_no_model() -> None:
    assert run(
        """
        import os, sys
        os.environ.pop("DJANGO_SETTINGS_MODULE", None)
        import django_jobqueue
        print([name for name in sys.modules if name.startswith("django_jobqueue.models")])
        """
    ) == str([])


def test_a_job_can_be_defined_before_the_apps_are_ready() -> None:
    assert (
        run(
            """
            from django_jobqueue import job
            import sys, types
            module = types.ModuleType("shop_jobs")
            sys.modules["shop_jobs"] = module
            exec("def send(order_id): ...", module.__dict__)
            handler = job(module.send)
            print(handler, [name for name in sys.modules if name.startswith("django_jobqueue.models")])
            """
        )
        == "<job shop_jobs.send> []"
    )


def test_every_public_name_exists() -> None:
    assert [name for name in django_jobqueue.__all__ if not hasattr(django_jobqueue, name)] == []
    assert len(set(django_jobqueue.__all__)) == len(django_jobqueue.__all__)
