#!/usr/bin/env python
"""Run Django's commands for the test project."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    """Choose the settings and hand over to Django."""
    if sys.argv[1:2] == ["demo"]:
        # Also when the environment names other settings: the demo empties its database.
        os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.demo_settings"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
