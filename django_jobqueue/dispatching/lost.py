"""What could not be stored after the commit that it waited for, as log lines: all that a person needs to repeat it.

One line for a job and one for a batch, whatever follows them. PAYLOAD_LIMIT bounds each of the few parts of a line: the
arguments, the metadata, what follows in a chain, and each callback of a batch. Sensitive values are masked.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from uuid import UUID

from ..jobs.errors import printable
from ..jobs.flows import SPREAD, Flow, Step, read_callbacks, read_step, readable
from ..jobs.payloads import decode, masked_payload
from ..jobs.records import NewBatch, NewJob

logger = logging.getLogger("django_jobqueue")


@dataclass(slots=True, eq=False)
class WaitingBatch:
    """A batch that waits for a commit with its jobs, or jobs that are to be added to one, where ``new`` is None."""

    id: UUID
    name: str
    size: int
    new: NewBatch | None = None
    has_begun: bool = False


def log_job(job: NewJob, connection: str, reason: str) -> None:
    batch = readable(job.flow).batch
    logger.error(
        "job %s (%s) was not stored on %r after the commit: %s; %s%s",
        job.id,
        job.name,
        connection,
        reason,
        _described(job),
        "" if batch is None else f"; in the batch {batch}",
        extra={
            "event": "dispatch_failed",
            "job": job.name,
            "id": str(job.id),
            "queue": job.queue,
            "connection": connection,
        },
    )


def log_batch(batch: WaitingBatch, lost: int, connection: str, reason: str) -> None:
    """``lost`` of its jobs have lines of their own."""
    if batch.has_begun:
        state = (
            f"has {batch.size} new jobs, but {lost} of them were not stored on {connection!r} after the commit: "
            f"{reason}; it waits for these, on Redis for an hour, and then counts them as cancelled; "
            f"get_batch('{batch.id}').cancel() cancels what waits at once"
        )
    elif batch.new is None:
        state = f"did not get its {lost} new jobs on {connection!r} after the commit: {reason}"
    else:
        state = f"was not stored on {connection!r} after the commit: {reason}; {lost} jobs, {_options(batch.new)}"
    logger.error(
        "batch %s (%s) %s",
        batch.id,
        printable(batch.name) or "-",
        state,
        extra={"event": "dispatch_failed", "batch": batch.name, "id": str(batch.id), "connection": connection},
    )


def _described(job: NewJob) -> str:
    """The options and arguments of a job, and what follows it; of the job for a batch in a chain, the batch."""
    if job.name != SPREAD:
        return (
            f"queue {job.queue!r}, priority {-job.rank}, delay {job.delay}, available at {job.available_at}, "
            f"metadata {job.metadata or '{}'}, arguments {masked_payload(job.payload, job.masked)}"
            f"{_followers(readable(job.flow))}"
        )
    (text, rest), _kwargs = decode(job.payload, job.format)
    body = json.loads(text)
    members = [_named(read_step(member)) for member in body.pop("members")]
    return f"batch {body['name']!r}, {_options(NewBatch(**body))}; jobs {' '.join(members)}{_followers(readable(rest))}"


def _options(batch: NewBatch) -> str:
    callbacks = read_callbacks(batch.callbacks)
    steps = {"then": callbacks.then, "catch": callbacks.catch, "finally_": callbacks.finally_}
    called = "".join(f"; {kind} {_named(step)}" for kind, step in steps.items() if step is not None)
    return f"metadata {batch.metadata or '{}'}, allow_failures {batch.allow_failures}{called}"


def _followers(flow: Flow) -> str:
    """The later steps of a chain, and its catch, which are lost with the first."""
    caught = "" if flow.catch is None else f"; catch {_named(flow.catch)}"
    return "".join(f"; then {_named(step)}" for step in flow.steps) + caught


def _named(step: Step) -> str:
    return f"{step.job.name} [id {step.job.id}, connection {step.connection!r}, {_described(step.job)}]"
