"""Queues whose jobs are no rows: how many wait, and the first of each; a store that is out of reach breaks no page."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from django.core.exceptions import ImproperlyConfigured
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..drivers import Driver, connections
from ..jobs.records import JobRecord, QueueSize
from .labels import attempts_label, job_label
from .values import plain

#: Of each connection; commands show all.
MOST_QUEUES = 20
FIRST_JOBS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstJob:
    label: SafeString
    attempts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    name: str
    size: QueueSize
    oldest: timedelta | None
    first: list[FirstJob]


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """One connection; ``problem`` says why there are no queues."""

    connection: str
    kind: str
    queues: list[Queue] = field(default_factory=list)
    more: int = 0
    problem: str = ""


def has_rows(connection: str) -> bool:
    """Whether a job of this connection has a page of its own."""
    try:
        return connection in connections and connections[connection].supports_transactions
    except ImproperlyConfigured:
        return False


def elsewhere() -> list[Elsewhere]:
    """Of every connection that other processes see and the list of jobs does not show."""
    try:
        drivers = connections.all()
    except ImproperlyConfigured:
        return []  # a system check says so
    return [_look(driver) for driver in drivers if driver.is_shared and not driver.supports_transactions]


def _look(driver: Driver) -> Elsewhere:
    try:
        sizes = {queue: size for queue, size in driver.sizes().items() if size.waiting or size.reserved}
        queues = [_queue(driver, name, sizes[name]) for name in list(sizes)[:MOST_QUEUES]]
    except driver.outages as error:
        problem = _("It is not reachable: %(error)s") % {"error": plain(" ".join(str(error).split()))}
        return Elsewhere(connection=driver.alias, kind=driver.kind, problem=problem)
    return Elsewhere(connection=driver.alias, kind=driver.kind, queues=queues, more=len(sizes) - len(queues))


def _queue(driver: Driver, name: str, size: QueueSize) -> Queue:
    oldest = None if size.oldest is None else timedelta(seconds=round(size.oldest))
    first = [_first(record) for record in driver.peek(name, limit=FIRST_JOBS)]
    return Queue(name=plain(name), size=size, oldest=oldest, first=first)


def _first(record: JobRecord) -> FirstJob:
    return FirstJob(
        label=job_label(record.name, "", record.id),
        attempts=attempts_label(record.attempts, record.max_attempts),
    )
