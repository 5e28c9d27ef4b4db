"""What is kept of jobs that are cancelled: read before, and stored by the script that removes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...jobs.records import JobRecord
from ...jobs.times import microseconds
from ..base import KeepFor
from .ends import Argument
from .form import write_cancelled
from .store import RedisStore

# Of one call, so that none keeps others waiting for long; what is kept may have a payload of a megabyte.
PER_CALL, KEPT_PER_CALL = 1000, 20


class Waiting(NamedTuple):
    """A job that waited when it was looked for: its id, its name, and its queue or its name in the set of that."""

    id: bytes
    name: bytes
    where: bytes


def kept(job: JobRecord, keep_for: KeepFor) -> tuple[Argument, Argument]:
    """The arguments of ``cancel_job`` in the scripts; nothing is kept without a time."""
    seconds = keep_for(job.name)
    return (write_cancelled(job), microseconds(seconds)) if seconds else ("", "")


def pages(
    store: RedisStore, found: Sequence[Waiting], keep_for: KeepFor
) -> Iterator[list[tuple[Waiting, Argument, Argument]]]:
    """The jobs with these arguments, few at a time of those that are kept."""
    names = {job.name: keep_for(job.name.decode(errors="replace")) for job in found}
    for page in _paged([job for job in found if not names[job.name]], PER_CALL):
        yield [(job, "", "") for job in page]
    for page in _paged([job for job in found if names[job.name]], KEPT_PER_CALL):
        records = store.waiting([job.id for job in page])
        yield [(job, *(kept(records[job.id], keep_for) if job.id in records else ("", ""))) for job in page]


def _paged(jobs: list[Waiting], size: int) -> Iterator[list[Waiting]]:
    return (jobs[start : start + size] for start in range(0, len(jobs), size))
