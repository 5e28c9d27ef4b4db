"""What the page of one row shows; the templates only lay it out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ..jobs.definition import Definition
from ..jobs.errors import MAX_MESSAGE, mask
from ..jobs.flows import readable
from ..jobs.records import READY, RESERVED, SCHEDULED
from ..jobs.registry import registry
from .acts import handlers_are_broken, is_readable
from .attempts import MAX_BRIEF_MESSAGE, Timeline, brief, show_timeline
from .base import may_view_payload
from .labels import attempts_label
from .moments import full_time
from .values import Secrecy, plain, show_metadata, show_payload

LATE_AFTER = timedelta(seconds=60)
# Of a chain that is longer, a number says how many are left out.
MOST_STEPS = 10

Fact = tuple[str, Any]


def failed_job_detail(request: HttpRequest, row: Any, *, may_retry: bool, may_forget: bool) -> dict[str, Any]:
    broken = handlers_are_broken()
    definition = registry.find(row.name)
    common, secrets = _common(request, row, definition)
    limit = MAX_MESSAGE if common["may_view_payload"] else MAX_BRIEF_MESSAGE
    facts: list[Fact] = [
        (_("State"), format_html('<span class="jobqueue-failed">✖ {}</span>', _failed_state(row))),
        (_("Job"), plain(row.name)),
        (_("Number and id"), format_html("#{} <code>{}</code>", row.pk, row.job_id)),
        (
            _("Error"),
            format_html(
                "<strong>{}</strong> {}",
                plain(row.exception_class),
                brief(mask(row.exception_message, secrets), limit),
            ),
        ),
        (_("Queue"), plain(row.queue)),
        (_("Connection"), plain(row.connection)),
        (_("Priority"), -row.rank),
        (_("Dispatched"), full_time(row.created_at, row.store_now)),
        (_("Failed"), full_time(row.failed_at, row.store_now)),
        (_("Retried before"), row.retries),
        *_what_follows(row),
    ]
    can_run = definition is not None and is_readable(row) and not broken
    return {
        **common,
        "facts": facts,
        "warning": _warning(row, definition, broken),
        "can_retry": may_retry and can_run,
        "can_forget": may_forget,
    }


def job_detail(request: HttpRequest, row: Any) -> dict[str, Any]:
    broken = handlers_are_broken()
    definition = registry.find(row.name)
    common, _secrets = _common(request, row, definition)
    facts: list[Fact] = [
        (_("State"), state_label(row)),
        (_("Job"), plain(row.name)),
        (_("Id"), format_html("<code>{}</code>", row.id)),
        (_("Queue"), plain(row.queue)),
        (_("Priority"), -row.rank),
        (_("Attempts"), attempts_label(row.attempts, row.max_attempts)),
        (_("Crashes"), row.crashes),
        (_("Retried before"), row.retries),
        (_("Dispatched"), full_time(row.created_at, row.store_now)),
        (_("Available"), full_time(row.available_at, row.store_now)),
    ]
    if row.retry_until is not None:
        facts.append((_("Attempts start until"), full_time(row.retry_until, row.store_now)))
    if row.state == RESERVED:
        facts += [
            (_("Worker"), plain(row.worker)),
            (_("Reserved until"), full_time(row.reserved_until, row.store_now)),
        ]
    facts += _what_follows(row)
    return {**common, "facts": facts, "warning": _warning(row, definition, broken)}


def _common(request: HttpRequest, row: Any, definition: Definition | None) -> tuple[dict[str, Any], list[str]]:
    """What both pages have, and the hidden values, which are masked in texts."""
    with_values = may_view_payload(request)
    secrecy = Secrecy(row.masked, definition)
    secrets = secrecy.values(row.payload, row.format, definition.parameter_names if definition is not None else ())
    timeline: Timeline = show_timeline(row.errors, row.store_now, secrets, with_tracebacks=with_values)
    return {
        "may_view_payload": with_values,
        "timeline": timeline,
        "payload": show_payload(row.payload, row.format, secrecy, definition, with_values=with_values),
        "metadata": show_metadata(row.metadata, secrecy, with_values=with_values),
    }, secrets


def _what_follows(row: Any) -> list[Fact]:
    """The names of the next steps of its chain, and the batch of which it is a member; never their arguments."""
    flow = readable(row.flow)
    facts: list[Fact] = []
    if flow.steps:
        names = [plain(step.job.name) for step in flow.steps[:MOST_STEPS]]
        if len(flow.steps) > MOST_STEPS:
            names.append(_("%(count)s more") % {"count": len(flow.steps) - MOST_STEPS})
        facts.append((_("Then"), " → ".join(names)))
    if flow.batch is not None:
        facts.append((_("Batch"), format_html("<code>{}</code>", flow.batch)))
    return facts


def _failed_state(row: Any) -> str:
    return _("failed for good, attempt %(attempts)s") % {"attempts": attempts_label(row.attempts, row.max_attempts)}


def state_label(row: Any) -> Any:
    """The state by its word; a job that should have been taken a while ago is late, which may come with any state."""
    word = row.get_state_display()
    if not is_late(row):
        return word
    return format_html('{} <span class="jobqueue-late">▲ {}</span>', word, _("late"))


def is_late(row: Any) -> bool:
    since = {SCHEDULED: row.available_at, READY: row.ready_at}.get(row.state)
    return since is not None and row.store_now - since > LATE_AFTER


def _warning(row: Any, definition: Definition | None, broken: bool) -> str:
    if broken:
        return _("A job module cannot be imported, so nothing can be retried here. The log says why.")
    if definition is None:
        return _("No handler has the name of this job: it would fail again. Restore the handler, or forget the job.")
    if not is_readable(row):
        return _("The payload cannot be read: the job would fail again.")
    return ""
