"""How far jobs, chains and batches are, for pages of the project: by a signed token, since an id can be guessed.

It tells a percentage, a stage and a state, and nothing else: no error, no payload. The state is that of the job, and
only of a job that is gone that which it left. A chain is as far as the step that has its turn says; it is found by the
ids of its steps, so that nothing is written for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from django.core import signing
from django.utils.translation import gettext

from ..dispatching.after_commit import waits_for_commit
from ..dispatching.batches import DispatchedBatch
from ..dispatching.chains import DispatchedChain
from ..dispatching.dispatch import Dispatched
from ..drivers import connections
from ..exceptions import InvalidOption
from ..jobs.records import CANCELLED, FAILED, PROCESSED, RESERVED, ProgressRecord
from .batches import FoundBatch, get_batch
from .lookup import FoundJob, get_job
from .reports import last_reports

SALT = "django_jobqueue.progress"
TOKEN_LIFETIME = timedelta(days=1)
# Longer chains would make addresses that servers refuse.
MOST_STEPS = 40

Followed: TypeAlias = Dispatched | DispatchedChain | DispatchedBatch | FoundJob | FoundBatch | UUID | Sequence[UUID]
State: TypeAlias = Literal["waiting", "running", "processed", "failed", "cancelled"]

_OTHER_ENDS: dict[str, State] = {FAILED: "failed", CANCELLED: "cancelled"}


@dataclass(frozen=True, slots=True)
class HowFar:
    """``percent`` is None when nobody knows. ``is_over`` says that it will not change any more."""

    state: State
    percent: int | None = None
    stage: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in {"processed", "failed", "cancelled"}

    @property
    def label(self) -> str:
        """The state, in the language of the reader."""
        return {
            "waiting": gettext("waiting"),
            "running": gettext("running"),
            "processed": gettext("done"),
            "failed": gettext("failed"),
            "cancelled": gettext("cancelled"),
        }[self.state]


def progress_token(of: Followed) -> str:
    """A signed token with which a page may follow a job, chain or batch for a day; safe in an address.

    ``of`` is what a dispatch, ``get_job()`` or ``get_batch()`` returned, the id of a job or batch, or a list of the ids
    of a chain's steps.
    """
    if isinstance(of, DispatchedChain) and of.connection is None:
        raise InvalidOption("The steps of the chain are on several connections; follow them one by one.")
    steps = of.ids if isinstance(of, DispatchedChain) else of
    if isinstance(steps, list | tuple) and steps and all(isinstance(step, UUID) for step in steps):
        if len(steps) > MOST_STEPS:
            raise InvalidOption(f"At most {MOST_STEPS} steps can be followed, and the chain has {len(steps)}.")
        return _sign("chain", steps)
    if isinstance(of, DispatchedBatch | FoundBatch):
        return _sign("batch", [of.id])
    if isinstance(of, Dispatched | FoundJob):
        return _sign("one", [of.id])
    if isinstance(of, UUID):
        return _sign("one", [of])
    raise InvalidOption(f"{of!r} cannot be followed; pass what dispatch() returned, or the UUID of a job or batch.")


def how_far(token: str) -> HowFar | None:
    """How far the job, chain or batch of a token is; None for a token that is none, or too old."""
    try:
        kind, *texts = signing.loads(token, salt=SALT, max_age=TOKEN_LIFETIME)
        ids = [UUID(text) for text in texts]
    except (signing.BadSignature, ValueError, TypeError):
        return None
    if waits_for_commit(ids):
        return HowFar("waiting")
    if kind == "batch":
        batch = get_batch(ids[0])
        return HowFar("processed", 100) if batch is None else _of_found_batch(batch)
    return _of_chain(ids) if kind == "chain" else _of_one(ids[0]) or _of_gone(ids)


def _sign(kind: str, ids: Sequence[UUID]) -> str:
    return signing.dumps([kind, *(one.hex for one in ids)], salt=SALT)


def _of_one(one_id: UUID) -> HowFar | None:
    """How far a job or batch is; None when it is gone, or a step that has not had its turn."""
    job = get_job(one_id)
    if job is None:
        batch = get_batch(one_id)
        return None if batch is None else _of_found_batch(batch)
    progress = job.progress
    percent, stage = (None, "") if progress is None else (progress.percent, progress.stage)
    if job.state == PROCESSED:
        return HowFar("processed", 100, stage)
    if job.state == FAILED:
        return HowFar("failed", percent, stage)
    if job.state == CANCELLED:
        return HowFar("cancelled", percent, stage)
    return HowFar("running" if job.state == RESERVED else "waiting", percent, stage)


def _of_found_batch(batch: FoundBatch) -> HowFar:
    stage = gettext("%(ended)s of %(total)s") % {"ended": batch.total - batch.pending, "total": batch.total}
    state: State = "running" if batch.total > batch.pending else "waiting"
    if batch.finished_at is not None:
        state = "failed" if batch.failed and not batch.allow_failures else "processed"
        state = "cancelled" if batch.state == "cancelled" else state
    return HowFar(state, batch.percent, stage)


def _of_gone(ids: Sequence[UUID]) -> HowFar:
    """Jobs that are gone, the steps of a chain or just one, have succeeded, unless one has left that it did not."""
    found: dict[UUID, ProgressRecord] = {}
    for driver in connections.all():
        for job_id, last in last_reports(driver, ids).items():
            if job_id not in found or found[job_id].updated_at < last.updated_at:
                found[job_id] = last
    for place, job_id in enumerate(ids):
        if job_id in found and found[job_id].state in _OTHER_ENDS:
            last = found[job_id]
            return HowFar(_OTHER_ENDS[last.state], _share(place, last.percent, len(ids)), last.stage)
    return HowFar("processed", 100, found[ids[-1]].stage if ids[-1] in found else "")


def _share(place: int, percent: int | None, count: int) -> int | None:
    """The percentage of a chain of ``count`` steps, of which one is as far as it says."""
    return percent if count == 1 else (place * 100 + (percent or 0)) // count


def _of_chain(ids: Sequence[UUID]) -> HowFar:
    """As far as the step that has its turn; there is one until the chain is over, since a step ends with the next one.

    Asked twice: between the looks at two steps the turn may have gone from one to the other.
    """
    for _ in range(2):
        for place in reversed(range(len(ids))):
            found = _of_one(ids[place])
            if found is not None and (found.state != "processed" or place == len(ids) - 1):
                return HowFar(found.state, _share(place, found.percent, len(ids)), found.stage)
    return _of_gone(ids)


def as_json(found: HowFar) -> dict[str, Any]:
    """What the page's script reads."""
    return {
        "state": found.state,
        "label": found.label,
        "percent": found.percent,
        "stage": found.stage,
        "is_over": found.is_over,
    }
