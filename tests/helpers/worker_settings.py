"""Settings of the worker processes that tests start: the test project's, with what the test gives as JSON."""

from __future__ import annotations

import json
import os

from testproject.settings import *  # noqa: F403
from testproject.settings import INSTALLED_APPS

SETTINGS_VARIABLE = "JOBQUEUE_TEST_SETTINGS"

DEBUG = False
INSTALLED_APPS = [*INSTALLED_APPS, "tests.helpers.work"]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {"django_jobqueue": {"handlers": ["stderr"], "level": "INFO", "propagate": False}},
}

globals().update(json.loads(os.environ.get(SETTINGS_VARIABLE, "{}")))
