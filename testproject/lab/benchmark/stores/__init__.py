"""What `bench` must know of each kind of store: its raw limits, its counters, and how to leave nothing behind."""

from __future__ import annotations

from django.db import connections
from django.utils.module_loading import import_string

from django_jobqueue.drivers import Driver

from .base import Store, Unsupported

# By path: the client library of a database that is not in use need not be installed.
STORES = {
    "postgresql": "lab.benchmark.stores.postgresql.PostgreSQL",
    "mysql": "lab.benchmark.stores.mysql.MySQL",
    "sqlite": "lab.benchmark.stores.sqlite.SQLite",
    "Redis": "lab.benchmark.stores.redis.Redis",
}


def store_of(driver: Driver) -> Store:
    """Raises Unsupported for a store that cannot be measured."""
    if not driver.is_shared or driver.database is None:
        raise Unsupported(f"bench cannot measure the connection {driver.alias!r} ({type(driver).__name__}) yet.")
    vendor = connections[driver.database].vendor if driver.supports_transactions else driver.kind
    if vendor not in STORES:
        raise Unsupported(f"bench cannot measure {vendor}.")
    store: Store = import_string(STORES[vendor])(driver)
    return store


__all__ = ["Store", "Unsupported", "store_of"]
