"""Dead letters: a list to work off, and a page for each with everything that is known of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import django
from django.contrib import admin, messages
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import FailedJob
from . import acts, reports
from .attempts import brief
from .base import ROWS_PER_PAGE, QueueModelAdmin, queue_database
from .details import failed_job_detail
from .elsewhere import has_rows
from .filters import WHEN, ErrorFilter, FailedQueueFilter, JobNameFilter, WhenFilter
from .labels import attempts_label, job_label, last_part
from .moments import relative_time
from .search import search_failed_jobs
from .values import plain

RETRY = "django_jobqueue.retry_failedjob"
FORGET = "django_jobqueue.delete_failedjob"

Act = Callable[[HttpRequest, QuerySet[FailedJob]], dict[int, acts.Fate]]


class FailedJobAdmin(QueueModelAdmin[FailedJob]):
    list_display = ("job", "error", "queue", "attempts_used", "failed")
    sortable_by = ("job", "failed")
    list_filter = (FailedQueueFilter, JobNameFilter, ErrorFilter, WhenFilter)
    search_fields = ("name",)  # says that there is a search; get_search_results says how
    search_help_text = _("Number, id or its end (6 characters or more), job name, or error class.")
    actions = ("retry_selected", "forget_selected")
    confirmation_template: ClassVar[str] = "admin/django_jobqueue/failedjob/confirm.html"

    # The list

    @admin.display(description=_("job"), ordering="name")
    def job(self, row: FailedJob) -> SafeString:
        return job_label(row.name, f"#{row.pk}", row.job_id)

    @admin.display(description=_("error"))
    def error(self, row: FailedJob) -> SafeString:
        return format_html(
            '<strong title="{}">{}</strong> {}',
            plain(row.exception_class),
            last_part(row.exception_class),
            brief(row.exception_message),
        )

    @admin.display(description=_("attempts"))
    def attempts_used(self, row: FailedJob) -> str:
        return attempts_label(row.attempts, row.max_attempts)

    @admin.display(description=_("failed"), ordering="failed_at")
    def failed(self, row: Any) -> SafeString | str:
        return relative_time(row.failed_at, row.store_now)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """By the number, which is the order of failing; a limit in time is served by the index of the time."""
        return ("-failed_at", "-id") if request.GET.get(WHEN) else ("-id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[FailedJob], search_term: str
    ) -> tuple[QuerySet[FailedJob], bool]:
        return search_failed_jobs(queryset, search_term, queue_database()), False

    # Permissions

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(RETRY)

    def has_forget_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(FORGET)

    # Acts on selected rows

    @admin.action(permissions=["retry"], description=_("Retry selected failed jobs"))
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[FailedJob]) -> None:
        self._act_on_page(request, queryset, acts.retry, "queue_retry")

    @admin.action(permissions=["forget"], description=_("Forget selected failed jobs"))
    def forget_selected(self, request: HttpRequest, queryset: QuerySet[FailedJob]) -> None:
        self._act_on_page(request, queryset, acts.forget, "queue_forget")

    def _act_on_page(self, request: HttpRequest, rows: QuerySet[FailedJob], act: Act, command: str) -> None:
        """A request is no place for a million rows: at most a page of them, fixed before the first is touched."""
        numbers = list(rows.order_by("pk").values_list("pk", flat=True)[: ROWS_PER_PAGE + 1])
        if len(numbers) > ROWS_PER_PAGE:
            self.message_user(request, reports.too_many(ROWS_PER_PAGE, command), messages.ERROR)
            return
        fates = act(request, self.get_queryset(request).filter(pk__in=numbers).order_by("pk"))
        for level, message in reports.of_many(fates):
            self.message_user(request, message, level)

    # Acts on one row, at addresses of their own

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<path:object_id>/retry/", wrap(self.retry_view), name="django_jobqueue_failedjob_retry"),
            path("<path:object_id>/forget/", wrap(self.forget_view), name="django_jobqueue_failedjob_forget"),
            *super().get_urls(),
        ]

    def retry_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._act_view(request, object_id, acts.retry, self.has_retry_permission(request))

    def forget_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._act_view(request, object_id, acts.forget, self.has_forget_permission(request))

    def _act_view(self, request: HttpRequest, object_id: str, act: Act, is_allowed: bool) -> HttpResponse:
        """POST acts; GET asks, which is also where a login leads that interrupted a POST."""
        if not (is_allowed and self.has_view_permission(request)):
            raise PermissionDenied
        if request.method not in {"GET", "HEAD", "POST"}:
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        row = self.get_object(request, unquote(object_id))
        if row is None:
            self.message_user(request, reports.gone(plain(unquote(object_id))), messages.WARNING)
        elif request.method != "POST":
            return self._confirmation(request, row, act)
        else:
            fate = act(request, self.get_queryset(request).filter(pk=row.pk)).get(row.pk, "gone")
            level, message = reports.of_one(row, fate, self._job_url(request, row))
            self.message_user(request, message, level)
        return HttpResponseRedirect(self._list_url(request))

    def _confirmation(self, request: HttpRequest, row: FailedJob, act: Act) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": _("Retry this failed job?") if act is acts.retry else _("Forget this failed job?"),
            "is_retry": act is acts.retry,
            "breadcrumbs_are_list": django.VERSION >= (6, 1),
            "object": row,
            "opts": self.opts,
            "media": self.media,
            "preserved_filters": self.get_preserved_filters(request),
        }
        return TemplateResponse(request, self.confirmation_template, context)

    def _list_url(self, request: HttpRequest) -> str:
        """The list as it was left."""
        url = reverse("admin:django_jobqueue_failedjob_changelist", current_app=self.admin_site.name)
        return add_preserved_filters({"preserved_filters": self.get_preserved_filters(request), "opts": self.opts}, url)

    def _job_url(self, request: HttpRequest, row: FailedJob) -> str:
        """Where a retried job is looked at, by those who may; one that is no row has no page."""
        if not (request.user.has_perm("django_jobqueue.view_job") and has_rows(row.connection)):
            return ""
        return reverse("admin:django_jobqueue_job_change", args=[row.job_id], current_app=self.admin_site.name)

    # One row

    def detail(self, request: HttpRequest, row: FailedJob) -> dict[str, Any]:
        return failed_job_detail(
            request, row, may_retry=self.has_retry_permission(request), may_forget=self.has_forget_permission(request)
        )
