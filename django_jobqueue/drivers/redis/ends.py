"""How reservations in Redis end: the arguments of ``settle.lua``, and what a rescue decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from ...jobs.records import Cause, Complete, NewJob, Release, Rescued, Reservation
from ...jobs.rescue import unfinished, verdict, verdict_in_hand
from ...jobs.times import from_microseconds, microseconds
from .form import Form, Places, job_arguments, write_record, write_result

Argument: TypeAlias = str | int | bytes


class Ends:
    """Reservations and what becomes of each, for one call of the script."""

    def __init__(self) -> None:
        self.places = Places()
        self.ids: list[UUID] = []
        self.queues: list[str] = []
        self.arguments: list[Argument] = []

    def add(self, job_id: UUID, token: str, queue: str, end: str, *more: Argument) -> None:
        self.ids.append(job_id)
        self.queues.append(queue)
        self.arguments += [job_id.hex, token, self.places[queue], end, len(more), *more]

    def hand_back(self, held: Reservation) -> None:
        self.add(held.id, held.token.hex, held.queue, "hand_back")

    def complete(self, item: Complete) -> None:
        held, result = item.reservation, item.result
        kept: tuple[Argument, Argument] = ("", "")
        if result is not None:
            kept = write_result(held, result), microseconds(result.keep_for)
        self.remove(held.id, held.token.hex, held.queue, item.then, kept, batch=item.batch)

    def remove(
        self,
        job_id: UUID,
        token: str,
        queue: str,
        then: Sequence[NewJob] = (),
        kept: tuple[Argument, Argument] = ("", ""),
        *,
        batch: UUID | None = None,
        has_failed: bool = False,
    ) -> None:
        """The job goes, with success or as a dead letter; ``kept`` is its result and for how many microseconds."""
        follow = [argument for job in then for argument in job_arguments(job, self.places)]
        end = "bury" if has_failed else "remove"
        self.add(job_id, token, queue, end, *kept, "" if batch is None else batch.hex, *follow)

    def release(self, item: Release) -> None:
        held = item.reservation
        record = "" if item.record is None else write_record(item.record)
        self.add(held.id, held.token.hex, held.queue, "release", microseconds(item.delay), record)

    def recover(self, form: Form, rescued: Rescued, *, counts: bool) -> None:
        record = "" if rescued.record is None else write_record(rescued.record)
        self.add(form.id, form.token, form.queue, "recover", int(counts), record)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What is known of lost workers."""

    max_attempts: int
    is_in_hand: bool = field(default=False, kw_only=True)
    spends: bool = field(default=True, kw_only=True)
    cause: Cause | None = field(default=None, kw_only=True)

    def rescued(self, form: Form, now: datetime) -> Rescued:
        """What becomes of a job; a dead letter always has a record."""
        limit = self.max_attempts if form.max_attempts is None else form.max_attempts
        retry_until = None if form.retry_until is None else from_microseconds(form.retry_until)
        if self.is_in_hand:
            decision = verdict_in_hand(
                spends=self.spends, attempts=form.attempts, max_attempts=limit, retry_until=retry_until, now=now
            )
        else:
            decision = verdict(
                alone=form.alone, attempts=form.attempts, max_attempts=limit, retry_until=retry_until, now=now
            )
        ready, started = from_microseconds(form.ready_at), from_microseconds(form.reserved_at or 0)
        record = unfinished(form.attempts, form.worker, ready, started, now, self.cause)
        return Rescued(
            id=form.id,
            name=form.name,
            queue=form.queue,
            attempt=form.attempts,
            max_attempts=limit,
            worker=form.worker,
            record=None if decision == "give_back" else record,
            dead_lettered=decision == "dead_letter",
        )


def in_groups(size: int, values: Sequence[Any]) -> Iterator[Any]:
    """What a script returned, so many values for each job."""
    return zip(*[iter(values)] * size, strict=True)
