"""The shop as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Name the app; its jobs are found by autodiscovery of ``shop.jobs``."""

    name = "shop"
