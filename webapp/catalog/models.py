"""Unmanaged models of the library's tables (state_backends/schema/migrations), so that Django can query them.

Pipelines write these tables without Django. Django writes only the maintenance runs and the pause requests, and has two
tables of its own: the limits of pipelines, and the idempotency keys.
"""

from typing import Any

from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from tidegauge.state_backends.schema.evolution import UNSAID


def table(name: str) -> str:
    """Return a db_table in the library's schema. It is quoted, because Django has no setting for a table's schema."""
    return f'"tidegauge"."{name}"'


class Pipeline(models.Model):
    name = models.TextField(primary_key=True)
    description = models.TextField()
    spout = models.TextField()
    fence = models.BigIntegerField()
    checkpoint_id = models.TextField(null=True)  # noqa: DJ001 (NULL: unknown)
    committed_txid = models.BigIntegerField()
    committed_attempt = models.IntegerField()
    committed_batch_id = models.BigIntegerField()
    committed_time = models.DateTimeField(null=True)
    open_txid = models.BigIntegerField(null=True)
    open_attempt = models.IntegerField(null=True)
    open_batch_id = models.BigIntegerField(null=True)
    open_time = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    reprocesses = models.TextField(null=True)  # noqa: DJ001 (the pipeline whose states this one reprocesses)
    epoch = models.TextField()
    token = models.TextField()
    sources = models.JSONField()
    fed_after = models.BigIntegerField()
    files_since = models.BigIntegerField()
    backfill = models.JSONField(null=True)

    class Meta:
        managed = False
        db_table = table("pipeline")
        ordering = ["name"]

    def __str__(self):
        return self.name


class Batch(models.Model):
    id = models.BigIntegerField(primary_key=True)
    pipeline = models.ForeignKey(Pipeline, models.DO_NOTHING, db_column="pipeline", related_name="batches")
    txid = models.BigIntegerField()
    attempt = models.IntegerField()
    batch_id = models.BigIntegerField()
    fence = models.BigIntegerField()
    batch_time = models.DateTimeField()
    started_at = models.DateTimeField()
    committed_at = models.DateTimeField(null=True)
    offsets = models.JSONField(null=True)
    rows_in = models.BigIntegerField(null=True)
    keys_written = models.JSONField(null=True)
    dead_letters = models.BigIntegerField()
    late = models.BigIntegerField()
    dropped = models.BigIntegerField()
    tasks = models.JSONField(null=True)
    watermark = models.DateTimeField(null=True)
    marks = models.JSONField()
    metrics = models.JSONField()
    total_dead_letters = models.BigIntegerField(null=True)
    total_late = models.BigIntegerField(null=True)
    total_dropped = models.BigIntegerField(null=True)
    ttls = models.JSONField(null=True)
    epoch = models.TextField()
    token = models.TextField()
    input = models.JSONField(null=True)
    total_rows_in = models.BigIntegerField(null=True)

    class Meta:
        managed = False
        db_table = table("batch")
        ordering = ["pipeline", "-txid"]
        verbose_name_plural = "batches"

    def __str__(self):
        return f"{self.pipeline_id} {self.txid}"


class Driver(models.Model):
    pipeline = models.OneToOneField(
        Pipeline, models.DO_NOTHING, db_column="pipeline", primary_key=True, related_name="driver"
    )
    host = models.TextField()
    pid = models.IntegerField()
    since = models.DateTimeField()
    status = models.TextField()
    message = models.TextField()
    progress = models.JSONField()
    updated_at = models.DateTimeField()
    failures = models.IntegerField()
    max_failures = models.IntegerField(null=True)
    next_try_at = models.DateTimeField(null=True)
    started = models.JSONField()

    class Meta:
        managed = False
        db_table = table("driver")

    def __str__(self):
        return f"{self.pipeline_id} on {self.host}, pid {self.pid}"


class PipelineWish(models.Model):
    """Whether a pipeline should be paused. services.py writes it, and the driver follows it. Named after its table."""

    pipeline = models.OneToOneField(
        Pipeline, models.DO_NOTHING, db_column="pipeline", primary_key=True, related_name="desired_state"
    )
    paused = models.BooleanField()
    requested_by = models.TextField()
    requested_at = models.DateTimeField(db_default=Now())

    class Meta:
        managed = False
        db_table = table("pipeline_wish")
        verbose_name_plural = "pipeline wishes"

    def __str__(self):
        return f"{self.pipeline_id} {'paused' if self.paused else 'running'}"


class State(models.Model):
    name = models.TextField(primary_key=True)
    pipeline = models.ForeignKey(Pipeline, models.DO_NOTHING, db_column="pipeline", related_name="states")
    definition = models.JSONField()
    version = models.IntegerField()
    ttl = models.DurationField(null=True)
    guarantee = models.TextField()
    since_txid = models.BigIntegerField()
    oldest_txid = models.BigIntegerField()
    expired_until = models.DateTimeField(null=True)
    tiles_until = models.JSONField()
    measures_since = models.JSONField()
    last_fed_txid = models.BigIntegerField(null=True)
    measures_last_fed = models.JSONField()
    declared = models.JSONField()
    edits = models.JSONField()
    created_at = models.DateTimeField()
    finding = models.TextField()
    warning = models.TextField()

    class Meta:
        managed = False
        db_table = table("state")
        ordering = ["name"]
        permissions = [("run_sql", "Can run SQL over the live views")]

    def __str__(self):
        return self.name

    @property
    def backend(self) -> str:
        """The name of the backend where the rows live."""
        return (UNSAID | self.definition)["backend"]


