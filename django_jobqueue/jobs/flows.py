"""What follows a job, which travels with it: as text in its row, and so in its transactions.

A step that has its turn is a job with the steps behind it as its ``flow``. Completing it stores the next step; making
it a dead letter stores the chain's catch, once, and keeps the steps, so that a retry goes on with them. A step of
another connection cannot be stored in the same transaction: a relay is, a job of its own that carries it over there.

The flow of a member of a batch has the batch's id. A chain is one member, whichever of its steps has its turn. A batch
that is a step of a chain is spread out by a job of its own when it has its turn, and stores the next step at its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from ..exceptions import InvalidPayload
from .ids import new_job_id
from .payloads import FORMAT, decode, encode, encode_result, fill, fill_in_vain, has_slot, secret_paths
from .records import AttemptRecord, BatchRecord, NewJob, Reservation
from .times import from_microseconds, seconds, to_microseconds

RELAY = "django_jobqueue.relay"
SPREAD = "django_jobqueue.spread"
# The flow of a batch's member is as long at most, and the same for all of them: read once.
SHORT = 64
# The arguments of our own jobs hold those of others, with whatever is secret in them.
MASKED_ARGUMENTS = '[["args",0],["args",1]]'
# A store may be away for hours: with the default backoff these attempts take more than a day.
RELAY_ATTEMPTS = 40


class Step(NamedTuple):
    """A job that has not had its turn, and the connection it goes to."""

    connection: str
    job: NewJob

    def before(self, rest: Flow) -> Step:
        """This step with what follows it: of a batch, in the arguments of the job that spreads it out."""
        if self.job.name != SPREAD:
            return self._replace(job=self.job._replace(flow=rest.write()))
        payload = self.job.payload
        try:
            (batch, _rest), _kwargs = decode(payload, self.job.format)
            payload = encode([batch, rest.write()], {}, (), NO_LIMIT)
        except ValueError:
            pass  # it has no such payload, as it will say when it has its turn
        return self._replace(job=self.job._replace(payload=payload, flow=Flow(catch=rest.catch).write()))


@dataclass(frozen=True, slots=True)
class Flow:
    """What follows a job: ``steps`` one after the other, and ``catch`` when one of them, or the job, fails for good.

    ``batch`` is the id of the batch of which the job is a member.
    """

    steps: tuple[Step, ...] = ()
    catch: Step | None = None
    batch: UUID | None = None

    @property
    def asks_for_result(self) -> bool:
        return bool(self.steps) and has_slot(self.steps[0].job.payload)

    def write(self) -> str | None:
        """The text that is stored with a job; None when nothing follows."""
        body: dict[str, Any] = {}
        if self.steps:
            body["steps"] = [write_step(step) for step in self.steps]
        if self.catch is not None:
            body["catch"] = write_step(self.catch)
        if self.batch is not None:
            body["batch"] = self.batch.hex
        return json.dumps(body, separators=(",", ":")) if body else None

    def after(
        self,
        held: Reservation,
        result: str,
        error: str,
        limit: int,
        is_secret: Callable[[str], bool],
    ) -> tuple[NewJob, ...]:
        """What is stored when the job succeeds; ``result`` is JSON text, empty where ``error`` says why there is none.

        A step that asks for a result that is missing, or makes its arguments longer than ``limit``, has one attempt,
        which fails with that error.
        """
        if not self.steps:
            return ()
        step = self.steps[0]
        if has_slot(step.job.payload):
            step = _masking(_filled(step, result, error, limit), is_secret)
        step = step.before(replace(self, steps=self.steps[1:]))
        return (_here(step, held.connection, held.queue, held.rank),)


NOTHING = Flow()


def read(text: str | None) -> Flow:
    """Stored text; raises InvalidPayload for text that is no flow."""
    if text is None:
        return NOTHING
    return _read_again(text) if len(text) <= SHORT else _read(text)


def _read(text: str) -> Flow:
    try:
        body = json.loads(text)
        catch, batch = body.get("catch"), body.get("batch")
        return Flow(
            tuple(map(read_step, body.get("steps", ()))),
            None if catch is None else read_step(catch),
            None if batch is None else UUID(batch),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidPayload(f"The stored chain of the job cannot be read: {error!r}.") from None


_read_again = lru_cache(maxsize=64)(_read)


def caught(
    flow: str | None, job_id: UUID, name: str, queue: str, rank: int, connection: str, record: AttemptRecord
) -> tuple[NewJob, ...]:
    """What is stored when a job becomes a dead letter: the catch of its chain, with the error in its slots."""
    catch = readable(flow).catch
    if catch is None:
        return ()
    error = {"id": job_id, "name": name, "exception_class": record.exception_class, "message": record.message}
    return (_here(_filled(catch, encode_result(error, NO_LIMIT), "", NO_LIMIT), connection, queue, rank),)


def uncaught(flow: str | None) -> str | None:
    """The flow that a dead letter keeps: its catch has had its turn. Text that cannot be read stays as it is."""
    if flow is None:
        return None
    found = readable(flow)
    return flow if found.catch is None else replace(found, catch=None).write()


def moved(flow: str | None, queue: str, source: str, target: str) -> str | None:
    """The flow of a job whose queue goes to another connection: what follows it in that queue goes there too."""
    try:
        found = read(flow)
    except InvalidPayload:
        return flow

    def there(step: Step) -> Step:
        return step._replace(connection=target) if (step.connection, step.job.queue) == (source, queue) else step

    steps = tuple(map(there, found.steps))
    return replace(found, steps=steps, catch=None if found.catch is None else there(found.catch)).write()


def batch_of(flow: str | None) -> UUID | None:
    """The batch of which a job with this flow is a member, None without and for text that cannot be read."""
    return None if flow is None else readable(flow).batch


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What is stored when a batch ends: after success, after a failure, and in any case.

    ``chain`` is the text of the flow that goes on after success, where the batch is a step of a chain.
    """

    then: Step | None = None
    catch: Step | None = None
    finally_: Step | None = None
    chain: str | None = None

    def write(self) -> str:
        steps = {"then": self.then, "catch": self.catch, "finally_": self.finally_}
        body: dict[str, Any] = {kind: write_step(step) for kind, step in steps.items() if step is not None}
        if self.chain is not None:
            body["chain"] = self.chain
        return json.dumps(body, separators=(",", ":"))

    def at_the_end(self, batch: BatchRecord) -> tuple[NewJob, ...]:
        """The jobs of a batch that has ended, with its numbers in their slots."""
        is_success = not batch.cancelled_at and not batch.cancelled and (batch.allow_failures or not batch.failed)
        numbers = {
            "id": batch.id,
            "name": batch.name,
            "total": batch.total,
            "done": batch.done,
            "failed": batch.failed,
            "cancelled": batch.cancelled,
        }
        result = encode_result(numbers, NO_LIMIT)
        chosen = [
            _filled(step, result, "", NO_LIMIT)
            for step in (self.then if is_success else None, self.catch if batch.failed else None, self.finally_)
            if step is not None
        ]
        rest = readable(self.chain)
        if is_success and rest.steps:
            step = _filled(rest.steps[0], result, "", NO_LIMIT)
            chosen.append(step.before(replace(rest, steps=rest.steps[1:])))
        elif not is_success and rest.catch is not None:
            error = {
                "id": batch.id,
                "name": batch.name,
                "exception_class": "",
                "message": f"Of {batch.total} jobs of the batch {batch.failed} failed, "
                f"{batch.cancelled} were cancelled.",
            }
            chosen.append(_filled(rest.catch, encode_result(error, NO_LIMIT), "", NO_LIMIT))
        return tuple(_here(step, batch.connection, step.job.queue, step.job.rank) for step in chosen)


