"""How far jobs, chains and batches are, for pages of the project: by a signed token, since an id can be guessed.

It tells a percentage, a stage and a state, and nothing else: no error, no payload. A chain is as far as the step that
has its turn says; it is found by the ids of its steps, so that nothing is written for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from django.core import signing
from django.utils.translation import gettext

from ..dispatching.batches import DispatchedBatch
from ..dispatching.chains import DispatchedChain
from ..dispatching.dispatch import Dispatched
from ..drivers import connections
from ..exceptions import InvalidOption
from ..jobs.records import CANCELLED, FAILED, PROCESSED, RESERVED
from .batches import FoundBatch, get_batch
from .lookup import FoundJob, get_job

SALT = "django_jobqueue.progress"
TOKEN_LIFETIME = timedelta(days=1)
# Longer chains would make addresses that servers refuse.
MOST_STEPS = 40

Followed: TypeAlias = Dispatched | DispatchedChain | DispatchedBatch | FoundJob | FoundBatch | UUID
State: TypeAlias = Literal["waiting", "running", "processed", "failed", "cancelled"]


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

    ``of`` is what a dispatch, ``get_job()`` or ``get_batch()`` returned, or the id of a job.
    """
    if isinstance(of, DispatchedChain):
        if len(of.ids) > MOST_STEPS:
            raise InvalidOption(f"At most {MOST_STEPS} steps can be followed, and the chain has {len(of.ids)}.")
        if of.connection is None:
            raise InvalidOption("The steps of the chain are on several connections; follow them one by one.")
        return _sign("chain", of.ids)
    if isinstance(of, DispatchedBatch | FoundBatch):
        return _sign("batch", [of.id])
    if isinstance(of, Dispatched | FoundJob):
        return _sign("job", [of.id])
    if isinstance(of, UUID):
        return _sign("job", [of])
    raise InvalidOption(f"{of!r} cannot be followed; pass what dispatch() returned, or the UUID of a job.")


def how_far(token: str) -> HowFar | None:
    """How far the job, chain or batch of a token is; None for a token that is none, or too old."""
    try:
        kind, *texts = signing.loads(token, salt=SALT, max_age=TOKEN_LIFETIME)
        ids = [UUID(text) for text in texts]
    except (signing.BadSignature, ValueError, TypeError):
        return None
    if kind == "batch":
        return _of_batch(ids[0])
    return _of_chain(ids) if kind == "chain" else _of_job(ids[0])


def _sign(kind: str, ids: Sequence[UUID]) -> str:
    return signing.dumps([kind, *(one.hex for one in ids)], salt=SALT)


def _of_job(job_id: UUID) -> HowFar:
    job = get_job(job_id)
    if job is None:
        return _of_gone(job_id)
    progress = job.progress
    percent, stage = (None, "") if progress is None else (progress.percent, progress.stage)
    if job.state == PROCESSED:
        return HowFar("processed", 100, stage)
    if job.state == FAILED:
        return HowFar("failed", percent, stage)
    if job.state == CANCELLED:
        return HowFar("cancelled", percent, stage)
    return HowFar("running" if job.state == RESERVED else "waiting", percent, stage)


def _of_gone(job_id: UUID) -> HowFar:
    """A job that is gone has succeeded, unless it had said less than it says at a success."""
    for driver in connections.all():
        record = driver.get_progress(job_id)
        if record is not None:
            return HowFar("processed" if record.percent == 100 else "cancelled", record.percent, record.stage)
    return HowFar("processed", 100)


def _of_chain(ids: Sequence[UUID]) -> HowFar:
    """As far as the step that has its turn; there is one until the chain is over, since a step ends with the next one.

    Asked twice: between the looks at two steps the turn may have gone from one to the other.
    """
    for _ in range(2):
        for place in reversed(range(len(ids))):
            found = _turn(ids[place])
            if found is not None and (found.state != "processed" or place == len(ids) - 1):
                return HowFar(found.state, (place * 100 + (found.percent or 0)) // len(ids), found.stage)
    return _of_gone(ids[-1])


def _turn(step_id: UUID) -> HowFar | None:
    """How far a step, or the batch that is one, is; None when it has not had its turn, or is gone."""
    if get_job(step_id) is not None:
        return _of_job(step_id)
    return None if get_batch(step_id) is None else _of_batch(step_id)


def _of_batch(batch_id: UUID) -> HowFar:
    batch = get_batch(batch_id)
    if batch is None:
        return HowFar("processed", 100)
    stage = gettext("%(ended)s of %(total)s") % {"ended": batch.total - batch.pending, "total": batch.total}
    state: State = "running" if batch.total > batch.pending else "waiting"
    if batch.finished_at is not None:
        state = "failed" if batch.failed and not batch.allow_failures else "processed"
        state = "cancelled" if batch.state == "cancelled" else state
    return HowFar(state, batch.percent, stage)


def as_json(found: HowFar) -> dict[str, Any]:
    """What the page's script reads."""
    return {
        "state": found.state,
        "label": found.label,
        "percent": found.percent,
        "stage": found.stage,
        "is_over": found.is_over,
    }
