"""``{% job_progress dispatched %}``: a native progress bar, true when the page is made, and kept so by a script.

``{% jobqueue_progress_js %}``, once a page, is that script: a file of its own, so that a strict policy allows it.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..operations.progress import Followed, how_far, progress_token

register = template.Library()


@register.inclusion_tag("django_jobqueue/progress.html")
def job_progress(of: Followed | str) -> dict[str, Any]:
    """The bar of what ``progress_token`` takes, or of a token; empty for one that has expired."""
    token = of if isinstance(of, str) else progress_token(of)
    return {"found": how_far(token), "token": token}


@register.simple_tag
def jobqueue_progress_js() -> SafeString:
    return format_html('<script src="{}" defer></script>', static("django_jobqueue/progress.js"))
