"""Watching the code, by Django's own autoreloader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from django.utils.autoreload import StatReloader

from django_jobqueue.running import reloading
from django_jobqueue.running.reloading import watch_files
from django_jobqueue.running.restarting import Restart
from tests.helpers.waiting import wait_until


class Quick(StatReloader):
    """Watches one file only, and looks all the time."""

    SLEEP_TIME = 0.01

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.looks = 0

    def snapshot_files(self) -> Any:
        self.looks += 1
        yield self.file, self.file.stat().st_mtime


def test_a_changed_file_ends_the_loops_and_not_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "code.py"
    file.touch()
    reloader = Quick(file)
    monkeypatch.setattr(reloading, "get_reloader", lambda: reloader)
    restart = Restart()
    watch_files(restart)
    wait_until(lambda: reloader.looks > 1, "it has seen the file")
    assert restart.reason == ""
    later = file.stat().st_mtime + 10
    os.utime(file, (later, later))
    wait_until(lambda: restart.reason == "reload", "the change is noticed")
