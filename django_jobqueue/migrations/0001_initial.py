# One initial migration until 1.0: a later change may rewrite it.

from typing import Any

from django.db import migrations, models

import django_jobqueue.models.fields
import django_jobqueue.models.indexes

# A queue replaces all its rows again and again: by the usual share of a table, dead ones would be swept too late.
# So do the members of batches.
VACUUM_SOON = "ALTER TABLE %s SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"


def vacuum_soon(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for table in ("django_jobqueue_job", "django_jobqueue_batchmember"):
            schema_editor.execute(VACUUM_SOON % table)


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Batch",
            fields=[
                ("id", django_jobqueue.models.fields.JobIdField(editable=False, primary_key=True, serialize=False)),
                ("connection", django_jobqueue.models.fields.ExactCharField(max_length=100, verbose_name="connection")),
                ("name", django_jobqueue.models.fields.ExactCharField(default="", max_length=255, verbose_name="name")),
                ("metadata", models.TextField(default="", verbose_name="metadata")),
                ("allow_failures", models.BooleanField(default=False, verbose_name="allows failures")),
                ("callbacks", models.TextField(default="")),
                ("total", models.IntegerField(verbose_name="jobs")),
                ("created_at", django_jobqueue.models.fields.ClockField(verbose_name="dispatched")),
                ("cancelled_at", django_jobqueue.models.fields.ClockField(null=True, verbose_name="cancelled")),
                ("finished_at", django_jobqueue.models.fields.ClockField(null=True, verbose_name="finished")),
            ],
            options={
                "verbose_name": "batch",
                "verbose_name_plural": "batches",
                "default_permissions": (),
                "indexes": [models.Index(fields=["finished_at"], name="jobqueue_batch_finished")],
            },
        ),
        migrations.CreateModel(
            name="BatchMember",
            fields=[
                (
                    "job_id",
                    django_jobqueue.models.fields.JobIdField(
                        editable=False, primary_key=True, serialize=False, verbose_name="job id"
                    ),
                ),
                ("batch_id", django_jobqueue.models.fields.JobIdField(verbose_name="batch")),
                (
                    "state",
                    models.SmallIntegerField(
                        choices=[(0, "pending"), (1, "failed"), (2, "cancelled")], verbose_name="state"
                    ),
                ),
            ],
            options={
                "verbose_name": "member of a batch",
                "verbose_name_plural": "members of batches",
                "default_permissions": (),
                "indexes": [models.Index(fields=["batch_id", "state"], name="jobqueue_member_batch")],
            },
        ),
        migrations.CreateModel(
            name="FailedJob",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False, verbose_name="number")),
                ("job_id", django_jobqueue.models.fields.JobIdField(verbose_name="job id")),
                ("connection", django_jobqueue.models.fields.ExactCharField(max_length=100, verbose_name="connection")),
                ("queue", django_jobqueue.models.fields.ExactCharField(max_length=100, verbose_name="queue")),
                ("name", django_jobqueue.models.fields.ExactCharField(max_length=255, verbose_name="job")),
                ("payload", models.TextField(verbose_name="payload")),
                ("format", models.SmallIntegerField()),
                ("rank", models.SmallIntegerField()),
                ("max_attempts", models.IntegerField(null=True, verbose_name="maximum attempts")),
                ("metadata", models.TextField(default="", verbose_name="metadata")),
                ("masked", models.TextField(default="")),
                ("flow", models.TextField(null=True)),
                ("created_at", django_jobqueue.models.fields.ClockField(verbose_name="dispatched")),
                ("exception_class", django_jobqueue.models.fields.ExactCharField(max_length=255, verbose_name="error")),
                ("exception_message", models.CharField(max_length=500, verbose_name="message")),
                ("fingerprint", django_jobqueue.models.fields.ExactCharField(max_length=64)),
                ("fingerprint_version", models.SmallIntegerField()),
                ("errors", models.TextField(default="")),
                ("attempts", models.IntegerField(verbose_name="attempts")),
                ("retries", models.IntegerField(default=0, verbose_name="retries")),
                ("failed_at", django_jobqueue.models.fields.ClockField(verbose_name="failed")),
            ],
            options={
                "verbose_name": "failed job",
                "verbose_name_plural": "failed jobs",
                "permissions": [
                    ("retry_failedjob", "Can retry failed job"),
                    ("retry_edited_failedjob", "Can retry failed job with changes"),
                ],
                "default_permissions": ("view", "delete"),
                "indexes": [
                    models.Index(fields=["failed_at", "id"], name="jobqueue_failed_at"),
                    models.Index(fields=["fingerprint", "failed_at"], name="jobqueue_failed_fingerprint"),
                    models.Index(fields=["queue", "id"], name="jobqueue_failed_queue"),
                    models.Index(fields=["name", "id"], name="jobqueue_failed_name"),
                    models.Index(fields=["exception_class", "id"], name="jobqueue_failed_class"),
                ],
                "constraints": [models.UniqueConstraint(fields=("job_id",), name="jobqueue_failed_job_id")],
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", django_jobqueue.models.fields.JobIdField(editable=False, primary_key=True, serialize=False)),
                ("queue", django_jobqueue.models.fields.ExactCharField(max_length=100, verbose_name="queue")),
                ("name", django_jobqueue.models.fields.ExactCharField(max_length=255, verbose_name="job")),
                ("payload", models.TextField(verbose_name="payload")),
                ("format", models.SmallIntegerField()),
                ("rank", models.SmallIntegerField()),
                (
                    "state",
                    django_jobqueue.models.fields.ExactCharField(
                        choices=[
                            ("scheduled", "scheduled"),
                            ("ready", "ready"),
                            ("reserved", "reserved"),
                            ("blocked", "blocked"),
                        ],
                        max_length=9,
                        verbose_name="state",
                    ),
                ),
                ("ready_at", django_jobqueue.models.fields.ClockField(verbose_name="ready since")),
                ("available_at", django_jobqueue.models.fields.ClockField(verbose_name="available")),
                ("created_at", django_jobqueue.models.fields.ClockField(verbose_name="dispatched")),
                ("attempts", models.IntegerField(default=0, verbose_name="attempts")),
                ("max_attempts", models.IntegerField(null=True, verbose_name="maximum attempts")),
                ("exceptions", models.IntegerField(default=0)),
                ("crashes", models.IntegerField(default=0, verbose_name="crashes")),
                ("retries", models.IntegerField(default=0, verbose_name="retries")),
                ("retry_until", django_jobqueue.models.fields.ClockField(null=True, verbose_name="retried until")),
                ("token", django_jobqueue.models.fields.JobIdField(null=True)),
                (
                    "worker",
                    django_jobqueue.models.fields.ExactCharField(default="", max_length=150, verbose_name="worker"),
                ),
                ("alone", models.BooleanField(default=False)),
                ("reserved_at", django_jobqueue.models.fields.ClockField(null=True, verbose_name="reserved")),
                ("reserved_until", django_jobqueue.models.fields.ClockField(null=True, verbose_name="reserved until")),
                ("errors", models.TextField(default="")),
                ("metadata", models.TextField(default="", verbose_name="metadata")),
                ("masked", models.TextField(default="")),
                ("flow", models.TextField(null=True)),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "permissions": [
                    ("view_payload_job", "Can view payload values and tracebacks of jobs and failed jobs"),
                    ("cancel_job", "Can cancel job"),
                    ("dispatch_job", "Can dispatch job"),
                ],
                "default_permissions": ("view", "delete"),
                "indexes": [
                    models.Index(fields=["queue", "state", "rank", "ready_at", "id"], name="jobqueue_job_reserve"),
                    django_jobqueue.models.indexes.StateIndex(
                        fields=["queue", "state", "available_at"], name="jobqueue_job_stage", state="scheduled"
                    ),
                    django_jobqueue.models.indexes.StateIndex(
                        fields=["state", "reserved_until"], name="jobqueue_job_rescue", state="reserved"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", django_jobqueue.models.fields.JobIdField(editable=False, primary_key=True, serialize=False)),
                ("name", django_jobqueue.models.fields.ExactCharField(max_length=80, verbose_name="name")),
                ("host", django_jobqueue.models.fields.ExactCharField(max_length=80, verbose_name="host")),
                ("pid", models.BigIntegerField(verbose_name="process")),
                ("queues", models.TextField(verbose_name="queues")),
                ("workers", models.IntegerField(verbose_name="threads")),
                ("version", django_jobqueue.models.fields.ExactCharField(max_length=50, verbose_name="version")),
                ("is_embedded", models.BooleanField(default=False, verbose_name="embedded")),
                ("processed", models.BigIntegerField(default=0, verbose_name="processed")),
                ("released", models.BigIntegerField(default=0, verbose_name="released")),
                ("failed", models.BigIntegerField(default=0, verbose_name="failed")),
                ("lost", models.BigIntegerField(default=0, verbose_name="lost")),
                ("memory", models.BigIntegerField(null=True, verbose_name="memory")),
                ("started_at", django_jobqueue.models.fields.ClockField(verbose_name="started")),
                ("heartbeat_at", django_jobqueue.models.fields.ClockField(verbose_name="last heartbeat")),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "default_permissions": ("view",),
                "indexes": [models.Index(fields=["heartbeat_at", "id"], name="jobqueue_worker_heartbeat")],
            },
        ),
        migrations.CreateModel(
            name="WorkerRequest",
            fields=[
                (
                    "name",
                    django_jobqueue.models.fields.ExactCharField(max_length=20, primary_key=True, serialize=False),
                ),
                ("asked_at", django_jobqueue.models.fields.ClockField()),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Progress",
            fields=[
                (
                    "job_id",
                    django_jobqueue.models.fields.JobIdField(
                        editable=False, primary_key=True, serialize=False, verbose_name="job id"
                    ),
                ),
                ("connection", django_jobqueue.models.fields.ExactCharField(max_length=100, verbose_name="connection")),
                ("percent", models.SmallIntegerField(null=True, verbose_name="percent")),
                ("stage", models.CharField(default="", max_length=200, verbose_name="stage")),
                (
                    "state",
                    django_jobqueue.models.fields.ExactCharField(default="", max_length=10, verbose_name="state"),
                ),
                ("updated_at", django_jobqueue.models.fields.ClockField(verbose_name="reported")),
            ],
            options={
                "verbose_name": "progress",
                "verbose_name_plural": "progress",
                "default_permissions": (),
                "indexes": [models.Index(fields=["updated_at"], name="jobqueue_progress_updated")],
            },
        ),
        migrations.CreateModel(
            name="QueueStat",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("minute", django_jobqueue.models.fields.ClockField(verbose_name="minute")),
                ("connection", django_jobqueue.models.fields.ExactCharField(max_length=100, verbose_name="connection")),
                ("queue", django_jobqueue.models.fields.ExactCharField(max_length=100, verbose_name="queue")),
                ("name", django_jobqueue.models.fields.ExactCharField(max_length=255, verbose_name="job")),
                ("seconds", models.SmallIntegerField(default=60, verbose_name="seconds")),
                ("processed", models.BigIntegerField(default=0, verbose_name="processed")),
                ("released", models.BigIntegerField(default=0, verbose_name="released")),
                ("failed", models.BigIntegerField(default=0, verbose_name="failed")),
                ("lost", models.BigIntegerField(default=0, verbose_name="lost")),
                ("elapsed_sum", models.BigIntegerField(default=0)),
                ("elapsed_max", models.BigIntegerField(default=0)),
                ("waited_sum", models.BigIntegerField(default=0)),
                ("waited_max", models.BigIntegerField(default=0)),
            ],
            options={
                "verbose_name": "minute of a queue",
                "verbose_name_plural": "minutes of queues",
                "default_permissions": (),
                "indexes": [models.Index(fields=["seconds", "minute"], name="jobqueue_stat_seconds")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("minute", "connection", "queue", "name", "seconds"), name="jobqueue_stat_minute"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Result",
            fields=[
                (
                    "job_id",
                    django_jobqueue.models.fields.JobIdField(
                        editable=False, primary_key=True, serialize=False, verbose_name="job id"
                    ),
                ),
                ("connection", django_jobqueue.models.fields.ExactCharField(max_length=100, verbose_name="connection")),
                ("queue", django_jobqueue.models.fields.ExactCharField(max_length=100, verbose_name="queue")),
                ("name", django_jobqueue.models.fields.ExactCharField(max_length=255, verbose_name="job")),
                (
                    "state",
                    django_jobqueue.models.fields.ExactCharField(
                        choices=[("processed", "done"), ("cancelled", "cancelled")],
                        default="processed",
                        max_length=9,
                        verbose_name="state",
                    ),
                ),
                ("payload", models.TextField(verbose_name="payload")),
                ("format", models.SmallIntegerField()),
                ("rank", models.SmallIntegerField()),
                ("masked", models.TextField(default="")),
                ("value", models.TextField(verbose_name="value")),
                ("error", models.CharField(default="", max_length=500, verbose_name="error")),
                ("attempts", models.IntegerField(verbose_name="attempts")),
                ("max_attempts", models.IntegerField(null=True, verbose_name="maximum attempts")),
                ("worker", django_jobqueue.models.fields.ExactCharField(max_length=150, verbose_name="worker")),
                ("created_at", django_jobqueue.models.fields.ClockField(verbose_name="dispatched")),
                ("started_at", django_jobqueue.models.fields.ClockField(null=True, verbose_name="started")),
                ("finished_at", django_jobqueue.models.fields.ClockField(verbose_name="finished")),
                ("expires_at", django_jobqueue.models.fields.ClockField(verbose_name="kept until")),
                ("errors", models.TextField(default="")),
                ("metadata", models.TextField(default="", verbose_name="metadata")),
            ],
            options={
                "verbose_name": "result",
                "verbose_name_plural": "results",
                "default_permissions": (),
                "indexes": [models.Index(fields=["expires_at"], name="jobqueue_result_expires")],
            },
        ),
        migrations.RunPython(vacuum_soon, migrations.RunPython.noop, elidable=False),
    ]
