"""``queue_retry``: dead letters go back on their queues."""

from __future__ import annotations

from typing import ClassVar

from ...dispatching.discovery import load_handlers
from ...jobs.records import FailedSummary
from ...operations import failed_jobs
from ..dead_letters import DeadLetterCommand


class Command(DeadLetterCommand):
    help = (
        "Put failed jobs back on their queues, ready now, with no attempt used. "
        "Exit codes: 0 all done, 1 nothing done, 2 usage error, 3 some done."
    )
    verb: ClassVar[str] = "Retry"
    done: ClassVar[failed_jobs.Status] = "retried"

    def prepare(self) -> None:
        load_handlers()  # an error inside a jobs.py shows its traceback

    def act(self, letters: list[FailedSummary]) -> list[failed_jobs.Result]:
        return failed_jobs.retry(letters)
