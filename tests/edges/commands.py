"""Commands as a person or a script runs them, in this process, and dead letters for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

from django.core.management import CommandError, call_command

from django_jobqueue import job
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.models import FailedJob


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Ran:
    """How a command ended: its exit code, what it printed, and the line that says why it failed."""

    code: int
    out: str
    err: str
    error: str = ""

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def run(command: str, *args: str, terminal: bool = False, **options: Any) -> Ran:
    out, err = Terminal() if terminal else StringIO(), StringIO()
    code, text = 0, ""
    try:
        call_command(command, *args, stdout=out, stderr=err, **options)
    except CommandError as error:
        code, text = error.returncode, str(error)
    return Ran(code, out.getvalue(), err.getvalue(), text)


@job(name="edges.succeed")
def succeed(**anything: Any) -> None: ...


@job(name="edges.fail", max_attempts=2, backoff=0)
def fail(text: str = "it always does") -> None:
    raise ValueError(text)


@job(name="edges.leave", max_attempts=1)
def leave() -> None:
    raise SystemExit(3)


def dead_letter(name: str = "edges.succeed", **changes: Any) -> FailedJob:
    return FailedJob.objects.create(**dead_letter_values(name, **changes))


def dead_letters(count: int, name: str = "edges.succeed", **changes: Any) -> None:
    FailedJob.objects.bulk_create(FailedJob(**dead_letter_values(name, **changes)) for _ in range(count))


def dead_letter_values(name: str, **changes: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "job_id": new_job_id(),
        "connection": "default",
        "queue": "default",
        "name": name,
        "payload": '{"args":[],"kwargs":{}}',
        "format": 1,
        "rank": 0,
        "max_attempts": 3,
        "created_at": now - timedelta(hours=1),
        "exception_class": "builtins.ValueError",
        "exception_message": "broken",
        "fingerprint": "f" * 64,
        "fingerprint_version": 1,
        "attempts": 3,
        "failed_at": now,
        **changes,
    }
