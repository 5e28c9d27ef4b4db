"""The laboratory: what measures the queue. Nothing in the shop depends on it."""

from __future__ import annotations

from django.apps import AppConfig


class LabConfig(AppConfig):
    name = "lab"
