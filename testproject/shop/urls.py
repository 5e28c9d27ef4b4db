"""Addresses of the shop."""

from __future__ import annotations

from django.urls import path

from shop import views

app_name = "shop"

urlpatterns = [
    path("", views.index, name="index"),
    path("checkout/", views.checkout, name="checkout"),
    path("warehouse/", views.warehouse, name="warehouse"),
]