def read_callbacks(text: str) -> Callbacks:
    """Stored callbacks; a batch whose text cannot be read ends all the same, and calls nobody."""
    try:
        body = json.loads(text)
        chain = body.pop("chain", None)
        if chain is not None:
            _check_text("chain", chain)
        return Callbacks(**{kind: read_step(step) for kind, step in body.items()}, chain=chain)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Callbacks()


def write_step(step: Step) -> dict[str, Any]:
    """A step as JSON: what differs from the defaults of a job."""
    body: dict[str, Any] = {"connection": step.connection, **step.job._asdict()}
    body = {field: value for field, value in body.items() if value != NewJob._field_defaults.get(field, _NO_DEFAULT)}
    body["id"] = step.job.id.hex
    if step.job.available_at is not None:
        body["available_at"] = to_microseconds(step.job.available_at)
    return body


def read_step(body: dict[str, Any]) -> Step:
    """The step of ``write_step``; raises ValueError, TypeError or KeyError for what no store takes as a job."""
    fields = dict(body)
    connection = _check_text("connection", fields.pop("connection"))
    fields["id"] = UUID(fields["id"])
    if "available_at" in fields:
        fields["available_at"] = from_microseconds(fields["available_at"])
    job = NewJob(**fields)
    for field in _TEXTS:
        _check_text(field, getattr(job, field))
    for field, kind in _NUMBERS.items():
        if not isinstance(getattr(job, field), kind):
            raise TypeError(f"{field} is no number")
    for field in _DURATIONS:
        if (value := getattr(job, field)) is not None:
            seconds(field, value)
    if job.flow is not None:
        _check_text("flow", job.flow)
    return Step(connection, job)