class Former(models.Model):
    """A state or pipeline that was retired or renamed."""

    id = models.BigIntegerField(primary_key=True)
    kind = models.TextField()
    name = models.TextField()
    fate = models.TextField()
    detail = models.TextField()
    pipeline = models.TextField()
    txid = models.BigIntegerField()
    definition = models.JSONField(null=True)
    checkpoint_id = models.TextField(null=True)  # noqa: DJ001 (NULL: unknown)
    unfinished = models.BooleanField()
    at = models.DateTimeField()
    by = models.TextField()

    class Meta:
        managed = False
        db_table = table("former")
        ordering = ["-at"]

    def __str__(self):
        return f"{self.kind} {self.name} {self.fate}"


class Reprocess(models.Model):
    """A reprocess of a pipeline's states; the newest may be unfinished."""

    id = models.BigIntegerField(primary_key=True)
    pipeline = models.ForeignKey(Pipeline, models.DO_NOTHING, db_column="pipeline", related_name="reprocess_runs")
    phase = models.TextField()
    checkpoint = models.TextField()
    started_at = models.DateTimeField()
    swapped_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    accepted = models.TextField()
    keep_until = models.DateTimeField(null=True)
    kept = models.JSONField(null=True)

    class Meta:
        managed = False
        db_table = table("reprocess")
        ordering = ["-id"]
        verbose_name_plural = "reprocesses"

    def __str__(self):
        return f"reprocess of {self.pipeline_id}, {self.phase}"


class DeadLetter(models.Model):
    id = models.BigIntegerField(primary_key=True)
    pipeline = models.ForeignKey(Pipeline, models.DO_NOTHING, db_column="pipeline", related_name="letters")
    txid = models.BigIntegerField()
    state = models.TextField()
    part = models.IntegerField()
    source = models.TextField()
    line_number = models.BigIntegerField(null=True)
    line = models.TextField()
    reason = models.TextField()
    at = models.DateTimeField()
    record = models.JSONField(null=True)
    replay_at = models.DateTimeField(null=True)
    replay_by = models.TextField()
    replay_txid = models.BigIntegerField(null=True)
    counted_by = models.TextField()

    class Meta:
        managed = False
        db_table = table("dead_letter")
        ordering = ["-id"]
        permissions = [
            ("view_dead_letters", "Can view the raw input of dead letters"),
            ("replay_dead_letters", "Can replay dead letters"),
        ]

    def __str__(self):
        return self.source if self.line_number is None else f"{self.source}:{self.line_number}"


class MaintenanceRun(models.Model):
    """One compaction, expiry or audit of one state. services.py writes it, from the request to the end."""

    class Kind(models.TextChoices):
        COMPACTION = "compaction"
        EXPIRY = "expiry"
        AUDIT = "audit"

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    UNFINISHED = [Status.QUEUED, Status.RUNNING]

    id = models.BigAutoField(primary_key=True)
    kind = models.TextField(choices=Kind)
    state = models.ForeignKey(State, models.DO_NOTHING, db_column="state", related_name="runs")
    status = models.TextField(choices=Status, default=Status.QUEUED)
    requested_by = models.TextField()
    requested_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancel_requested = models.BooleanField(default=False)
    progress = models.JSONField(default=dict)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    error = models.TextField(default="")

    class Meta:
        managed = False
        db_table = table("maintenance_run")
        ordering = ["-id"]

    def __str__(self):
        return f"{self.kind} of {self.state_id}, run {self.id}"

    @property
    def steps(self) -> list[dict[str, Any]]:
        """What each step has looked at and removed so far: `{"step": .., "seen": n, "removed": n}`."""
        return list(self.progress.get("steps", []))

    @property
    def is_finished(self) -> bool:
        return self.status not in self.UNFINISHED


class PipelineLimits(models.Model):
    """Limits of one pipeline. Those that are not None replace the limits in the settings. See limits.py."""

    pipeline = models.TextField(unique=True)
    stale_seconds = models.FloatField(null=True, blank=True)
    rejected_share = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ["pipeline"]
        verbose_name, verbose_name_plural = "limits of a pipeline", "limits of pipelines"

    def __str__(self):
        return self.pipeline


class IdempotencyKey(models.Model):
    """An `Idempotency-Key` that a client sent. run_id: the maintenance run that it requested. See idempotency.py."""

    caller = models.TextField()
    key = models.TextField()
    digest = models.TextField()
    run_id = models.BigIntegerField(null=True)
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["caller", "key"], name="one_row_per_idempotency_key")]

    def __str__(self):
        return self.key
