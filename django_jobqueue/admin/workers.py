"""Who works: to look at, not to change. The state is the age of the last heartbeat, never a stored word."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..jobs.workers import state_after
from ..models import Worker
from .base import QueueModelAdmin
from .moments import full_time, relative_time
from .values import plain


class WorkerAdmin(QueueModelAdmin[Worker]):
    heavy_columns: ClassVar[tuple[str, ...]] = ()

    list_display = (
        "worker",
        "state",
        "queues_shown",
        "workers",
        "processed",
        "failed",
        "memory_shown",
        "version",
        "started",
        "heartbeat",
    )
    ordering: ClassVar[tuple[str, ...]] = ("name", "started_at")
    actions = None
    change_form_template = "admin/django_jobqueue/facts.html"

    @admin.display(description=gettext_lazy("worker"))
    def worker(self, row: Worker) -> str:
        return plain(str(row))

    @admin.display(description=gettext_lazy("state"))
    def state(self, row: Any) -> SafeString | str:
        return state_label(row)

    @admin.display(description=gettext_lazy("queues"))
    def queues_shown(self, row: Worker) -> str:
        return _queues(row)

    @admin.display(description=gettext_lazy("memory"))
    def memory_shown(self, row: Worker) -> str:
        return _memory(row)

    @admin.display(description=gettext_lazy("started"))
    def started(self, row: Any) -> SafeString | str:
        return relative_time(row.started_at, row.store_now)

    @admin.display(description=gettext_lazy("last heartbeat"))
    def heartbeat(self, row: Any) -> SafeString | str:
        return relative_time(row.heartbeat_at, row.store_now)

    def detail(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        facts = [
            (_("State"), state_label(row)),
            (_("Name"), plain(row.name)),
            (_("Host"), plain(row.host)),
            (_("Process"), row.pid),
            (_("Id"), format_html("<code>{}</code>", row.id)),
            (_("Embedded in a web server"), _("yes") if row.is_embedded else _("no")),
            (_("Queues"), _queues(row)),
            (_("Threads"), row.workers),
            (_("Version"), plain(row.version)),
            (_("Memory"), _memory(row)),
            (_("Processed"), row.processed),
            (_("Released"), row.released),
            (_("Failed"), row.failed),
            (_("Lost"), row.lost),
            (_("Started"), full_time(row.started_at, row.store_now)),
            (_("Last heartbeat"), full_time(row.heartbeat_at, row.store_now)),
        ]
        return {"facts": facts}


def state_label(row: Any) -> SafeString | str:
    """The state by its word and by a shape."""
    state = state_after((row.store_now - row.heartbeat_at).total_seconds())
    if state == "alive":
        return _("alive")
    if state == "late":
        return format_html('<span class="jobqueue-late">▲ {}</span>', _("late"))
    return format_html('<span class="jobqueue-failed">✖ {}</span>', _("lost"))


def _queues(row: Worker) -> str:
    return _("every queue") if row.queues == "*" else plain(row.queues.replace(",", ", "))


def _memory(row: Worker) -> str:
    return "" if row.memory is None else filesizeformat(row.memory)
