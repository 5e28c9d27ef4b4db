"""Addresses of the shop."""

from __future__ import annotations

from django.urls import path

from shop import views

app_name = "shop"

urlpatterns = [
    path("", views.index, name="index"),
    path("checkout/", views.checkout, name="checkout"),
    path("restock/", views.restock, name="restock"),
    path("restock/<str:token>/", views.restocking, name="restocking"),
    path("warehouse/", views.warehouse, name="warehouse"),
]
