"""Show the job queue at work: dispatch, release, dead letters, retry."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand
from django.db import connections
from django.db.models import Sum
from django.test import Client, override_settings
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from django_jobqueue import dispatch, dispatch_later, dispatch_many, get_job
from django_jobqueue.models import FailedJob, Job
from django_jobqueue.signals import worker_stopped
from shop.jobs import (
    import_prices,
    make_thumbnail,
    refresh_spending,
    send_receipt,
    write_sales_report,
)
from shop.models import Customer, Order, Product
from shop.pictures import draw_picture
from shop.views import DECLINED_CARD
from shop.warehouse import Warehouse, failures_before, serve

CUSTOMERS = 20
PRODUCTS = 40
CHECKOUTS = 40
OLD_ORDERS = 120
LONGEST_RUN = 60  # seconds that the worker may take on a slow machine
MARKER = ".written-by-the-shop-demo"


class Command(BaseCommand):
    """Tell the story of a few hundred jobs, and check that every word of it is true."""

    help = "Dispatch a few hundred jobs, work on them and retry a dead letter, in a SQLite file."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the demo; fail when something is not as told."""
        self.colours = {name: options[name] for name in ("no_color", "force_color")}
        self.wrong: list[str] = []
        started = time.monotonic()
        self.prepare_folder()
        self.load_data()
        warehouse = Warehouse()
        with serve(warehouse) as url, override_settings(WEBHOOK_URL=url):
            self.dispatch_from_view()
            self.roll_back_a_checkout()
            self.dispatch_from_code()
            self.work()
        self.check_results(warehouse)
        self.show_dead_letters()
        self.retry_one()
        self.show_stats()
        self.point_to_admin()
        seconds = time.monotonic() - started
        if self.wrong:
            raise CommandError("Not as told: " + "; ".join(self.wrong) + ".")
        self.say(f"\nThe demo took {seconds:.0f} s, and everything was as told.")

    # The steps, in the order in which they happen.

    def prepare_folder(self) -> None:
        """Empty the demo's folder and create its database."""
        folder = Path(getattr(settings, "DEMO_FOLDER", ""))
        if not hasattr(settings, "DEMO_FOLDER") or folder not in self.database_file().parents:
            raise CommandError(
                "The demo empties its database, so it runs with settings of its own: "
                "start it with manage.py demo, or add --settings testproject.demo_settings."
            )
        connections.close_all()
        if folder.exists():
            # DEMO_FOLDER may name any folder by mistake.
            if any(folder.iterdir()) and not (folder / MARKER).exists():
                raise CommandError(
                    f"{folder} has files that the demo did not write; "
                    "empty it, or name another folder with DEMO_FOLDER."
                )
            shutil.rmtree(folder)
        self.title("A new shop")
        folder.mkdir(parents=True)
        (folder / MARKER).touch()
        call_command("migrate", verbosity=0, interactive=False)
        get_user_model().objects.create_superuser("demo", "demo@example.com", "demo")
        self.say(f"A fresh SQLite file: {self.shown(self.database_file())}")

    def load_data(self) -> None:
        """Store customers, products with pictures, and two suppliers, of whom one has no file."""
        Customer.objects.bulk_create(
            Customer(name=f"Customer {n}", email=f"customer{n}@example.com") for n in range(1, CUSTOMERS + 1)
        )
        for n in range(1, PRODUCTS + 1):
            name = f"products/{n}.png"
            draw_picture(Path(settings.MEDIA_ROOT, name), n)
            Product.objects.create(name=f"Product {n}", price=Decimal(n) + 10, picture=name)
        self.write_prices("globex", "Product 1,19.90", "Product 2,on request")
        self.say(f"{CUSTOMERS} customers, {PRODUCTS} products, each with a picture.")

    def dispatch_from_view(self) -> None:
        """Buy things through the checkout view."""
        self.title("Jobs from a view")
        for n in range(CHECKOUTS):
            response = self.check_out(n, card="1234")
            if response != 302:
                self.wrong.append(f"a checkout was answered with {response}")
        self.say(f"{CHECKOUTS} checkouts: each order and its two jobs in one transaction.")
        self.compare("jobs stored by the view", Job.objects.count(), 2 * CHECKOUTS)

    def roll_back_a_checkout(self) -> None:
        """Buy with a card that is declined after the jobs were dispatched."""
        before = self.stored()
        response = self.check_out(1, card=DECLINED_CARD)
        self.say(f"One more, whose card is declined after the dispatch: answer {response}.")
        self.say("The transaction is rolled back: neither the order nor its jobs exist.")
        self.compare("answer to the declined card", response, 402)
        self.compare("stored after the rollback", self.stored(), before)

    def dispatch_from_code(self) -> None:
        """Dispatch many jobs at once, one for later, one by its name."""
        self.title("Jobs from code")
        customers = list(Customer.objects.order_by("pk"))
        products = list(Product.objects.order_by("pk"))
        old = []
        for n in range(OLD_ORDERS):
            product = products[n % PRODUCTS]
            old.append(Order(customer=customers[n % CUSTOMERS], product=product, amount=product.price))
        first = Order.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
        Order.objects.bulk_create(old)
        numbers = Order.objects.filter(pk__gt=first).order_by("pk").values_list("pk", flat=True)
        many = dispatch_many(
            [
                *(send_receipt.s(number) for number in numbers),
                *(make_thumbnail.s(product.pk) for product in products),
                *(refresh_spending.s(customer.pk) for customer in customers),
            ]
        )
        self.say(f"{len(many)} jobs with one dispatch_many: receipts, thumbnails, async sums.")
        report = dispatch_later(timedelta(seconds=2), write_sales_report, timezone.localdate())
        self.say(f"A sales report in two seconds; get_job says: {self.state(report.id)}.")
        missing = import_prices.dispatch("acme")
        self.say(f"Prices of acme, whose file is missing: {self.state(missing.id)}.")
        dispatch("shop.jobs.import_prices", "globex")
        self.say("Prices of globex, whose file is broken, dispatched by the job's name.")
        self.compare("state of the sales report", self.state(report.id), "scheduled")
        self.compare("state of a price import", self.state(missing.id), "ready")
        self.compare("jobs waiting", Job.objects.count(), self.jobs())

    def work(self) -> None:
        """Run a worker for exactly the attempts that the story needs."""
        self.title("A worker")
        self.say("The warehouse turns the first one or two calls for each order away: AGAIN lines.")
        # One attempt a job, and those that go AGAIN: the webhooks and the file that is missing.
        attempts = self.jobs() + self.turned_away() + 1
        reasons: list[str] = []

        def note(reason: str, **kwargs: Any) -> None:
            reasons.append(reason)

        worker_stopped.connect(note)
        try:
            self.run("queue_work", max_jobs=attempts, max_time=LONGEST_RUN)
        finally:
            worker_stopped.disconnect(note)
        if any(reason.startswith("SIG") for reason in reasons):
            raise CommandError("The worker was told to stop, so the demo ends here.")

    def check_results(self, warehouse: Warehouse) -> None:
        """Compare what the jobs left behind with what they were asked for."""
        self.title("What became of them")
        orders = list(Order.objects.all())
        receipts = self.receipts()
        self.compare("jobs left", Job.objects.count(), 0)
        self.compare("receipts mailed", receipts.total(), CHECKOUTS + OLD_ORDERS)
        self.compare("orders with a receipt", len(receipts), len(orders))
        self.compare(
            "orders marked as receipted",
            sum(order.receipted_at is not None for order in orders),
            len(orders),
        )
        self.compare("calls to the warehouse", warehouse.calls.total(), self.calls())
        self.compare("orders accepted by the warehouse", len(warehouse.accepted), CHECKOUTS)
        self.compare("orders accepted twice", warehouse.accepted.total() - len(warehouse.accepted), 0)
        self.compare(
            "orders marked as notified",
            sum(order.notified_at is not None for order in orders),
            CHECKOUTS,
        )
        thumbnails = list(Path(settings.MEDIA_ROOT, "thumbnails").glob("*.png"))
        self.compare("thumbnails", len(thumbnails), PRODUCTS)
        self.compare(
            "spent by all customers",
            Customer.objects.aggregate(total=Sum("spent"))["total"],
            sum(order.amount for order in orders),
        )
        self.compare("sales reports", len(list(Path(settings.REPORT_FOLDER).glob("*.csv"))), 1)
        self.compare("dead letters", FailedJob.objects.count(), 2)

    def show_dead_letters(self) -> None:
        """List the two jobs that failed for good."""
        self.title("Dead letters")
        self.run("queue_failed")

    def retry_one(self) -> None:
        """Mend the cause of one dead letter, and retry it."""
        self.title("Mend and retry")
        missing = FailedJob.objects.filter(exception_class__endswith="FileNotFoundError").first()
        if missing is None:
            self.wrong.append("no dead letter has a FileNotFoundError")
            return
        path = self.write_prices("acme", "Product 3,3.33", "Product 4,4.44")
        self.say(f"The file of acme has come: {self.shown(path)}")
        self.run("queue_retry", str(missing.pk))
        self.run("queue_work", stop_when_empty=True, max_time=LONGEST_RUN)
        price = Product.objects.values_list("price", flat=True).get(name="Product 3")
        self.compare("new price of product 3", price, Decimal("3.33"))
        self.compare("dead letters", FailedJob.objects.count(), 1)

    def show_stats(self) -> None:
        """Print the queues' numbers."""
        self.title("Numbers")
        self.run("queue_stats")

    def point_to_admin(self) -> None:
        """Say where a person looks at the same in a browser."""
        self.title("In the browser")
        try:
            page = reverse("admin:django_jobqueue_failedjob_changelist")
        except NoReverseMatch:
            page = reverse("admin:index")
        folder = os.environ.get("DEMO_FOLDER")
        prefix = f"DEMO_FOLDER={folder} " if folder else ""
        self.say("Start the site on this database:")
        self.say(f"  {prefix}{self.manage()} runserver --settings testproject.demo_settings")
        self.say(f"and open http://127.0.0.1:8000{page} as user demo with password demo.")
        self.say("The shop itself is at http://127.0.0.1:8000/.")

    # Helpers.

    def title(self, text: str) -> None:
        """Start a step."""
        self.say("")
        self.say(self.style.MIGRATE_HEADING(text))

    def say(self, text: str) -> None:
        """Print a line, in order with what other commands and the worker print."""
        self.stdout.write(text)
        self.stdout.flush()

    def compare(self, what: str, found: object, expected: object) -> None:
        """Print a number, and remember it when it is wrong."""
        if found == expected:
            self.say(f"  ok     {what}: {found}")
            return
        self.say(self.style.ERROR(f"  WRONG  {what}: {found}, not {expected}"))
        self.wrong.append(f"{what}: {found}, not {expected}")

    def run(self, name: str, *args: str, **options: Any) -> None:
        """Show a command as a person would type it, and run it here."""
        flags = [
            f"--{key.replace('_', '-')}" + ("" if value is True else f" {value}") for key, value in options.items()
        ]
        self.say(self.style.MIGRATE_LABEL(" ".join(["$", self.manage(), name, *flags, *args])))
        call_command(name, *args, **options, **self.colours)

    def check_out(self, n: int, card: str) -> int:
        """Post a checkout through Django's test client, and return the status."""
        customers = Customer.objects.order_by("pk").values_list("pk", flat=True)
        products = Product.objects.order_by("pk").values_list("pk", flat=True)
        data = {
            "customer": customers[n % CUSTOMERS],
            "product": products[n % PRODUCTS],
            "card": card,
        }
        return Client().post(reverse("shop:checkout"), data).status_code

    def jobs(self) -> int:
        """Return how many jobs the demo dispatches: two a checkout, many, a report, two imports."""
        return 2 * CHECKOUTS + OLD_ORDERS + PRODUCTS + CUSTOMERS + 1 + 2

    def turned_away(self) -> int:
        """Return how many calls the warehouse turns away; the view made the first orders."""
        numbers = Order.objects.order_by("pk").values_list("pk", flat=True)[:CHECKOUTS]
        return sum(failures_before(number) for number in numbers)

    def calls(self) -> int:
        """Return how many calls the warehouse gets: those turned away, and one more an order."""
        return self.turned_away() + CHECKOUTS

    def receipts(self) -> Counter[str]:
        """Count the mailed receipts by order; Django may put several mails into one file."""
        found: Counter[str] = Counter()
        for path in Path(settings.MAIL_FOLDER).glob("*.log"):
            text = path.read_text(encoding="utf-8")
            found.update(re.findall(r"^X-Order: (\d+)$", text, flags=re.MULTILINE))
        return found

    def stored(self) -> str:
        """Return how many orders and jobs there are."""
        return f"{Order.objects.count()} orders, {Job.objects.count()} jobs"

    def state(self, job_id: Any) -> str:
        """Return the state of a job, or "gone"."""
        job = get_job(job_id)
        return "gone" if job is None else str(job.state)

    def write_prices(self, supplier: str, *lines: str) -> Path:
        """Write a supplier's file."""
        path = Path(settings.SUPPLIER_FOLDER, f"{supplier}.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["product,price", *lines, ""]), encoding="utf-8")
        return path

    def database_file(self) -> Path:
        """Return the path of the database, if it is a file."""
        return Path(str(settings.DATABASES["default"]["NAME"])).absolute()

    def manage(self) -> str:
        """Return how manage.py is called from the current folder."""
        return f"python {self.shown(settings.BASE_DIR / 'manage.py')}"

    def shown(self, path: Path) -> Path:
        """Return a path relative to the current folder, when it is below it."""
        here = Path.cwd()
        return path.relative_to(here) if path.is_relative_to(here) else path
