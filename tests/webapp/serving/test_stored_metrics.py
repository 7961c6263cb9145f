"""Metrics read from the database."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from tests.webapp.committed_flights import no_database
from tidegauge.state_backends import Catalog
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.console import system_snapshot
from tidegauge.webapp.core.metrics import render
from tidegauge.webapp.serving.stored_metrics import StoredMetrics

OF_FLIGHTS = {"pipeline": "flights"}


@pytest.fixture
def sample_value():
    """The value of one sample, None if there is none."""

    def find(name, **labels):
        system_snapshot.clear_cache()
        text, _ = render(StoredMetrics())
        samples = [s for family in text_string_to_metric_families(text.decode()) for s in family.samples]
        found = [sample.value for sample in samples if sample.name == name and sample.labels == labels]
        assert len(found) <= 1
        return found[0] if found else None

    return find


def test_a_running_pipeline(filled, sample_value):
    assert sample_value("tidegauge_committed_txid", **OF_FLIGHTS) == 2
    assert 0 <= sample_value("tidegauge_freshness_seconds", **OF_FLIGHTS) < 60
    assert 0 <= sample_value("tidegauge_seconds_since_commit", **OF_FLIGHTS) < 60
    assert sample_value("tidegauge_lag_seconds", **OF_FLIGHTS) == 0
    assert sample_value("tidegauge_pending_input", unit="files", **OF_FLIGHTS) == 0
    assert sample_value("tidegauge_rows_per_second", **OF_FLIGHTS) > 0
    assert sample_value("tidegauge_driver_status", status="running", **OF_FLIGHTS) == 1
    assert sample_value("tidegauge_driver_status", status="failed", **OF_FLIGHTS) == 0
    assert sample_value("tidegauge_reprocessing", **OF_FLIGHTS) == 0
    assert sample_value("tidegauge_pipeline_verdict", verdict="caught up", **OF_FLIGHTS) == 1
    assert sample_value("tidegauge_pipeline_verdict", verdict="stale", **OF_FLIGHTS) == 0
    assert sample_value("tidegauge_rejected_share", **OF_FLIGHTS) == 0


def test_a_pipeline_that_falls_behind(flights, sample_value):
    oldest = datetime.now(UTC) - timedelta(minutes=10)
    flights.report("running", pending={"count": 3, "unit": "files", "oldest": oldest.isoformat()})

    assert 600 <= sample_value("tidegauge_lag_seconds", **OF_FLIGHTS) < 660
    assert sample_value("tidegauge_pending_input", unit="files", **OF_FLIGHTS) == 3
    assert sample_value("tidegauge_pipeline_verdict", verdict="stale", **OF_FLIGHTS) == 1


def test_an_unknown_value_has_no_sample(flights, sample_value):
    assert sample_value("tidegauge_committed_txid", **OF_FLIGHTS) == 0
    assert sample_value("tidegauge_freshness_seconds", **OF_FLIGHTS) is None
    assert sample_value("tidegauge_lag_seconds", **OF_FLIGHTS) is None
    assert sample_value("tidegauge_last_batch_seconds", **OF_FLIGHTS) is None


def test_a_failing_driver(flights, sample_value):
    flights.fail("the disk is full", failures=3, next_try_at=timezone.now())

    assert sample_value("tidegauge_driver_failures", **OF_FLIGHTS) == 3
    assert sample_value("tidegauge_driver_status", status="restarting", **OF_FLIGHTS) == 1


def test_input_that_could_not_be_counted(flights, sample_value):
    letter = DeadLetter(source="a.jsonl", line="{", reason="cut short", line_number=3)
    flights.commit({("EWR", "C00"): 5}, [letter], late=4, dropped=2)

    assert sample_value("tidegauge_dead_letters_total", **OF_FLIGHTS) == 1
    assert sample_value("tidegauge_late_events_total", **OF_FLIGHTS) == 4
    assert sample_value("tidegauge_dropped_events_total", **OF_FLIGHTS) == 2


def test_batches_last_and_recent(filled, sample_value):
    assert sample_value("tidegauge_last_batch_seconds", **OF_FLIGHTS) >= 0
    assert sample_value("tidegauge_last_batch_rows", **OF_FLIGHTS) == 1_000
    quickest, slowest = (
        sample_value("tidegauge_recent_batch_seconds", quantile=quantile, **OF_FLIGHTS) for quantile in ("0.5", "1.0")
    )
    assert quickest <= slowest
    assert sample_value("tidegauge_recent_batch_retries", **OF_FLIGHTS) == 0


def test_states_by_size(filled, sample_value):
    labels = {"state": "flights_by_carrier", "backend": "postgres", **OF_FLIGHTS}

    assert sample_value("tidegauge_state_keys", **labels) == 60
    assert sample_value("tidegauge_state_bytes", **labels) > 8192


def test_maintenance(filled, sample_value):
    for status in ("done", "failed"):
        MaintenanceRun.objects.create(
            kind="compaction",
            state_id="totals",
            status=status,
            requested_by="x",
            finished_at=timezone.now() - timedelta(hours=1),
        )

    assert sample_value("tidegauge_maintenance_runs", kind="compaction", status="failed") == 1
    assert sample_value("tidegauge_maintenance_runs", kind="expiry", status="done") == 0
    assert 3600 <= sample_value("tidegauge_maintenance_last_success_age_seconds", kind="compaction") < 3700
    assert sample_value("tidegauge_maintenance_last_success_age_seconds", kind="expiry") is None


def test_members(flights, sample_value):
    flights.join()
    flights.join("worker")

    assert sample_value("tidegauge_members", role="driver", healthy="true") == 1
    assert sample_value("tidegauge_members", role="worker", healthy="true") == 1


def test_more_pipelines_cost_no_more_statements(filled, django_assert_num_queries):
    statements = queries()
    for name in ("a", "b", "c"):
        Catalog(filled.conn).register_pipeline(name, spout="opaque")
    system_snapshot.clear_cache()

    assert 0 < queries() == statements


def test_frequent_scrapes_share_a_snapshot(filled):
    queries()

    assert queries() == 0


def test_without_a_database_only_that_is_reported(transactional_db, sample_value):
    with no_database():
        assert sample_value("tidegauge_database_up") == 0
        assert sample_value("tidegauge_committed_txid", **OF_FLIGHTS) is None


def queries():
    from django.db import connection

    with CaptureQueriesContext(connection) as captured:
        render(StoredMetrics())
    return len(captured)
