"""Documents of pipelines, states, batches and runs: each serializer renders one, and describes it in /api/schema.

The API, the commands with `--json` and the webhooks render the same ones.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from tidegauge.state_backends import BACKENDS
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.series import TimeRange
from tidegauge.webapp.catalog.verdicts import TONES, verdict

LARGEST_TXID = 2**63 - 1
EPOCH = "the ledger's incarnation: batches of two epochs have nothing to do with each other, even of equal txid"

DRIVER_STATUSES = [
    "starting", "running", "paused", "restarting", "stopped", "finished", "failed", "lost", "never started",
]  # fmt: skip


class BatchNumber(serializers.IntegerField):
    def __init__(self, **options):
        super().__init__(min_value=0, max_value=LARGEST_TXID, **options)


class MeasureSerializer(serializers.Serializer):
    aggregate = serializers.CharField()
    type = serializers.CharField()
    since_txid = serializers.IntegerField(
        help_text="the measure counts everything after this batch only; 0: from the state's beginning"
    )
    last_fed_txid = serializers.IntegerField(
        allow_null=True, help_text="the last batch that fed the measure, which is no longer declared; null: it is fed"
    )


class BackendName(serializers.ChoiceField):
    """The name of a backend, also of one that was registered after this module was imported."""

    def __init__(self, **options):
        super().__init__((), **options)

    @property
    def choices(self):
        return {name: name for name in BACKENDS}

    @choices.setter
    def choices(self, given):
        """DRF sets what a field is made with."""

    def to_representation(self, value):
        return value


class StateSerializer(serializers.Serializer):
    name = serializers.CharField()
    pipeline = serializers.CharField()
    kind = serializers.ChoiceField(["opaque", "transactional", "non_transactional"])
    key = serializers.DictField(child=serializers.CharField(), help_text="column to SQL type, in order")
    measures = serializers.DictField(child=MeasureSerializer())
    ttl_seconds = serializers.FloatField(allow_null=True, help_text="null: rows are kept without limit")
    tiles = serializers.DictField(
        child=serializers.FloatField(allow_null=True), allow_null=True, source="tile_seconds",
        help_text="seconds that tiles of each size are kept, the finest first, null without limit; null: it has none",
    )  # fmt: skip
    changelog = serializers.BooleanField()
    backend = BackendName(help_text="where its rows live")
    keys_estimate = serializers.IntegerField(
        help_text="of a state outside the database: all stored rows, also expired or removed ones not cleaned up yet"
    )
    bytes = serializers.IntegerField(
        help_text="table, indexes and changelog; of a state outside the database an estimate"
    )
    since_txid = serializers.IntegerField(
        help_text="the state counts everything after this batch only; 0: it holds all there was"
    )
    fed = serializers.BooleanField(help_text="false where its pipeline runs without it: its values stand still")
    last_fed_txid = serializers.IntegerField(
        allow_null=True, help_text="the last batch that fed the state; null while it is fed"
    )
    epoch = serializers.CharField(allow_blank=True, help_text=EPOCH)
    txid = serializers.IntegerField()
    batch_time = serializers.DateTimeField(allow_null=True)
    guarantee = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"])
    finding = serializers.CharField(
        allow_blank=True, help_text="why it is not served: what its store holds and what is committed do not agree"
    )
    warning = serializers.CharField(allow_blank=True, help_text="what to know about the settings of its store")


class PendingSerializer(serializers.Serializer):
    count = serializers.IntegerField()
    unit = serializers.CharField()
    oldest = serializers.CharField(allow_null=True, required=False)
    alarm = serializers.CharField(required=False, help_text="what the source needs from an operator, in words")


class ReprocessSerializer(serializers.Serializer):
    status = serializers.ChoiceField(DRIVER_STATUSES)
    message = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField()
    batches = serializers.IntegerField(help_text="committed so far")
    rows = serializers.IntegerField(help_text="read by them")
    rows_per_second = serializers.FloatField()
    pending = PendingSerializer(allow_null=True)


class LastReprocessSerializer(serializers.Serializer):
    swapped_at = serializers.DateTimeField(help_text="when the states replaced the former ones")
    kept_until = serializers.DateTimeField(
        allow_null=True, help_text="until then the former states can be put back; null: they are not kept"
    )
    bytes = serializers.IntegerField(help_text="of the former states, as long as they are kept")
    lacks = serializers.CharField(
        allow_blank=True, help_text="what was counted before and is missing from the states, as it was accepted"
    )


class PipelineSerializer(serializers.Serializer):
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    spout = serializers.CharField(help_text="what the source promises on replay")
    guarantee = serializers.CharField(allow_blank=True, help_text="the weakest of its states' guarantees")
    status = serializers.ChoiceField(DRIVER_STATUSES)
    verdict = serializers.ChoiceField(list(TONES), help_text="how the pipeline is doing, as pages and metrics say it")
    verdict_reason = serializers.CharField(help_text="why, in words")
    message = serializers.CharField(allow_blank=True, help_text="why the driver failed, restarts or tries again")
    failures = serializers.IntegerField(help_text="in a row, without a batch committed between")
    max_failures = serializers.IntegerField(allow_null=True, help_text="how many failures in a row end the driver")
    next_try_at = serializers.DateTimeField(allow_null=True, help_text="when a driver that restarts tries again")
    wanted = serializers.ChoiceField(
        ["running", "paused"], help_text="as requested; the driver follows after the current batch"
    )
    wanted_by = serializers.CharField(allow_blank=True)
    wanted_at = serializers.DateTimeField(allow_null=True)
    epoch = serializers.CharField(allow_blank=True, help_text=EPOCH)
    committed_txid = serializers.IntegerField()
    committed_time = serializers.DateTimeField(allow_null=True)
    committed_at = serializers.DateTimeField(allow_null=True)
    open_txid = serializers.IntegerField(allow_null=True)
    rows_per_second = serializers.FloatField()
    pending = PendingSerializer(allow_null=True, help_text="input not read yet; null where unknown")
    waiting_since = serializers.DateTimeField(
        allow_null=True, help_text="when the oldest input came that is not counted; null where none or unknown"
    )
    lag_seconds = serializers.FloatField(allow_null=True, help_text="its age; 0 where none waits, null where unknown")
    dead_letters = serializers.IntegerField(help_text="of all committed batches, as are late and dropped")
    rejected_share = serializers.FloatField(
        allow_null=True, help_text="dead letters of the rows of recent batches, 0 to 1; null without recent batches"
    )
    late = serializers.IntegerField(help_text="events that came after the watermark")
    dropped = serializers.IntegerField(help_text="late events that were left out")
    states = serializers.ListField(child=serializers.CharField())
    reprocess = ReprocessSerializer(
        allow_null=True, help_text="its states are being reprocessed while the old ones are served; null: they are not"
    )
    last_reprocess = LastReprocessSerializer(
        allow_null=True, help_text="the reprocess that the states are from; null: they were never reprocessed"
    )

    def to_representation(self, pipeline):
        # Once for both, because the limits may change between two verdicts.
        found = verdict(pipeline)
        return super().to_representation(vars(pipeline) | {"verdict": found.name, "verdict_reason": found.reason})


class TasksSerializer(serializers.Serializer):
    tasks = serializers.IntegerField(help_text="how many tasks wrote the state")
    largest = serializers.IntegerField(help_text="keys of the task that had the most")


class PendingAtCommitSerializer(serializers.Serializer):
    """Input that no batch had read when the driver looked after the commit."""

    count = serializers.IntegerField()
    unit = serializers.CharField()


class MetricsSerializer(serializers.Serializer):
    duration_ms = serializers.DictField(
        child=serializers.IntegerField(), required=False, help_text="by Spark's names: triggerExecution, addBatch, .."
    )
    input_rows = serializers.IntegerField(required=False)
    input_rows_per_second = serializers.FloatField(required=False)
    processed_rows_per_second = serializers.FloatField(required=False)
    pending = PendingAtCommitSerializer(required=False)
    lag_seconds = serializers.FloatField(
        required=False, help_text="how long the oldest input not read had waited at the commit; 0 where none did"
    )
    event_age_seconds = serializers.FloatField(
        required=False, help_text="how old the batch's newest event was at the commit; of pipelines with event time"
    )


class BatchSerializer(serializers.Serializer):
    pipeline = serializers.CharField()
    epoch = serializers.CharField(allow_blank=True, help_text="of the ledger, when the batch was begun")
    txid = serializers.IntegerField()
    attempt = serializers.IntegerField()
    status = serializers.ChoiceField(["open", "committed"])
    batch_time = serializers.DateTimeField()
    committed_at = serializers.DateTimeField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True)
    rows_in = serializers.IntegerField(allow_null=True)
    keys_written = serializers.DictField(child=serializers.IntegerField(), help_text="state to number of keys")
    dead_letters = serializers.IntegerField()
    late = serializers.IntegerField(help_text="events that came after the watermark")
    dropped = serializers.IntegerField(help_text="late events that were left out")
    tasks = serializers.DictField(child=TasksSerializer(), help_text="by state: how its keys were spread over tasks")
    watermark = serializers.DateTimeField(allow_null=True, help_text="the event time that the batch had reached")
    metrics = MetricsSerializer(help_text="what Spark and the source measured; empty until they have")


class Numbers(serializers.ListField):
    """One number for each time, null in a gap."""

    def __init__(self, **options):
        super().__init__(child=serializers.FloatField(allow_null=True), **options)

    def to_representation(self, numbers):
        """Leave them as they are, because a series may have thousands."""
        return numbers


def times_of(points: Sequence[float]) -> list[datetime]:
    """Return the times of points, which charts have as seconds since 1970, for an answer."""
    return [datetime.fromtimestamp(seconds, UTC) for seconds in points]


class Times(serializers.ListField):
    def __init__(self, **options):
        super().__init__(child=serializers.DateTimeField(), **options)

    def to_representation(self, points):
        return times_of(points)


class RangeOfAnswer(serializers.Serializer):
    to = serializers.DateTimeField(source="range.until")
    step_seconds = serializers.IntegerField(source="range.step_seconds", help_text="what one point stands for at most")
    times = Times(help_text="of the points")

    def get_fields(self):
        # `from` is a keyword of Python.
        return super().get_fields() | {"from": serializers.DateTimeField(source="range.since")}


class PipelineFiguresSerializer(serializers.Serializer):
    batches = Numbers(help_text="batches committed")
    rows = Numbers(required=False, help_text="rows read; absent for a restricted caller")
    rows_per_second = Numbers(
        required=False,
        help_text="rows by seconds since the commit before; absent for a restricted caller",
    )
    arrived_per_second = Numbers(
        required=False,
        help_text="rows that arrived, read or not, by these seconds; null if unknown; absent for a restricted caller",
    )
    seconds = Numbers(help_text="that a batch took on average")
    longest_seconds = Numbers(help_text="that the longest batch took")
    freshness_seconds = Numbers(
        help_text="how old the values were that readers saw, when a batch replaced them; the most"
    )
    lag_seconds = Numbers(help_text="how long the oldest input not read had waited at a commit; null if unknown")
    pending = Numbers(help_text="input not read after a commit, in the source's unit, the most; null if unknown")
    event_age_seconds = Numbers(
        help_text="how old the newest event of a batch was at its commit, the most; null without event time"
    )
    dead_letters = Numbers(help_text="input that could not be processed")
    late = Numbers(help_text="events that came after the watermark")
    dropped = Numbers(help_text="late events that were left out")
    replays = Numbers(help_text="batches that took more than one attempt")


@extend_schema_serializer(component_name="PipelineSeries")
class PipelineSeriesSerializer(RangeOfAnswer):
    pipeline = serializers.CharField()
    epoch = serializers.CharField(allow_blank=True, help_text=EPOCH)
    txid = BatchNumber(help_text="the committed batch")
    series = PipelineFiguresSerializer(help_text="one number for each time; null where a gap begins")
    phases = serializers.DictField(
        child=Numbers(),
        help_text="average seconds of a batch's parts, by Spark's names; empty for a restricted caller",
    )


class StepSerializer(serializers.Serializer):
    step = serializers.CharField()
    seen = serializers.IntegerField()
    removed = serializers.IntegerField()


class RunSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    kind = serializers.ChoiceField(MaintenanceRun.Kind.values)
    state = serializers.CharField(source="state_id")
    status = serializers.ChoiceField(MaintenanceRun.Status.values)
    requested_by = serializers.CharField()
    requested_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    cancel_requested = serializers.BooleanField()
    progress = StepSerializer(many=True, source="steps")
    before = serializers.DictField(child=serializers.IntegerField(), help_text="rows and bytes before the run")
    after = serializers.DictField(child=serializers.IntegerField(), help_text="rows and bytes after it")
    error = serializers.CharField(allow_blank=True)


def range_document(asked: TimeRange) -> dict[str, Any]:
    return {"from": asked.since, "to": asked.until, "step_seconds": asked.step_seconds}
