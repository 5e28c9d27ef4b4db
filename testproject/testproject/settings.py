"""Settings of the test project; the database is chosen with JOBQUEUE_TEST_DATABASE."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_FOLDER = BASE_DIR / "data"

SECRET_KEY = "for the test project only, and therefore no secret"
DEBUG = os.environ.get("DEBUG", "1").lower() not in {"", "0", "false", "no", "off"}
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", "testserver"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_jobqueue",
    "shop",
    "lab",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "testproject.urls"
WSGI_APPLICATION = "testproject.wsgi.application"
ASGI_APPLICATION = "testproject.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]


def sqlite(name: str | os.PathLike[str], test_name: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a SQLite database as a queue needs it: writers wait instead of failing at once."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(name),
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
        # A file, because worker processes share no memory, and because the shared cache that
        # Django's in-memory test database uses answers "table is locked" without waiting.
        "TEST": {"NAME": str(test_name)},
    }


def _database(kind: str) -> dict[str, Any]:
    """Return the default database for one value of JOBQUEUE_TEST_DATABASE."""
    env = os.environ.get
    if kind == "sqlite":
        return sqlite(
            env("SQLITE_NAME", BASE_DIR / "db.sqlite3"),
            env("SQLITE_TEST_NAME", BASE_DIR / "test.sqlite3"),
        )
    if kind == "postgres":
        return {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": env("POSTGRES_HOST", "127.0.0.1"),
            "PORT": env("POSTGRES_PORT", "5432"),
            "USER": env("POSTGRES_USER", "postgres"),
            "PASSWORD": env("POSTGRES_PASSWORD", ""),
            "NAME": env("POSTGRES_DB", "jobqueue"),
        }
    if kind == "mysql":
        return {
            "ENGINE": "django.db.backends.mysql",
            "HOST": env("MYSQL_HOST", "127.0.0.1"),
            "PORT": env("MYSQL_PORT", "3306"),
            "USER": env("MYSQL_USER", "root"),
            "PASSWORD": env("MYSQL_PASSWORD", ""),
            "NAME": env("MYSQL_DB", "jobqueue"),
            "OPTIONS": {"charset": "utf8mb4"},
            "TEST": {"CHARSET": "utf8mb4"},
        }
    raise ImproperlyConfigured(f"JOBQUEUE_TEST_DATABASE is {kind!r}; choose sqlite, postgres or mysql.")


DATABASES = {"default": _database(os.environ.get("JOBQUEUE_TEST_DATABASE", "sqlite"))}

CACHES: dict[str, Any] = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
if importlib.util.find_spec("django_redis"):
    # For queue connections with the driver "redis"; nothing connects before one of them is used.
    CACHES["redis"] = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": "redis://{}:{}/{}".format(
            os.environ.get("REDIS_HOST", "127.0.0.1"),
            os.environ.get("REDIS_PORT", "6379"),
            os.environ.get("REDIS_DB", "0"),
        ),
        "OPTIONS": {"SOCKET_TIMEOUT": 10, "SOCKET_CONNECT_TIMEOUT": 5},
    }

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
USE_I18N = True
USE_TZ = True
# Not UTC, so that a confusion of local time and UTC shows.
TIME_ZONE = "Europe/Rome"

STATIC_URL = "static/"
MEDIA_URL = "media/"
MEDIA_ROOT = DATA_FOLDER / "media"

DEFAULT_FROM_EMAIL = "shop@example.com"
MAIL_FOLDER = DATA_FOLDER / "mail"


def mail_files(folder: Path) -> dict[str, Any]:
    """Return the settings that write every e-mail to a file in a folder."""
    backend = "django.core.mail.backends.filebased.EmailBackend"
    if django.VERSION >= (6, 1):
        return {"MAILERS": {"default": {"BACKEND": backend, "OPTIONS": {"file_path": folder}}}}
    return {"EMAIL_BACKEND": backend, "EMAIL_FILE_PATH": folder}


globals().update(mail_files(MAIL_FOLDER))

# Read by shop.jobs.
SUPPLIER_FOLDER = DATA_FOLDER / "suppliers"
REPORT_FOLDER = DATA_FOLDER / "reports"
WEBHOOK_URL = os.environ.get("WEBHOOK_URL", "http://127.0.0.1:8000/warehouse/")

JOBQUEUE: dict[str, Any] = {}

# Not by itself: a worker serves every connection, and most machines have no Redis.
REDIS_CONNECTION = {
    "DRIVER": "redis",
    "CACHE": "redis",
    "PREFIX": os.environ.get("JOBQUEUE_REDIS_PREFIX", "testproject:"),
    "DATABASE": "default",
}
if os.environ.get("JOBQUEUE_REDIS") == "1":
    JOBQUEUE["CONNECTIONS"] = {"default": {"DRIVER": "database"}, "redis": REDIS_CONNECTION}
