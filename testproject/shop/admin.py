"""The shop's own admin pages."""

from __future__ import annotations

from django.contrib import admin

from shop.models import Customer, Order, Product


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):
    """Customers, with what they spent as the job last counted it."""

    list_display = ["name", "email", "spent"]


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    """Products, with the thumbnail that a job makes."""

    list_display = ["name", "price", "thumbnail"]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    """Orders, with the marks that the jobs leave on them."""

    list_display = ["id", "customer", "product", "amount", "receipted_at", "notified_at"]
    list_select_related = ["customer", "product"]