def _check_text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{field} is no text")
    value.encode()  # raises for half a character, which JSON can hold
    return value


def readable(flow: str | None) -> Flow:
    """As ``read``; text that is no flow is one after which nothing follows."""
    try:
        return read(flow)
    except InvalidPayload:
        return Flow()


def _filled(step: Step, result: str, error: str, limit: int) -> Step:
    if not has_slot(step.job.payload):
        return step
    try:
        return _filled_payload(step, result, error, limit)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return step  # it has no payload, as it will say when it has its turn


def _filled_payload(step: Step, result: str, error: str, limit: int) -> Step:
    if not error:
        try:
            return step._replace(job=step.job._replace(payload=fill(step.job.payload, result, limit)))
        except InvalidPayload as too_long:
            error = str(too_long)
    reason = f"The result of the step before is missing. {error}"
    payload = fill_in_vain(step.job.payload, reason)
    return step._replace(job=step.job._replace(payload=payload, max_attempts=1))


def _masking(step: Step, is_secret: Callable[[str], bool]) -> Step:
    """What came with the result has secrets of its own, by their keys: nobody knew them at the dispatch."""
    if step.job.name == SPREAD:
        return step
    try:
        args, kwargs = decode(step.job.payload, step.job.format)
    except InvalidPayload:  # the result is missing, and the payload says so
        return step
    known = [tuple(path) for path in json.loads(step.job.masked or "[]")]
    found = secret_paths(args, kwargs, (), is_secret)
    masked = list(dict.fromkeys([*known, *found]))
    return step._replace(job=step.job._replace(masked=json.dumps(masked) if masked else ""))


def _here(step: Step, connection: str, queue: str, rank: int) -> NewJob:
    """The job that can be stored on ``connection`` for a step: itself, or the relay that carries it to its own."""
    if step.connection == connection:
        return step.job
    payload = encode([json.dumps(write_step(step))], {}, (), NO_LIMIT)
    return NewJob(
        id=new_job_id(),
        name=RELAY,
        queue=queue,
        payload=payload,
        format=FORMAT,
        rank=rank,
        max_attempts=RELAY_ATTEMPTS,
        masked=MASKED_ARGUMENTS,
        flow=_catch_of(step),
    )


def _catch_of(step: Step) -> str | None:
    """What is dispatched when a relay becomes a dead letter: the catch of the step that it carries, of its chain."""
    rest = step.job.flow
    if step.job.name == SPREAD:
        try:
            (_batch, rest), _kwargs = decode(step.job.payload, step.job.format)
        except ValueError:  # the payload is none: to be found out when it has its turn
            rest = None
    return Flow(catch=readable(rest).catch).write()


_TEXTS = ("name", "queue", "payload", "metadata", "masked")
_NUMBERS = {
    "format": int,
    "rank": int,
    "max_attempts": int | None,
    "retry_for": int | float | None,
    "delay": int | float | None,
}
_DURATIONS = ("delay", "retry_for")
_NO_DEFAULT = object()
NO_LIMIT = 2**62  # for what was within the limit when it was dispatched, and an error, which is short
