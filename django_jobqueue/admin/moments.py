"""Moments of the store's clock as a person reads them: in the admin's time zone, whether ``USE_TZ`` is on or off."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import avoid_wrapping, format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

MINUTE = timedelta(minutes=1)


def local(moment: datetime) -> datetime:
    """An aware datetime in the zone of the person who looks; at the ends of time, where no zone fits, in UTC."""
    zone = timezone.get_current_timezone() if settings.USE_TZ else timezone.get_default_timezone()
    try:
        return moment.astimezone(zone)
    except (OverflowError, ValueError):
        return moment


def absolute(moment: datetime) -> str:
    shown = local(moment)
    return f"{date_format(shown, 'DATETIME_FORMAT')} {shown.tzname() or ''}".rstrip()


def relative(moment: datetime, now: datetime) -> str:
    if moment > now:
        return _("in %(duration)s") % {"duration": _distance(now, moment)}
    return _("%(duration)s ago") % {"duration": _distance(moment, now)}


def _distance(earlier: datetime, later: datetime) -> str:
    """As Django says it, and in seconds below its smallest unit."""
    if later - earlier >= MINUTE:
        return timesince(earlier, later)
    seconds = (later - earlier).seconds
    return avoid_wrapping(ngettext("%d second", "%d seconds", seconds) % seconds)


def relative_time(moment: datetime | None, now: datetime) -> SafeString | str:
    """``<time>`` with the distance as its text, the local time as its title and ISO 8601 for machines."""
    if moment is None:
        return ""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', moment.isoformat(), absolute(moment), relative(moment, now)
    )


def full_time(moment: datetime | None, now: datetime) -> SafeString | str:
    """``<time>`` with the local time and the distance as its text."""
    if moment is None:
        return ""
    return format_html(
        '<time datetime="{}">{}</time> ({})', moment.isoformat(), absolute(moment), relative(moment, now)
    )
