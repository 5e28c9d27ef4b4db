"""How a job lies in Redis, and the names of the keys; the scripts in ``lua/`` are the other half of this module.

A job is three hash fields under its id: its form (numbers, states, moments: what changes), its body (what does not)
and its errors, one JSON record a line. A result is one line of JSON, and the errors of its job. Each has the number of
its version. All keys of a connection share one hash tag, since a job and what follows it may be in two queues, and one
script moves both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from ...jobs.flows import batch_of
from ...jobs.names import MAX_JOB_NAME, MAX_QUEUE_NAME
from ...jobs.records import (
    CANCELLED,
    READY,
    RESERVED,
    SCHEDULED,
    AttemptHistory,
    AttemptRecord,
    JobRecord,
    NewJob,
    NewResult,
    ProgressRecord,
    Report,
    Reservation,
    ResultRecord,
)
from ...jobs.times import from_microseconds, microseconds, to_microseconds

VERSION = "1"
_COMMON = (
    *("jobs", "bodies", "errors", "queues", "reserved", "unreadable", "results", "expiring"),
    *("batches", "members", "awaited", "over", "cancelled", "ended", "progress", "reported"),
)
_NUMBERS = 17
_STATES = (SCHEDULED, READY, RESERVED)
# What the columns of a dead letter hold.
_SMALL, _LARGE = 2**15 - 1, 2**31 - 1


class Unreadable(Exception):
    """What lies in Redis is no job of a version that this code knows."""


class Keys:
    """The keys of one connection."""

    def __init__(self, prefix: str) -> None:
        self._tag = f"{{{prefix}}}"
        self.common = [f"{self._tag}{name}" for name in _COMMON]
        self.jobs, self.bodies, self.errors, self.queues, self.reserved, self.unreadable = self.common[:6]
        self.over = self.common[_COMMON.index("over")]
        self.cancelled = self.common[_COMMON.index("cancelled")]
        self.progress = self.common[_COMMON.index("progress")]
        self.channel = f"{self._tag}news"

    def answered(self, caller: str) -> str:
        """Which call of a worker, or of a thread, was answered last; it goes by itself."""
        return f"{self._tag}answered:{caller}"

    def of(self, queues: Iterable[str]) -> list[str]:
        """KEYS behind the common ones for a script that may touch these queues, the first of which has place 1."""
        found = []
        for queue in queues:
            found += [f"{self._tag}ready:{queue}", f"{self._tag}scheduled:{queue}"]
        return found


class Places(dict[str, int]):
    """The place of each queue of one call among its KEYS, given on first use."""

    def __missing__(self, queue: str) -> int:
        self[queue] = place = len(self) + 1
        return place


class Form(NamedTuple):
    """A stored job without its body; moments are microseconds since 1970."""

    id: UUID
    state: str
    rank: int
    ready_at: int
    available_at: int
    created_at: int
    attempts: int
    exceptions: int
    crashes: int
    retries: int
    format: int
    max_attempts: int | None
    retry_until: int | None
    reserved_at: int | None
    reserved_until: int | None
    alone: bool
    token: str
    batch: UUID | None
    queue: str
    name: str
    worker: str


class Body(NamedTuple):
    payload: str
    metadata: str
    masked: str
    flow: str | None = None


def read_form(job_id: bytes, text: bytes) -> Form:
    """Raises Unreadable, also for what no dispatch has written and no dead letter could hold."""
    try:
        line, queue, name, worker = text.decode().split("\n", 3)
        numbers = line.split(" ")
        if numbers[0] != VERSION or len(numbers) != _NUMBERS + 1:
            raise Unreadable(text)
        form = Form._make(
            [
                read_id(job_id),
                numbers[1],
                *map(int, numbers[2:11]),
                *[int(number) if number else None for number in numbers[11:15]],
                numbers[15] == "1",
                numbers[16],
                read_id(numbers[17].encode()) if numbers[17] else None,
                queue,
                name,
                worker,
            ]
        )
    except ValueError as error:  # no UTF-8, no number, too few lines
        raise Unreadable(text) from error
    if not _is_sound(form):
        raise Unreadable(text)
    return form


def read_id(text: bytes) -> UUID:
    """Raises ValueError, also for other spellings: by its id a script would not find the job again."""
    number = int(text, 16)
    if b"%032x" % number != text:
        raise ValueError(text)
    return UUID(int=number)


def _is_sound(form: Form) -> bool:
    return (
        form.state in _STATES
        and -_SMALL <= form.rank <= _SMALL
        and -_SMALL <= form.format <= _SMALL
        and -_LARGE <= form.attempts <= _LARGE
        and -_LARGE <= form.retries <= _LARGE
        and -_LARGE <= (form.max_attempts or 0) <= _LARGE
        and len(form.queue) <= MAX_QUEUE_NAME
        and len(form.name) <= MAX_JOB_NAME
        and "\x00" not in form.queue
        and "\x00" not in form.name
    )


def write_body(body: Body) -> str:
    """Lengths first, so that nothing is escaped."""
    metadata, masked, flow = body.metadata, body.masked, body.flow or ""
    flow_length = "" if body.flow is None else len(flow)
    return f"{VERSION} {len(metadata)} {len(masked)} {flow_length} {metadata}{masked}{flow}{body.payload}"


def read_body(text: bytes) -> Body:
    """Raises Unreadable, also for a NUL: JSON has none, and PostgreSQL takes none."""
    try:
        version, metadata_length, masked_length, flow_length, rest = text.decode().split(" ", 4)
        if version != VERSION or "\x00" in rest:
            raise Unreadable(text)
        first = int(metadata_length)
        second = first + int(masked_length)
        third = second + int(flow_length or 0)
        flow = rest[second:third] if flow_length else None
        return Body(payload=rest[third:], metadata=rest[:first], masked=rest[first:second], flow=flow)
    except ValueError as error:
        raise Unreadable(text) from error


def write_record(record: AttemptRecord) -> str:
    return json.dumps(asdict(record))


def write_errors(errors: AttemptHistory) -> str:
    if not errors.total:
        return ""
    return "\n".join([str(errors.total), *map(write_record, errors.last)])


def read_errors(text: bytes) -> AttemptHistory:
    """What is no history reads as an empty one, as in the database."""
    try:
        total, *lines = text.decode().split("\n")
        return AttemptHistory(int(total), tuple(AttemptRecord(**json.loads(line)) for line in lines))
    except (ValueError, TypeError, RecursionError):
        return AttemptHistory()


def job_arguments(
    job: NewJob,
    places: Places,
    *,
    created_at: datetime | None = None,
    retries: int = 0,
    errors: AttemptHistory | None = None,
) -> list[str | int]:
    """The arguments of ``add`` in the scripts: for a new job, or one that was there before."""
    batch = batch_of(job.flow)
    retry: str | int = "" if job.retry_for is None else microseconds(job.retry_for)
    delay: str | int = microseconds(job.delay or 0)
    moment: str | int = ""
    if job.available_at is not None:
        delay, moment = "", to_microseconds(job.available_at)
        retry = "" if retry == "" else int(moment) + int(retry)
    return [
        job.id.hex,
        places[job.queue],
        job.queue,
        job.name,
        job.rank,
        "" if job.max_attempts is None else job.max_attempts,
        job.format,
        delay,
        moment,
        retry,
        "" if created_at is None else to_microseconds(created_at),
        retries,
        "" if errors is None else write_errors(errors),
        "" if batch is None else batch.hex,
        write_body(Body(job.payload, job.metadata, job.masked, job.flow)),
    ]


def write_result(held: Reservation, result: NewResult) -> str:
    return _written_result(
        held,
        value=result.value,
        error=result.error,
        attempts=held.attempt,
        started_at=to_microseconds(result.started_at),
        finished_at=to_microseconds(result.finished_at),
        worker=held.worker,
        priority=-held.rank,
    )


def write_cancelled(job: JobRecord) -> str:
    """The result of a job that is cancelled, open at its end: the script adds the attempts and the moment."""
    text = _written_result(job, state=CANCELLED, value="", error="", started_at=None, worker="", priority=job.priority)
    return text.removesuffix("}")


def _written_result(job: Reservation | JobRecord, **end: Any) -> str:
    """What the job was, and how it ended."""
    return json.dumps(
        {
            "version": VERSION,
            "queue": job.queue,
            "name": job.name,
            "max_attempts": job.max_attempts,
            "created_at": to_microseconds(job.created_at),
            "metadata": job.metadata,
            "payload": job.payload,
            "format": job.format,
            "masked": job.masked,
            **end,
        }
    )


def result_record(job_id: UUID, text: bytes, connection: str) -> ResultRecord:
    """Raises Unreadable."""
    line, _, errors = text.partition(b"\n")
    try:
        body = json.loads(line)
        if body.pop("version") != VERSION:
            raise Unreadable(text)
        moments: Any = {field: from_microseconds(body.pop(field)) for field in ("created_at", "finished_at")}
        moments["started_at"] = _moment(body.pop("started_at"))
        return ResultRecord(id=job_id, connection=connection, errors=read_errors(errors), **body, **moments)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Unreadable(text) from error


def stamp(now: datetime | None) -> str:
    """For a script, which asks the clock of Redis when there is none."""
    return "" if now is None else str(to_microseconds(now))


def report_arguments(report: Report) -> list[str]:
    percent = "" if report.percent is None else report.percent
    token = "" if report.token is None else report.token.hex
    return [report.id.hex, token, f"{percent} {report.state} {report.stage}"]


def progress_record(text: bytes) -> ProgressRecord:
    """Raises Unreadable."""
    try:
        moment, percent, state, stage = text.decode().split(" ", 3)
        return ProgressRecord(int(percent) if percent else None, stage, from_microseconds(int(moment)), state)
    except ValueError as error:
        raise Unreadable(text) from error


def names_and_tokens(reservations: Iterable[Reservation]) -> list[str]:
    return [text for held in reservations for text in (held.id.hex, held.token.hex)]


def reservation(form: Form, body: Body, connection: str, token: UUID) -> Reservation:
    return Reservation(
        id=form.id,
        token=token,
        worker=form.worker,
        connection=connection,
        queue=form.queue,
        name=form.name,
        payload=body.payload,
        format=form.format,
        rank=form.rank,
        attempt=form.attempts,
        max_attempts=form.max_attempts,
        exceptions=form.exceptions,
        crashes=form.crashes,
        alone=form.alone,
        ready_at=from_microseconds(form.ready_at),
        created_at=from_microseconds(form.created_at),
        reserved_at=from_microseconds(form.reserved_at or 0),
        reserved_until=from_microseconds(form.reserved_until or 0),
        retry_until=_moment(form.retry_until),
        metadata=body.metadata,
        masked=body.masked,
        flow=body.flow,
    )


def job_record(job_id: bytes, parts: Sequence[Any], connection: str) -> JobRecord:
    """From form, body and errors; raises Unreadable."""
    form, body = read_form(job_id, parts[0] or b""), read_body(parts[1] or b"")
    return JobRecord(
        id=form.id,
        connection=connection,
        queue=form.queue,
        name=form.name,
        state=form.state,
        payload=body.payload,
        format=form.format,
        priority=-form.rank,
        attempts=form.attempts,
        max_attempts=form.max_attempts,
        created_at=from_microseconds(form.created_at),
        available_at=from_microseconds(form.available_at),
        ready_at=from_microseconds(form.ready_at),
        reserved_at=_moment(form.reserved_at),
        reserved_until=_moment(form.reserved_until),
        worker=form.worker,
        errors=read_errors(parts[2] or b""),
        metadata=body.metadata,
        masked=body.masked,
        flow=body.flow,
        retries=form.retries,
        batch=form.batch,
    )


def _moment(value: int | None) -> datetime | None:
    return None if value is None else from_microseconds(value)
