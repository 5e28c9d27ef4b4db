"""What the shop does in the background."""

from __future__ import annotations

import csv
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from time import sleep
from urllib.request import ProxyHandler, Request, build_opener

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import Count, Sum
from django.utils import timezone

from django_jobqueue import JobContext, job
from shop.models import Customer, Order, Product
from shop.pictures import write_thumbnail


@job(queue="mail", priority=10, atomic=True)
def send_receipt(order_id: int) -> None:
    """Mail the receipt of an order, and mark the order in the transaction that ends the job."""
    order = Order.objects.select_related("customer", "product").get(pk=order_id)
    if order.receipted_at is not None:
        return
    order.receipted_at = timezone.now()
    order.save(update_fields=["receipted_at"])
    # Last: when it fails, the mark is rolled back, and the next attempt sends the mail.
    EmailMessage(
        subject=f"Your receipt for order {order.pk}",
        body=f"Dear {order.customer.name},\n\n{order.product.name}: {order.amount} EUR, paid.\n",
        to=[order.customer.email],
        headers={"X-Order": str(order.pk)},
    ).send()


@job
def make_thumbnail(product_id: int) -> None:
    """Make the thumbnail of a product's picture."""
    product = Product.objects.get(pk=product_id)
    name = f"thumbnails/{product.pk}.png"
    write_thumbnail(Path(product.picture.path), Path(settings.MEDIA_ROOT, name))
    Product.objects.filter(pk=product.pk).update(thumbnail=name)


@job(queue="webhooks", max_attempts=5, backoff=1, retry_on=(OSError,), takes_context=True)
def notify_warehouse(context: JobContext, order_id: int) -> None:
    """Tell the warehouse of an order; an answer other than 2xx raises an OSError."""
    request = Request(  # noqa: S310 (the address is a setting of the project)
        settings.WEBHOOK_URL,
        data=json.dumps({"order": order_id}).encode(),
        # The same at every attempt, so that the warehouse can tell a repeat.
        headers={"Content-Type": "application/json", "Idempotency-Key": str(context.id)},
    )
    # The warehouse is on this machine: a proxy named in the environment is not asked.
    with build_opener(ProxyHandler({})).open(request, timeout=5):
        pass
    Order.objects.filter(pk=order_id).update(notified_at=timezone.now())


@job(max_attempts=2, backoff=1, give_up_on=(ValueError,), atomic=True)
def import_prices(supplier: str) -> None:
    """Take the prices of a supplier's file: all of them, or none."""
    path = Path(settings.SUPPLIER_FOLDER, f"{supplier}.csv")
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            try:
                price = Decimal(row["price"])
            except InvalidOperation:
                # Reading the same file again changes nothing, so the job gives up at once.
                raise ValueError(f"{path.name}: {row['price']!r} is not a price") from None
            Product.objects.filter(name=row["product"]).update(price=price)


@job
async def refresh_spending(customer_id: int) -> None:
    """Add up what a customer has spent."""
    orders = Order.objects.filter(customer_id=customer_id)
    total = await orders.aaggregate(total=Sum("amount", default=Decimal(0)))
    await Customer.objects.filter(pk=customer_id).aupdate(spent=total["total"])


@job(priority=-10)
def write_sales_report(day: date) -> None:
    """Write the sales of a day, product by product, as a CSV file."""
    # Not created_at__date, for which MySQL and MariaDB need their time zone tables loaded.
    start, end = (timezone.make_aware(datetime.combine(d, time.min)) for d in (day, day + timedelta(days=1)))
    rows = (
        Order.objects.filter(created_at__gte=start, created_at__lt=end)
        .values_list("product__name")
        .annotate(Count("pk"), Sum("amount"))
        .order_by("product__name")
    )
    path = Path(settings.REPORT_FOLDER, f"{day:%Y-%m-%d}.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["product", "orders", "amount"])
        writer.writerows(rows)


# Between two items, so that a person sees the bar move.
SECONDS_PER_ITEM = 0.25
ITEMS = 12


@job(takes_context=True)
def count_stock(context: JobContext) -> int:
    """The first of three steps that a page follows: see how many products there are."""
    _work_through(context, "counting")
    return Product.objects.count()


@job(takes_context=True)
def order_stock(context: JobContext, count: int) -> int:
    """The second step: order as many again."""
    _work_through(context, "ordering")
    return count * 2


@job(takes_context=True)
def print_labels(context: JobContext, count: int) -> None:
    """The last step: print a label for each."""
    _work_through(context, "printing")


def _work_through(context: JobContext, what: str) -> None:
    for item in range(ITEMS):
        context.progress(item * 100 / ITEMS, f"{what} {item + 1}/{ITEMS}")
        sleep(SECONDS_PER_ITEM)
