"""Pipelines, states, batches and runs as /api/schema describes them."""

from rest_framework import serializers

from webapp.states.models import MaintenanceRun


class MeasureSerializer(serializers.Serializer):
    aggregate = serializers.CharField()
    type = serializers.CharField()
    since_txid = serializers.IntegerField(help_text="the measure was added after this batch; 0: with the state")


class StateSerializer(serializers.Serializer):
    name = serializers.CharField()
    pipeline = serializers.CharField()
    kind = serializers.ChoiceField(["opaque", "transactional", "non_transactional"])
    key = serializers.DictField(child=serializers.CharField(), help_text="column to SQL type, in order")
    measures = serializers.DictField(child=MeasureSerializer())
    ttl_seconds = serializers.FloatField(allow_null=True, help_text="null: rows are kept for ever")
    changelog = serializers.BooleanField()
    backend = serializers.ChoiceField(["postgres", "redis"], help_text="where its rows live")
    keys_estimate = serializers.IntegerField(
        help_text="of a state in Redis: all that are stored, with those expired or removed and not cleaned up yet"
    )
    bytes = serializers.IntegerField(
        help_text="table, indexes and changelog; of a state in Redis an estimate from a sample of its rows"
    )
    since_txid = serializers.IntegerField(help_text="the state was added after this batch; 0: it holds all there was")
    txid = serializers.IntegerField()
    as_of = serializers.DateTimeField(allow_null=True)
    guarantee = serializers.CharField()
    isolation = serializers.ChoiceField(["committed", "uncommitted"])


class PendingSerializer(serializers.Serializer):
    count = serializers.IntegerField()
    unit = serializers.CharField()
    oldest = serializers.CharField(allow_null=True, required=False)
    alarm = serializers.CharField(required=False, help_text="what the source needs from people, in words")


DRIVER_STATUSES = [
    "starting", "running", "paused", "restarting", "stopped", "finished", "failed", "lost", "never started",
]  # fmt: skip


class ReprocessSerializer(serializers.Serializer):
    status = serializers.ChoiceField(DRIVER_STATUSES)
    message = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField()
    batches = serializers.IntegerField(help_text="committed so far")
    rows = serializers.IntegerField(help_text="read by them")
    rows_per_second = serializers.FloatField()
    pending = PendingSerializer(allow_null=True)


class PipelineSerializer(serializers.Serializer):
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    spout = serializers.CharField(help_text="what the source promises on replay")
    guarantee = serializers.CharField(allow_blank=True, help_text="the weakest of its states' guarantees")
    status = serializers.ChoiceField(DRIVER_STATUSES)
    message = serializers.CharField(allow_blank=True, help_text="why the driver failed, restarts or tries again")
    failures = serializers.IntegerField(help_text="in a row, without a batch committed between")
    max_failures = serializers.IntegerField(allow_null=True, help_text="how many failures in a row end the driver")
    next_try_at = serializers.DateTimeField(allow_null=True, help_text="when a driver that restarts tries again")
    wanted = serializers.ChoiceField(
        ["running", "paused"], help_text="as people wish it; the driver follows after the batch at hand"
    )
    wanted_by = serializers.CharField(allow_blank=True)
    wanted_at = serializers.DateTimeField(allow_null=True)
    committed_txid = serializers.IntegerField()
    committed_time = serializers.DateTimeField(allow_null=True)
    committed_at = serializers.DateTimeField(allow_null=True)
    open_txid = serializers.IntegerField(allow_null=True)
    rows_per_second = serializers.FloatField()
    pending = PendingSerializer(allow_null=True, help_text="input not read yet; null where unknown")
    lag_seconds = serializers.FloatField(allow_null=True)
    dead_letters = serializers.IntegerField(help_text="of all committed batches, as are late and dropped")
    late = serializers.IntegerField(help_text="events that came after the watermark")
    dropped = serializers.IntegerField(help_text="late events that were left out")
    states = serializers.ListField(child=serializers.CharField())
    reprocess = ReprocessSerializer(
        allow_null=True, help_text="its states are being fed anew while the old ones are served; null: they are not"
    )


class TasksSerializer(serializers.Serializer):
    tasks = serializers.IntegerField(help_text="how many tasks wrote the state")
    largest = serializers.IntegerField(help_text="keys of the task that had the most")


class MetricsSerializer(serializers.Serializer):
    duration_ms = serializers.DictField(
        child=serializers.IntegerField(), required=False, help_text="by Spark's names: triggerExecution, addBatch, .."
    )
    input_rows = serializers.IntegerField(required=False)
    input_rows_per_second = serializers.FloatField(required=False)
    processed_rows_per_second = serializers.FloatField(required=False)


class BatchSerializer(serializers.Serializer):
    pipeline = serializers.CharField()
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
    metrics = MetricsSerializer(help_text="what Spark measured; empty until it has")


class StepSerializer(serializers.Serializer):
    step = serializers.CharField()
    seen = serializers.IntegerField()
    removed = serializers.IntegerField()


class RunSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    kind = serializers.ChoiceField(MaintenanceRun.Kind.values)
    state = serializers.CharField()
    status = serializers.ChoiceField(MaintenanceRun.Status.values)
    requested_by = serializers.CharField()
    requested_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    cancel_requested = serializers.BooleanField()
    progress = StepSerializer(many=True)
    before = serializers.DictField(child=serializers.IntegerField(), help_text="rows and bytes before the run")
    after = serializers.DictField(child=serializers.IntegerField(), help_text="rows and bytes after it")
    error = serializers.CharField(allow_blank=True)
