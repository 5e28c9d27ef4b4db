"""Settings of the demo: a SQLite file and every other file in one folder of its own."""

from __future__ import annotations

import os
from pathlib import Path

from testproject.settings import *  # noqa: F403
from testproject.settings import BASE_DIR, mail_files, sqlite

DEMO_FOLDER = Path(os.environ.get("DEMO_FOLDER") or BASE_DIR / "demo_data").resolve()

DATABASES = {"default": sqlite(DEMO_FOLDER / "db.sqlite3", DEMO_FOLDER / "test.sqlite3")}
MEDIA_ROOT = DEMO_FOLDER / "media"
MAIL_FOLDER = DEMO_FOLDER / "mail"
SUPPLIER_FOLDER = DEMO_FOLDER / "suppliers"
REPORT_FOLDER = DEMO_FOLDER / "reports"
globals().update(mail_files(MAIL_FOLDER))

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    # The demo tells of the declined card itself.
    "loggers": {"django.request": {"level": "ERROR"}},
}
