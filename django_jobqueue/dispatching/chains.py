"""Chains: calls of which each begins when the one before has succeeded.

All steps are bound and encoded, and have their ids, before the first statement; then one job is stored, with the
others as its flow.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class DispatchedChain:
    """What the dispatch of a chain did: the ids of its steps, in order, of which the first is stored as a job."""

    ids: tuple[UUID, ...]
    stored: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps that run one after the other; made by ``chain()``."""

    steps: tuple[Call, ...]
    catching: Call | None = None

    def catch(self, call: Call) -> Chain:
        """The same chain with a job that is stored, once, when a step becomes a dead letter.

        PREVIOUS in its arguments stands for the error: a dictionary with ``id``, ``name``, ``exception_class`` and
        ``message`` of the job that failed.
        """
        return replace(self, catching=checked(call))

    def dispatch(self) -> DispatchedChain:
        """Store the chain; raises InvalidPayload, or UnknownJob, for any of its steps before anything is stored."""
        prepared, ids = self.prepare()
        return DispatchedChain(ids, store(prepared).stored)

    async def adispatch(self) -> DispatchedChain:
        """``dispatch`` for async code, on the thread whose transaction sync code sees."""
        return await sync_to_async(self.dispatch)()

    def prepare(self, batch: UUID | None = None) -> tuple[Prepared, tuple[UUID, ...]]:
        """The first step with the others as its flow, and the ids of all; ``batch`` is the one that it belongs to."""
        first = self.steps[0].prepare()
        steps = tuple(step_of(call) for call in self.steps[1:])
        elsewhere = [step.connection for step in steps if step.connection != first.connection]
        if batch is not None and elsewhere:
            raise InvalidOption(
                f"A chain in a batch has a step on the connection {elsewhere[0]!r} and one on {first.connection!r}; "
                "give its steps one connection."
            )
        flow = Flow(steps, None if self.catching is None else step_of(self.catching), batch).write()
        limit = get_settings().payload_limit
        if flow is not None and len(flow) > limit:
            raise InvalidPayload(
                f"The steps of the chain after its first take {len(flow)} bytes; PAYLOAD_LIMIT is {limit}. Store the "
                "data and pass its key."
            )
        ids = (first.job.id, *(step.job.id for step in steps))
        return Prepared(first.connection, first.job._replace(flow=flow)), ids


def chain(*calls: Call) -> Chain:
    """Calls, ``handler.s(...)``, of which each runs when the one before has succeeded.

    PREVIOUS in the arguments of one stands for what the one before returned.
    """
    if not calls:
        raise InvalidOption("chain() takes at least one call, such as send_receipt.s(7).")
    return Chain(tuple(checked(call) for call in calls))


def checked(call: object) -> Call:
    if not isinstance(call, Call):
        raise InvalidOption(f"Chains and batches take calls such as send_receipt.s(7), not {call!r}.")
    return call


def step_of(call: Call) -> Step:
    """A call that runs later, in whose arguments PREVIOUS may stand."""
    prepared = Call(call.target, with_slots(call.args), with_slots(call.kwargs)).prepare()
    return Step(prepared.connection, prepared.job)


__all__ = ["Chain", "DispatchedChain", "chain", "relay"]  # whoever may dispatch a chain can run its relays
