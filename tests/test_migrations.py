"""The migration is the same whatever the project sets."""

from __future__ import annotations

from io import StringIO

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import models
from django.test import override_settings
from django.utils import translation

from django_jobqueue.models import Batch, BatchMember, FailedJob, Job, Progress, QueueStat, Result, Worker

LONGEST_INDEX_NAME = 30

pytestmark = pytest.mark.django_db


def assert_no_changes() -> None:
    out = StringIO()
    call_command("makemigrations", "django_jobqueue", check=True, dry_run=True, stdout=out)
    assert "No changes detected" in out.getvalue()


# F66
@pytest.mark.parametrize(
    "auto_field",
    ["django.db.models.AutoField", "django.db.models.BigAutoField", "django.db.models.SmallAutoField"],
)
def test_the_auto_field_of_the_project_changes_no_migration(auto_field: str) -> None:
    with override_settings(DEFAULT_AUTO_FIELD=auto_field):
        assert_no_changes()


@pytest.mark.parametrize("language", ["en", "de", "ja"])
def test_the_language_of_the_project_changes_no_migration(language: str) -> None:
    with override_settings(LANGUAGE_CODE=language), translation.override(language):
        assert_no_changes()


@pytest.mark.parametrize("use_tz", [True, False])
def test_time_zones_change_no_migration(use_tz: bool) -> None:
    with override_settings(USE_TZ=use_tz):
        assert_no_changes()


def test_queue_settings_change_no_migration() -> None:
    with override_settings(
        JOBQUEUE={"CONNECTIONS": {"default": {"DRIVER": "memory"}}, "MAX_ATTEMPTS": 9, "MASK": ["pin"], "ADMIN": False}
    ):
        assert_no_changes()


def test_a_router_changes_no_migration() -> None:
    class Elsewhere:
        def db_for_read(self, model: object, **hints: object) -> str:
            return "default"

        def db_for_write(self, model: object, **hints: object) -> str:
            return "default"

    with override_settings(DATABASE_ROUTERS=[Elsewhere()]):
        assert_no_changes()


@pytest.mark.parametrize("model", [Job, FailedJob, Result, Batch, BatchMember, Progress, Worker, QueueStat])
def test_every_index_and_constraint_has_a_short_name_of_its_own(model: type[models.Model]) -> None:
    names = [index.name for index in model._meta.indexes] + [item.name for item in model._meta.constraints]
    assert names
    assert all(name.startswith("jobqueue_") and len(name) <= LONGEST_INDEX_NAME for name in names)


def test_the_permissions_of_the_operators_are_in_the_first_migration() -> None:
    models = (Job, FailedJob, Worker)
    codenames = {
        f"{action}_{model._meta.model_name}" for model in models for action in model._meta.default_permissions
    } | {codename for model in models for codename, _name in model._meta.permissions}
    assert codenames == {
        "view_job",
        "delete_job",
        "view_payload_job",
        "cancel_job",
        "dispatch_job",
        "view_failedjob",
        "delete_failedjob",
        "retry_failedjob",
        "retry_edited_failedjob",
        "view_worker",
    }


def test_the_app_names_its_own_auto_field() -> None:
    assert apps.get_app_config("django_jobqueue").default_auto_field == "django.db.models.BigAutoField"
