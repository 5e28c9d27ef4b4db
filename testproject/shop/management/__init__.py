"""Management commands of the shop."""

from __future__ import annotations
