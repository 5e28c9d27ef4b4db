"""Chains: calls of which each begins when the one before has succeeded.

All steps are bound and encoded, and have their ids, before the first statement; then one job is stored, with the
others as its flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from asgiref.sync import sync_to_async

from ..conf import get_settings
from ..exceptions import InvalidOption, InvalidPayload
from ..jobs.flows import Flow, Step
from ..jobs.payloads import with_slots
from . import relay
from .dispatch import Prepared, store
from .handler import Call


class Composite:
    """What may be a step of a chain beside a call: a batch."""

    __slots__ = ()

    def as_step(self) -> tuple[Prepared, UUID]:
        """The job that has its turn for it, and the id by which it is known."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class DispatchedChain:
    """What the dispatch of a chain did: the ids of its steps, in order, of which the first is stored as a job.

    That of a batch is the batch's. ``connection`` is that of all steps, None where they are on several.
    """

    ids: tuple[UUID, ...]
    stored: bool
    connection: str | None


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps that run one after the other; made by ``chain()``."""

    steps: tuple[Call | Composite, ...]
    catching: Call | None = None

    def catch(self, call: Call) -> Chain:
        """The same chain with a job that is stored, once, when a step becomes a dead letter.

        PREVIOUS in its arguments stands for the error: a dictionary with ``id``, ``name``, ``exception_class`` and
        ``message`` of the job that failed.
        """
        return replace(self, catching=checked(call))

    def dispatch(self) -> DispatchedChain:
        """Store the chain; raises InvalidPayload, or UnknownJob, for any of its steps before anything is stored."""
        prepared, steps = self.prepare()
        aliases = {connection for connection, _id in steps}
        ids = tuple(step_id for _connection, step_id in steps)
        stored = store(prepared).stored
        return DispatchedChain(ids, stored, prepared.connection if len(aliases) == 1 else None)

    async def adispatch(self) -> DispatchedChain:
        """``dispatch`` for async code, on the thread whose transaction sync code sees."""
        return await sync_to_async(self.dispatch)()

    def prepare(self, batch: UUID | None = None) -> tuple[Prepared, list[tuple[str, UUID]]]:
        """The first step with the others as its flow, and the connection and id of each.

        ``batch`` is the one that the chain belongs to.
        """
        made = [_made(part, is_first=index == 0) for index, part in enumerate(self.steps)]
        first, *others = (Step(item.connection, item.job) for item, _id in made)
        if batch is not None:
            self._check_member(first, others)
        rest = Flow(tuple(others), None if self.catching is None else step_of(self.catching), batch)
        limit = get_settings().payload_limit
        size = len(rest.write() or "")
        if size > limit:
            raise InvalidPayload(
                f"The steps of the chain after its first take {size} bytes; PAYLOAD_LIMIT is {limit}. Store the data "
                "and pass its key."
            )
        begun = first.before(rest)
        if len(begun.job.payload) > limit:
            raise InvalidPayload(
                f"The batch that the chain begins with takes {len(begun.job.payload)} bytes; PAYLOAD_LIMIT is {limit}. "
                "Store the data and pass its key, or dispatch the batch by itself."
            )
        begins = Prepared(*begun, after_commit=made[0][0].after_commit)
        return begins, [(item.connection, part_id) for item, part_id in made]

    def _check_member(self, first: Step, others: Sequence[Step]) -> None:
        """A member of a batch, which lives on one connection, and whose steps take turns as one job."""
        elsewhere = [step.connection for step in others if step.connection != first.connection]
        if elsewhere:
            raise InvalidOption(
                f"A chain in a batch has a step on the connection {elsewhere[0]!r} and one on {first.connection!r}; "
                "give its steps one connection."
            )
        if any(isinstance(part, Composite) for part in self.steps):
            raise InvalidOption(
                "A chain in a batch has a batch among its steps; add its jobs to the outer one instead."
            )


def chain(*calls: Call | Composite) -> Chain:
    """Calls, ``handler.s(...)``, and batches, of which each runs when the one before has succeeded.

    PREVIOUS in the arguments of one stands for what the one before returned.
    """
    if not calls:
        raise InvalidOption("chain() takes at least one call, such as send_receipt.s(7).")
    return Chain(tuple(call if isinstance(call, Composite) else checked(call) for call in calls))


def checked(call: object) -> Call:
    if not isinstance(call, Call):
        raise InvalidOption(f"Chains and batches take calls such as send_receipt.s(7), not {call!r}.")
    return call


def step_of(call: Call) -> Step:
    """A call that runs later, in whose arguments PREVIOUS may stand."""
    prepared = Call(call.target, with_slots(call.args), with_slots(call.kwargs)).prepare()
    return Step(prepared.connection, prepared.job)


def _made(part: Call | Composite, *, is_first: bool) -> tuple[Prepared, UUID]:
    if isinstance(part, Composite):
        return part.as_step()
    prepared = part.prepare() if is_first else Prepared(*step_of(part))
    return prepared, prepared.job.id


__all__ = ["Chain", "Composite", "DispatchedChain", "chain", "relay"]  # whoever may dispatch a chain can run its relays
