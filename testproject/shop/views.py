"""The shop's pages, and the warehouse that its webhook calls under runserver."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from django_jobqueue import PREVIOUS, chain, progress_token
from shop.jobs import count_stock, notify_warehouse, order_stock, print_labels, send_receipt
from shop.models import Customer, Order, Product
from shop.warehouse import Warehouse

DECLINED_CARD = "0000"

_warehouse = Warehouse()


class CardDeclined(Exception):
    """The bank said no."""


class CheckoutForm(forms.Form):
    """What a checkout needs."""

    customer = forms.ModelChoiceField(Customer.objects.order_by("name"))
    product = forms.ModelChoiceField(Product.objects.order_by("name"))
    card = forms.CharField(max_length=19, initial="1234", help_text=f"The card {DECLINED_CARD} is declined.")


def charge(card: str, order: Order) -> None:
    """Take the money, or raise CardDeclined."""
    if card == DECLINED_CARD:
        raise CardDeclined(f"The card was declined for {order.amount} EUR.")


def _page(request: HttpRequest, form: CheckoutForm, status: int = 200) -> HttpResponse:
    """Show the products, the last orders and the checkout form."""
    context = {
        "form": form,
        "products": Product.objects.order_by("name"),
        "orders": Order.objects.select_related("customer", "product").order_by("-pk")[:10],
    }
    return render(request, "shop/index.html", context, status=status)


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the shop."""
    return _page(request, CheckoutForm())


@require_POST
def checkout(request: HttpRequest) -> HttpResponse:
    """Store an order and dispatch its jobs: all of it, or nothing when the card is declined."""
    form = CheckoutForm(request.POST)
    if not form.is_valid():
        return _page(request, form, status=400)
    product = form.cleaned_data["product"]
    try:
        with transaction.atomic():
            order = Order.objects.create(customer=form.cleaned_data["customer"], product=product, amount=product.price)
            send_receipt.dispatch(order.pk)
            notify_warehouse.dispatch(order.pk)
            charge(form.cleaned_data["card"], order)
    except CardDeclined as error:
        form.add_error("card", str(error))
        return _page(request, form, status=402)
    messages.success(request, f"Thank you! Order {order.pk} is placed.")
    return redirect("shop:index")


@require_POST
def restock(request: HttpRequest) -> HttpResponse:
    """Dispatch a chain of three jobs, and show how far it is."""
    dispatched = chain(count_stock.s(), order_stock.s(PREVIOUS), print_labels.s(PREVIOUS)).dispatch()
    return redirect("shop:restocking", token=progress_token(dispatched))


@require_safe
def restocking(request: HttpRequest, token: str) -> HttpResponse:
    """Follow a chain, by a token that nobody can guess."""
    return render(request, "shop/restocking.html", {"token": token})


@csrf_exempt
@require_POST
def warehouse(request: HttpRequest) -> HttpResponse:
    """Play the warehouse, which turns away the first calls for every order."""
    return HttpResponse(status=_warehouse.receive(request.body))
