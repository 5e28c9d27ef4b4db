"""Short texts of the lists."""

from __future__ import annotations

from uuid import UUID

from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..conf import get_settings
from ..operations.failed_jobs import SHOWN_ENDING
from .values import plain

KEPT_PARTS = 2


def job_label(name: str, number: str, job_id: UUID) -> SafeString:
    """The end of a job's path, with the whole of it as its title, and what people name it by."""
    return format_html(
        '<span title="{} {}">{}</span> <span class="jobqueue-id">{} {}</span>',
        plain(name),
        job_id,
        short_name(name),
        number,
        str(job_id)[-SHOWN_ENDING:],
    )


def short_name(name: str) -> str:
    """Without the folders of a module: "shop.jobs.send_receipt" is "jobs.send_receipt"."""
    return plain(".".join(name.split(".")[-KEPT_PARTS:]))


def last_part(path: str) -> str:
    return plain(path.rpartition(".")[2] or path)


def attempts_label(used: int, limit: int | None) -> str:
    """Of a job that was given no limit, the one of the settings, unless a worker had a higher one."""
    limit = get_settings().max_attempts if limit is None else limit
    return f"{used}/{limit}" if used <= limit else str(used)
