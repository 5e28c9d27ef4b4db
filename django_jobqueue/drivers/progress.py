"""The contract of what keeps progress: the last report of each job, written by whoever still holds the job.

A report is a hint for people, and nothing depends on it. Each driver keeps the reports of its jobs beside them, unless
the settings name a cache for those of all connections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import ClassVar, TypeAlias
from uuid import UUID

from ..jobs.records import ProgressRecord, Report

#: Of ids and tokens, those whose reservation is still that one.
StillHeld: TypeAlias = Callable[[Collection[tuple[UUID, UUID]]], set[tuple[UUID, UUID]]]


class ProgressStore(ABC):
    """The reports of one connection."""

    #: Whether it can fail, or hang, while the queue's own store does not.
    is_apart: ClassVar[bool] = False

    @abstractmethod
    def write(self, reports: Sequence[Report], *, now: datetime | None = None) -> None:
        """Store reports, never in a caller's transaction; what was said under a lost reservation is left out."""

    @abstractmethod
    def get_many(self, job_ids: Sequence[UUID]) -> dict[UUID, ProgressRecord]:
        """The last report of each job that has one."""

    @abstractmethod
    def prune(self, *, older_than: float, limit: int, now: datetime | None = None) -> int:
        """Delete at most ``limit`` reports that are ``older_than`` seconds old, the oldest first; return how many."""

    def get(self, job_id: UUID) -> ProgressRecord | None:
        """The last report of a job, None when there is none."""
        return self.get_many([job_id]).get(job_id)


def said_by_holders(reports: Sequence[Report], still_held: StillHeld) -> list[Report]:
    """The reports without what was said under a reservation that is lost; asks only of those that name one."""
    said = [(one.id, one.token) for one in reports if one.token is not None]
    held = still_held(said) if said else set()
    return [one for one in reports if one.token is None or (one.id, one.token) in held]


class NoProgress(ProgressStore):
    """Of a driver that keeps no reports."""

    def write(self, reports: Sequence[Report], *, now: datetime | None = None) -> None:
        return

    def get_many(self, job_ids: Sequence[UUID]) -> dict[UUID, ProgressRecord]:
        return {}

    def prune(self, *, older_than: float, limit: int, now: datetime | None = None) -> int:
        return 0
