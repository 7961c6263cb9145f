"""Metrics read from the database at each scrape: pipelines, their batches, states, maintenance and members.

They are correct whichever processes run, because they come from the database. An unknown value has no sample: a
pipeline without a batch has no freshness, and a lag that the source does not know is not 0.
"""

from collections.abc import Iterable, Iterator

from django.db import Error
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegauge.webapp.catalog import replicas
from tidegauge.webapp.catalog.batches import BatchSummary
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.state_summary import StateSummary
from tidegauge.webapp.catalog.verdicts import TONES, verdict
from tidegauge.webapp.console.system_snapshot import SystemSnapshot, age, state_summaries, system_snapshot

STATUSES = (
    "starting", "running", "paused", "restarting", "stopped", "finished", "failed", "lost", "never started",
)  # fmt: skip
QUANTILES = (0.5, 0.9, 1.0)


class StoredMetrics(Collector):
    """While the database is unavailable, tidegauge_database_up is 0 and all other metrics are absent."""

    def collect(self) -> Iterator[Metric]:
        up = _gauge("tidegauge_database_up", "1 while the database answers")
        try:
            families = list(_families(system_snapshot(), state_summaries()))
            up.add_metric([], 1)
        except Error:
            families = []
            up.add_metric([], 0)
        yield up
        yield from families

    def describe(self) -> Iterable[Metric]:
        return []  # because registering the collector would otherwise read the database


class ReplicaMetrics(Collector):
    """The standings of the read replicas in this process."""

    def collect(self) -> Iterator[Metric]:
        used = _gauge("tidegauge_replica_used", "1 while a replica answers, 0 while it is left out", "replica")
        lag = _gauge("tidegauge_replica_lag_seconds", "Age of the oldest commit that a replica may lack", "replica")
        for standing in replicas.configured.standings():
            used.add_metric([standing.name], standing.is_used)
            if standing.lag_seconds is not None:
                lag.add_metric([standing.name], standing.lag_seconds)
        yield from (used, lag)

    def describe(self) -> Iterable[Metric]:
        return []


def _families(snapshot: SystemSnapshot, states: list[StateSummary]) -> Iterator[Metric]:
    yield from _pipelines(snapshot)
    yield from _batches(snapshot.batches)
    yield from _states(states)
    yield from _maintenance(snapshot)
    yield _members(snapshot)
    yield from _webhooks(snapshot)


def _pipelines(snapshot: SystemSnapshot) -> Iterator[Metric]:
    committed = _gauge("tidegauge_committed_txid", "Txid of the committed batch", "pipeline")
    freshness = _gauge("tidegauge_freshness_seconds", "Age of the committed batch's time", "pipeline")
    since = _gauge("tidegauge_seconds_since_commit", "Time since the last commit", "pipeline")
    lag = _gauge("tidegauge_lag_seconds", "Age of the oldest input not counted yet", "pipeline")
    pending = _gauge("tidegauge_pending_input", "Input not read yet, in the source's unit", "pipeline", "unit")
    rate = _gauge("tidegauge_rows_per_second", "Rows counted per second in recent batches", "pipeline")
    status = _gauge("tidegauge_driver_status", "1 for the status the driver is in", "pipeline", "status")
    verdicts = _gauge("tidegauge_pipeline_verdict", "1 for the verdict on the pipeline", "pipeline", "verdict")
    rejected = _gauge("tidegauge_rejected_share", "Share of dead letters among the rows of recent batches", "pipeline")
    failures = _gauge("tidegauge_driver_failures", "Failures in a row", "pipeline")
    reprocessing = _gauge("tidegauge_reprocessing", "1 during a reprocess", "pipeline")
    for one in snapshot.pipelines:
        name = [one.name]
        committed.add_metric(name, one.committed_txid)
        if one.committed_time is not None:
            freshness.add_metric(name, age(one.committed_time, snapshot.at))
        if one.committed_at is not None:
            since.add_metric(name, age(one.committed_at, snapshot.at))
        if one.lag_seconds is not None:
            lag.add_metric(name, one.lag_seconds)
        if one.pending:
            pending.add_metric([one.name, one.pending["unit"]], one.pending["count"])
        rate.add_metric(name, one.rows_per_second)
        failures.add_metric(name, one.failures)
        reprocessing.add_metric(name, one.reprocess is not None)
        for each in STATUSES:
            status.add_metric([one.name, each], each == one.status)
        found = verdict(one).name
        for each in TONES:
            verdicts.add_metric([one.name, each], each == found)
        if one.rejected_share is not None:
            rejected.add_metric(name, one.rejected_share)
    yield from (committed, freshness, since, lag, pending, rate, status, verdicts, rejected, failures, reprocessing)
    yield from _totals(snapshot.pipelines)


