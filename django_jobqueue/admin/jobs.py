"""What is waiting or running: to look at, not to change."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import Job
from .base import QueueModelAdmin
from .details import job_detail, state_label
from .elsewhere import elsewhere
from .filters import QueueFilter, StateFilter
from .labels import attempts_label, job_label
from .moments import relative_time
from .search import as_uuid


class JobAdmin(QueueModelAdmin[Job]):
    list_display = ("job", "state_shown", "queue", "priority", "attempt", "available", "worker")
    list_filter = (StateFilter, QueueFilter)
    search_fields = ("id",)  # says that there is a search; get_search_results says how
    search_help_text = _("The whole id of a job.")
    actions = None
    change_list_template = "admin/django_jobqueue/job/change_list.html"

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"elsewhere": elsewhere(), **(extra_context or {})})

    @admin.display(description=_("job"))
    def job(self, row: Job) -> SafeString:
        return job_label(row.name, "", row.id)

    @admin.display(description=_("state"))
    def state_shown(self, row: Any) -> Any:
        return state_label(row)

    @admin.display(description=_("priority"))
    def priority(self, row: Job) -> int:
        return -row.rank

    @admin.display(description=_("attempt"))
    def attempt(self, row: Job) -> str:
        return attempts_label(row.attempts, row.max_attempts)

    @admin.display(description=_("available"))
    def available(self, row: Any) -> SafeString | str:
        return relative_time(row.available_at, row.store_now)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        if not search_term.strip():
            return queryset, False
        job_id = as_uuid(search_term.strip())
        return (queryset.none() if job_id is None else queryset.filter(pk=job_id)), False

    def detail(self, request: HttpRequest, row: Job) -> dict[str, Any]:
        return job_detail(request, row)
