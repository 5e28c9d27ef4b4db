"""``queue_forget``: dead letters are deleted."""

from __future__ import annotations

from typing import ClassVar

from ...jobs.records import FailedSummary
from ...operations import failed_jobs
from ..dead_letters import DeadLetterCommand


class Command(DeadLetterCommand):
    help = "Delete failed jobs for good. Exit codes: 0 all done, 1 nothing done, 2 usage error, 3 some done."
    verb: ClassVar[str] = "Forget"
    done: ClassVar[failed_jobs.Status] = "forgotten"
    needs_rows_only: ClassVar[bool] = True

    def act(self, letters: list[FailedSummary]) -> list[failed_jobs.Result]:
        return failed_jobs.forget(letters)
