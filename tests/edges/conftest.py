"""The fixtures of the edges."""

from __future__ import annotations

from tests.helpers.fixtures import register

__all__ = ["register"]
