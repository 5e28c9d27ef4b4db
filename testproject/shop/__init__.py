"""A shop with just enough in it to give a job queue real work."""

from __future__ import annotations
