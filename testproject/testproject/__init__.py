"""A small Django project for the tests, the documentation and people who want to try things."""

from __future__ import annotations
