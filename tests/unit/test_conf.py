"""The JOBQUEUE setting."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_jobqueue.conf import Settings, get_settings, read
from django_jobqueue.jobs.retry import Exponential


def problem(given: Any) -> str:
    settings, problems = read(given)
    assert len(problems) == 1, problems
    assert isinstance(settings, Settings)
    return problems[0]


def test_every_key_is_optional() -> None:
    settings, problems = read({})
    assert (settings, problems) == (Settings(), [])
    assert list(settings.connections) == ["default"]
    assert settings.connections["default"]["DRIVER"] == "database"
    assert (settings.max_attempts, settings.retry_after, settings.poll_interval) == (3, 90, 0.5)
    assert (settings.timeout, settings.payload_limit) == (3600, 1_048_576)


def test_there_are_fewer_than_25_keys() -> None:
    assert len(dataclasses.fields(Settings)) < 25


def test_values_are_taken_in_every_form() -> None:
    settings, problems = read(
        {
            "CONNECTIONS": {
                "default": {"DRIVER": "database", "DATABASE": "queue"},
                "fast": {"DRIVER": "memory"},
            },
            "QUEUES": {"mail": {"CONNECTION": "fast"}, "почта": {}},
            "MODULES": ["jobs", "tasks"],
            "MAX_ATTEMPTS": 1,
            "BACKOFF": [10, timedelta(minutes=1)],
            "TIMEOUT": None,
            "RETRY_AFTER": timedelta(minutes=5),
            "POLL_INTERVAL": 1,
            "QUEUE_ERROR_BACKOFF_CAP": 5.5,
            "SETTLE": "each",
            "AFTER_COMMIT": "queue",
            "PAYLOAD_LIMIT": 1000,
            "EMBEDDED_WORKERS": 0,
            "MASK": ("pin",),
            "PRUNE": {"FAILED": timedelta(days=90)},
            "PROGRESS_CACHE": "shared",
            "ADMIN": False,
        }
    )
    assert problems == []
    assert settings.connections["default"] == {"DRIVER": "database", "DATABASE": "queue"}
    assert settings.connection_of("mail") == "fast"
    assert settings.connection_of("почта") == "default"
    assert settings.connection_of("unknown") == "default"
    assert settings.modules == ("jobs", "tasks")
    assert settings.max_attempts == 1
    assert settings.backoff == (10.0, 60.0)
    assert settings.timeout is None
    assert settings.prune == {
        "FAILED": 90 * 86_400.0,
        "WORKERS": 3600.0,
        "STATS": 7 * 86_400.0,
        "BATCHES": 7 * 86_400.0,
        "PROGRESS": 86_400.0,
    }
    assert (settings.retry_after, settings.poll_interval) == (300.0, 1.0)
    assert settings.queue_error_backoff_cap == 5.5
    assert (settings.settle, settings.after_commit) == ("each", "queue")
    assert settings.payload_limit == 1000
    assert settings.embedded_workers == 0
    assert settings.progress_cache == "shared"
    assert settings.admin is False


def test_a_backoff_of_zero_is_no_pause() -> None:
    settings, problems = read({"BACKOFF": 0})
    assert problems == []
    assert settings.backoff == 0


def test_an_empty_backoff_is_the_default_one() -> None:  # F52
    settings, problems = read({"BACKOFF": []})
    assert problems == []
    assert settings.backoff == Exponential()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("CONNECTIONS", ["default"]),
        ("CONNECTIONS", {"fast": {"DRIVER": "memory"}}),
        ("CONNECTIONS", {"default": {}}),
        ("CONNECTIONS", {"default": "database"}),
        ("CONNECTIONS", {"default": {"DRIVER": 7}}),
        ("CONNECTIONS", {"default": {"DRIVER": "database"}, "a,b": {"DRIVER": "memory"}}),
        ("QUEUES", ["mail"]),
        ("QUEUES", {"mail": "fast"}),
        ("QUEUES", {"mail": {"CONNECTON": "default"}}),
        ("QUEUES", {"mail": {"CONNECTION": "fast"}}),
        ("MODULES", "jobs"),
        ("MODULES", [""]),
        ("MODULES", [7]),
        ("MAX_ATTEMPTS", 0),
        ("MAX_ATTEMPTS", True),
        ("MAX_ATTEMPTS", None),
        ("BACKOFF", -1),
        ("BACKOFF", "10"),
        ("TIMEOUT", 0),
        ("TIMEOUT", "60"),
        ("RETRY_AFTER", 0.5),
        ("RETRY_AFTER", None),
        ("POLL_INTERVAL", 0),
        ("POLL_INTERVAL", -1),
        ("POLL_INTERVAL", float("nan")),
        ("QUEUE_ERROR_BACKOFF_CAP", 0),
        ("SETTLE", "sometimes"),
        ("AFTER_COMMIT", None),
        ("PAYLOAD_LIMIT", 0),
        ("PAYLOAD_LIMIT", "1 MB"),
        ("EMBEDDED_WORKERS", -1),
        ("EMBEDDED_WORKERS", True),
        ("EMBEDDED_WORKERS", False),
        ("MASK", "password"),
        ("PRUNE", None),
        ("PRUNE", {"failed": 5}),
        ("PRUNE", {"FAILED": 0}),
        ("PRUNE", {"WORKERS": "1h"}),
        ("PRUNE", {"BATCHES": -1}),
        ("PRUNE", {"RESULTS": 5}),
        ("PROGRESS_CACHE", 7),
        ("PROGRESS_CACHE", True),
        ("ADMIN", 1),
    ],
)
def test_a_value_that_cannot_work_is_a_problem_that_names_its_key(key: str, value: Any) -> None:
    assert f'JOBQUEUE["{key}"]' in problem({key: value})


def test_a_name_of_a_queue_that_cannot_be_stored_is_a_problem() -> None:
    assert "queue name" in problem({"QUEUES": {"a,b": {}}})


@pytest.mark.parametrize("key", ["MAX_ATTEMTPS", "max_attempts", 7, None])
def test_an_unknown_key_is_a_problem_that_lists_the_known(key: Any) -> None:
    found = problem({key: 3})
    assert repr(key) in found
    assert "MAX_ATTEMPTS" in found


@pytest.mark.parametrize("given", [None, [], "database", 7])
def test_a_setting_that_is_no_dictionary_is_a_problem(given: Any) -> None:
    assert "dictionary" in problem(given)


def test_every_problem_is_found_and_the_rest_is_read() -> None:
    settings, problems = read({"MAX_ATTEMPTS": 0, "TIMEOUT": -1, "SETTLE": "each", "X": 1})
    assert len(problems) == 3
    assert (settings.max_attempts, settings.timeout, settings.settle) == (3, 3600, "each")


def test_a_changed_setting_is_read_anew() -> None:
    before = get_settings()
    with override_settings(JOBQUEUE={"MAX_ATTEMPTS": 7}):
        assert get_settings().max_attempts == 7
        assert get_settings() is get_settings()
    assert get_settings() == before


def test_a_wrong_setting_is_an_error_when_it_is_used() -> None:
    with (
        override_settings(JOBQUEUE={"MAX_ATTEMPTS": 0}),
        pytest.raises(ImproperlyConfigured, match="MAX_ATTEMPTS"),
    ):
        get_settings()


@pytest.mark.parametrize("name", ["password", "user_password", "Authorization", "API_KEY", "iban"])
def test_names_of_secrets_are_known(name: str) -> None:
    assert Settings().is_secret(name)


@pytest.mark.parametrize("name", ["order_id", "email", ""])
def test_other_names_are_no_secrets(name: str) -> None:
    assert not Settings().is_secret(name)


def test_names_to_mask_are_text_and_not_patterns() -> None:
    settings, _ = read({"MASK": ["pin", "a.b"]})
    assert settings.is_secret("PIN_code")
    assert settings.is_secret("x.a.b")
    assert not settings.is_secret("aXb")
    assert not settings.is_secret("password")


def test_an_empty_mask_masks_nothing() -> None:
    settings, problems = read({"MASK": []})
    assert problems == []
    assert not settings.is_secret("password")
