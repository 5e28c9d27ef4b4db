"""Sphinx reads this; `tox -e docs` builds the pages, and a warning is an error."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _version() -> str:
    """The version of the package beside these pages; it is read, so that nothing has to be installed."""
    text = (ROOT / "django_jobqueue" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError("django_jobqueue/__init__.py has no __version__.")
    return found[1]


project = "django_jobqueue"
author = "django-jobqueue contributors"
project_copyright = author
version = release = _version()

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3  # so that links to a heading are checked

html_theme = "furo"
html_title = f"django_jobqueue {release}"
html_show_sphinx = False
