"""What became of dead letters, in words; each message names the cure."""

from __future__ import annotations

from collections import Counter

from django.contrib import messages
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..models import FailedJob
from .acts import Fate
from .values import plain

Report = tuple[int, str]

MOST_NUMBERS = 10


def of_one(row: FailedJob, fate: Fate, job_url: str) -> Report:
    names = {"number": row.pk, "name": plain(row.name), "queue": plain(row.queue)}
    if fate == "retried":
        text = _("The failed job #%(number)s (%(name)s) was retried: it is back on the queue “%(queue)s”.") % names
        if job_url:
            link = format_html('<a class="jobqueue-link" href="{}">{}</a>', job_url, _("See the job."))
            return messages.SUCCESS, format_html("{} {}", text, link)
        return messages.SUCCESS, text
    if fate == "forgotten":
        return messages.SUCCESS, _("The failed job #%(number)s (%(name)s) was forgotten.") % names
    if fate == "gone":
        return messages.WARNING, gone(str(row.pk))
    return messages.ERROR, f"#{row.pk}: {_why_not(fate)}"


def gone(number: str) -> str:
    return _("The failed job #%(number)s is gone: already retried, or forgotten.") % {"number": number}


def of_many(fates: dict[int, Fate]) -> list[Report]:
    counts = Counter(fates.values())
    reports: list[Report] = []
    if done := counts["retried"]:
        reports.append((messages.SUCCESS, ngettext("Retried %d failed job.", "Retried %d failed jobs.", done) % done))
    if done := counts["forgotten"]:
        text = ngettext("Forgot %d failed job.", "Forgot %d failed jobs.", done) % done
        reports.append((messages.SUCCESS, text))
    if lost := counts["gone"]:
        text = ngettext(
            "Skipped %d failed job that is gone: already retried, or forgotten.",
            "Skipped %d failed jobs that are gone: already retried, or forgotten.",
            lost,
        )
        reports.append((messages.WARNING, text % lost))
    for fate in counts:
        if fate not in {"retried", "forgotten", "gone"}:
            reports.append((messages.ERROR, f"{_numbers(fates, fate)}: {_why_not(fate)}"))
    return reports or [(messages.WARNING, _("Nothing to do: the selected failed jobs are gone."))]


def too_many(limit: int, command: str) -> str:
    return _(
        "More than %(limit)d failed jobs are selected, so nothing was done. "
        "Select fewer, or run “manage.py %(command)s all” for all of them."
    ) % {"limit": limit, "command": command}


def _numbers(fates: dict[int, Fate], wanted: Fate) -> str:
    numbers = [f"#{number}" for number, fate in fates.items() if fate == wanted]
    return ", ".join(numbers[:MOST_NUMBERS]) + (" …" if len(numbers) > MOST_NUMBERS else "")


def _why_not(fate: Fate) -> str:
    if fate == "unknown job":
        return _("not retried, since no handler has this name. Restore the handler, or forget the job.")
    if fate == "unreadable":
        return _("not retried, since the payload cannot be read, so it would only fail again.")
    if fate == "no connection":
        return _("nothing was done, since the settings lack its queue connection.")
    if fate == "broken jobs":
        return _("not retried, since a job module cannot be imported. The log says why.")
    return _("nothing was done, since its store refuses, or is out of reach. The log says why.")
