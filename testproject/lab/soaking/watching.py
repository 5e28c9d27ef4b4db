"""The drivers of a soak's workers: the package's own, which also tell the history of every reservation.

They write what the store has answered, and ask nothing by themselves: the checker needs to know who held what, and from
when to when, without trusting the rows.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from django_jobqueue.drivers import Driver
from django_jobqueue.drivers.database import DatabaseDriver
from django_jobqueue.jobs.payloads import decode
from django_jobqueue.jobs.records import Complete, Fail, Rescued, Reservation, Reserved, ReserveLimit, Settlement

from . import history

_reserved = threading.local()


def token_of(job_id: UUID) -> str:
    """The token by which the loop of this thread holds a job."""
    return str(_reserved.tokens[job_id])


class Watching(Driver):
    """Before a driver in the order of classes."""

    def reserve(self, queue: str, worker: str, limit: ReserveLimit, **options: Any) -> Reserved:
        asked = history.now()
        reserved = super().reserve(queue, worker, limit, **options)
        if reserved.jobs:
            _reserved.tokens = {job.id: job.token for job in reserved.jobs}
            first = reserved.jobs[0]
            jobs = [(_key(job), job.attempt) for job in reserved.jobs]
            history.write(
                history.Reserved(
                    str(first.token), worker, history.pid_of(worker), first.alone, jobs, asked, history.now()
                )
            )
        return reserved

    def renew(self, reservations: Collection[Reservation], **options: Any) -> set[UUID]:
        asked = history.now()
        lost = super().renew(reservations, **options)
        held = [job for job in reservations if job.id not in lost]
        history.write(history.Renewed(_named(held), asked, history.now()))
        return lost

    def hand_back(self, reservations: Collection[Reservation]) -> set[UUID]:
        asked = history.now()
        history.write(history.Settling(_named(reservations), asked))
        owned = super().hand_back(reservations)
        jobs = [(_key(job), str(job.token), job.id in owned) for job in reservations]
        history.write(history.HandedBack(jobs, asked, history.now()))
        return owned

    def rescue(self, **options: Any) -> list[Rescued]:
        rescued = super().rescue(**options)
        if rescued:
            history.write(history.Rescued([(str(job.id), job.worker) for job in rescued], history.now()))
        return rescued

    def settle(self, settlements: Sequence[Settlement], **options: Any) -> set[UUID]:
        asked = history.now()
        history.write(history.Settling(_named(item.reservation for item in settlements), asked))
        joined = self.in_transaction()
        owned = super().settle(settlements, **options)
        jobs = [
            (_key(item.reservation), str(item.reservation.token), _how(item), item.reservation.id in owned)
            for item in settlements
        ]
        history.write(history.Settled(jobs, joined, asked, history.now()))
        return owned


class WatchedDriver(Watching, DatabaseDriver):
    """The database's."""


def _how(settlement: Settlement) -> history.How:
    if isinstance(settlement, Complete):
        return "complete"
    return "fail" if isinstance(settlement, Fail) else "release"


def _named(reservations: Iterable[Reservation]) -> list[tuple[str, str]]:
    return [(_key(job), str(job.token)) for job in reservations]


def _key(job: Reservation) -> str:
    args, _ = decode(job.payload, job.format)
    return str(args[0])