def _totals(pipelines: list[PipelineStatus]) -> Iterator[Metric]:
    letters = _counter("tidegauge_dead_letters", "Input that could not be counted", "pipeline")
    late = _counter("tidegauge_late_events", "Events that arrived after the watermark", "pipeline")
    dropped = _counter("tidegauge_dropped_events", "Late events that were left out", "pipeline")
    for one in pipelines:
        letters.add_metric([one.name], one.dead_letters)
        late.add_metric([one.name], one.late)
        dropped.add_metric([one.name], one.dropped)
    yield from (letters, late, dropped)


def _batches(batches: dict[str, list[BatchSummary]]) -> Iterator[Metric]:
    last = _gauge("tidegauge_last_batch_seconds", "Duration of the committed batch", "pipeline")
    rows = _gauge("tidegauge_last_batch_rows", "Rows of the committed batch", "pipeline")
    recent = _gauge(
        "tidegauge_recent_batch_seconds", "Durations of the last 50 batches, by quantile", "pipeline", "quantile"
    )
    retried = _gauge("tidegauge_recent_batch_retries", "Batches with a retry, of the last 50", "pipeline")
    for pipeline, every in batches.items():
        committed = [batch for batch in every if batch.status == "committed" and batch.seconds is not None]
        retried.add_metric([pipeline], sum(batch.attempt > 1 for batch in every))
        if committed:
            seconds = sorted(batch.seconds or 0.0 for batch in committed)
            last.add_metric([pipeline], committed[0].seconds or 0.0)
            rows.add_metric([pipeline], committed[0].rows_in or 0)
            for quantile in QUANTILES:
                recent.add_metric([pipeline, str(quantile)], seconds[round(quantile * (len(seconds) - 1))])
    yield from (last, rows, recent, retried)


def _states(states: list[StateSummary]) -> Iterator[Metric]:
    keys = _gauge("tidegauge_state_keys", "Keys of a state, estimated if it is large", "state", "pipeline", "backend")
    size = _gauge("tidegauge_state_bytes", "Table, indexes and changelog of a state", "state", "pipeline", "backend")
    for one in states:
        labels = [one.name, one.pipeline, one.backend]
        keys.add_metric(labels, one.keys_estimate)
        size.add_metric(labels, one.bytes)
    yield from (keys, size)


def _maintenance(snapshot: SystemSnapshot) -> Iterator[Metric]:
    runs = _gauge("tidegauge_maintenance_runs", "Stored maintenance runs by status", "kind", "status")
    success = _gauge("tidegauge_maintenance_last_success_age_seconds", "Time since the last run that succeeded", "kind")
    counts = {(each.kind, each.status): each.count for each in snapshot.runs}
    for kind in MaintenanceRun.Kind.values:
        for status in MaintenanceRun.Status.values:
            runs.add_metric([kind, status], counts.get((kind, status), 0))
    for each in snapshot.runs:
        if each.status == MaintenanceRun.Status.DONE and each.last is not None:
            success.add_metric([each.kind], age(each.last, snapshot.at))
    yield from (runs, success)
    deviations = _gauge("tidegauge_audit_deviations", "Keys that deviated in the newest audit of a state", "state")
    for state, keys in snapshot.deviations.items():
        deviations.add_metric([state], keys)
    yield deviations


def _members(snapshot: SystemSnapshot) -> Metric:
    members = _gauge("tidegauge_members", "Processes that report that they are alive", "role", "healthy")
    for role in ("driver", "worker"):
        for healthy in (True, False):
            alike = [one for one in snapshot.members if one.role == role and one.healthy is healthy]
            members.add_metric([role, str(healthy).lower()], len(alike))
    return members


def _webhooks(snapshot: SystemSnapshot) -> Iterator[Metric]:
    waiting = _gauge("tidegauge_webhook_pending", "Messages not delivered yet", "webhook")
    oldest = _gauge("tidegauge_webhook_pending_seconds", "Age of the oldest message not delivered yet", "webhook")
    dead = _gauge("tidegauge_webhook_dead", "Messages that were given up", "webhook")
    for each in snapshot.webhooks:
        waiting.add_metric([each.webhook], each.pending)
        dead.add_metric([each.webhook], each.dead)
        if each.oldest is not None:
            oldest.add_metric([each.webhook], age(each.oldest, snapshot.at))
    yield from (waiting, oldest, dead)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=labels)
