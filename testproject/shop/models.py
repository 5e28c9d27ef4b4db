"""Customers, products and orders."""

from __future__ import annotations

from django.db import models


class Customer(models.Model):
    """Somebody who buys."""

    name = models.CharField(max_length=100)
    email = models.EmailField()
    spent = models.DecimalField(max_digits=12, decimal_places=2, default=0)

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    """Something to buy, with a picture and a thumbnail made of it."""

    name = models.CharField(max_length=100, unique=True)
    price = models.DecimalField(max_digits=9, decimal_places=2)
    picture = models.FileField(upload_to="products", blank=True)
    thumbnail = models.FileField(upload_to="thumbnails", blank=True)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """A customer's order of one product, at the price of that day."""

    customer = models.ForeignKey(Customer, models.CASCADE, related_name="orders")
    product = models.ForeignKey(Product, models.CASCADE, related_name="orders")
    amount = models.DecimalField(max_digits=9, decimal_places=2)
    created_at = models.DateTimeField(auto_now_add=True)
    receipted_at = models.DateTimeField(null=True, blank=True)
    notified_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"Order {self.pk}"
