"""Filters whose choices cost nothing to list, and whose conditions an index serves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..jobs.records import BLOCKED, READY, RESERVED, SCHEDULED
from ..jobs.times import microseconds
from ..models import StoreNow
from .base import queue_database
from .choices import failed_values, waiting_queues
from .values import plain

MOST_CHOICES = 30
MAX_LABEL = 60
WHEN = "when"

HOUR = 3_600
DAY = 24 * HOUR


class ValueFilter(admin.SimpleListFilter):
    """The exact values of one column, few enough for a sidebar; others are found by a search."""

    column: ClassVar[str]

    def known(self, database: str) -> list[str]:
        return failed_values(database, self.column)

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        values = self.known(queue_database())[:MOST_CHOICES]
        chosen = self.value()
        if chosen and chosen not in values:
            values = [chosen, *values]
        return [(value, _label(value)) for value in values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        if "\x00" in value:  # which PostgreSQL refuses with an error
            return queryset.none()
        return queryset.filter(**{self.column: value})


class FailedQueueFilter(ValueFilter):
    title = _("queue")
    parameter_name = column = "queue"


class JobNameFilter(ValueFilter):
    title = _("job")
    parameter_name = column = "name"


class ErrorFilter(ValueFilter):
    title = _("error")
    parameter_name = "error"
    column = "exception_class"


class QueueFilter(ValueFilter):
    title = _("queue")
    parameter_name = column = "queue"

    def known(self, database: str) -> list[str]:
        return waiting_queues(database)


class StateFilter(admin.SimpleListFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return [(SCHEDULED, _("scheduled")), (READY, _("ready")), (RESERVED, _("reserved")), (BLOCKED, _("blocked"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(state=value) if value in {SCHEDULED, READY, RESERVED, BLOCKED} else queryset


class WhenFilter(admin.SimpleListFilter):
    """By the store's clock."""

    title = _("when it failed")
    parameter_name = WHEN
    _seconds: ClassVar = {"hour": HOUR, "day": DAY, "week": 7 * DAY}

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return [
            ("hour", _("in the last hour")),
            ("day", _("in the last 24 hours")),
            ("week", _("in the last 7 days")),
            ("older", _("more than 7 days ago")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value == "older":
            return queryset.filter(failed_at__lt=_before(7 * DAY))
        if value in self._seconds:
            return queryset.filter(failed_at__gte=_before(self._seconds[value]))
        return queryset


def _before(seconds: float) -> StoreNow:
    return StoreNow(-microseconds(seconds))


def _label(value: str) -> str:
    """The end of a long name says more than its beginning."""
    return plain(value if len(value) <= MAX_LABEL else f"…{value[1 - MAX_LABEL :]}")
