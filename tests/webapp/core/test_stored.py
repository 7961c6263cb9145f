"""What the database knows, as metrics."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from state_backends import Catalog
from state_backends.dead_letters import DeadLetter
from tests.webapp.committed_flights import no_database
from webapp.core import system_snapshot
from webapp.core.metrics import render
from webapp.core.stored_metrics import StoredFigures
from webapp.states.models import MaintenanceRun

OF_FLIGHTS = {"pipeline": "flights"}


@pytest.fixture
def figure():
    """The value of one sample, None where there is none."""

    def find(name, **labels):
        system_snapshot.forget()
        text, _ = render(StoredFigures())
        samples = [s for family in text_string_to_metric_families(text.decode()) for s in family.samples]
        found = [sample.value for sample in samples if sample.name == name and sample.labels == labels]
        assert len(found) <= 1
        return found[0] if found else None

    return find


def test_a_pipeline_at_work(filled, figure):
    assert figure("tidemark_committed_txid", **OF_FLIGHTS) == 2
    assert 0 <= figure("tidemark_freshness_seconds", **OF_FLIGHTS) < 60
    assert 0 <= figure("tidemark_seconds_since_commit", **OF_FLIGHTS) < 60
    assert figure("tidemark_lag_seconds", **OF_FLIGHTS) == 0
    assert figure("tidemark_pending_input", unit="files", **OF_FLIGHTS) == 0
    assert figure("tidemark_rows_per_second", **OF_FLIGHTS) > 0
    assert figure("tidemark_driver_status", status="running", **OF_FLIGHTS) == 1
    assert figure("tidemark_driver_status", status="failed", **OF_FLIGHTS) == 0
    assert figure("tidemark_reprocessing", **OF_FLIGHTS) == 0


def test_a_pipeline_that_falls_behind(flights, figure):
    oldest = datetime.now(UTC) - timedelta(minutes=10)
    flights.report("running", pending={"count": 3, "unit": "files", "oldest": oldest.isoformat()})

    assert 600 <= figure("tidemark_lag_seconds", **OF_FLIGHTS) < 660
    assert figure("tidemark_pending_input", unit="files", **OF_FLIGHTS) == 3


def test_what_is_not_known_has_no_sample(flights, figure):
    assert figure("tidemark_committed_txid", **OF_FLIGHTS) == 0
    assert figure("tidemark_freshness_seconds", **OF_FLIGHTS) is None
    assert figure("tidemark_lag_seconds", **OF_FLIGHTS) is None
    assert figure("tidemark_last_batch_seconds", **OF_FLIGHTS) is None


def test_a_driver_in_trouble(flights, figure):
    flights.fail("the disk is full", failures=3, next_try_at=timezone.now())

    assert figure("tidemark_driver_failures", **OF_FLIGHTS) == 3
    assert figure("tidemark_driver_status", status="restarting", **OF_FLIGHTS) == 1


def test_what_could_not_be_counted(flights, figure):
    letter = DeadLetter(source="a.jsonl", line="{", reason="cut short", line_number=3)
    flights.commit({("EWR", "C00"): 5}, [letter], late=4, dropped=2)

    assert figure("tidemark_dead_letters_total", **OF_FLIGHTS) == 1
    assert figure("tidemark_late_events_total", **OF_FLIGHTS) == 4
    assert figure("tidemark_dropped_events_total", **OF_FLIGHTS) == 2


def test_batches_last_and_recent(filled, figure):
    assert figure("tidemark_last_batch_seconds", **OF_FLIGHTS) >= 0
    assert figure("tidemark_last_batch_rows", **OF_FLIGHTS) == 1_000
    quickest, slowest = (
        figure("tidemark_recent_batch_seconds", quantile=quantile, **OF_FLIGHTS) for quantile in ("0.5", "1.0")
    )
    assert quickest <= slowest
    assert figure("tidemark_recent_batch_retries", **OF_FLIGHTS) == 0


def test_states_by_size(filled, figure):
    labels = {"state": "flights_by_carrier", "backend": "postgres", **OF_FLIGHTS}

    assert figure("tidemark_state_keys", **labels) == 60
    assert figure("tidemark_state_bytes", **labels) > 8192


def test_maintenance(filled, figure):
    for status in ("done", "failed"):
        MaintenanceRun.objects.create(
            kind="compaction",
            state_id="totals",
            status=status,
            requested_by="x",
            finished_at=timezone.now() - timedelta(hours=1),
        )

    assert figure("tidemark_maintenance_runs", kind="compaction", status="failed") == 1
    assert figure("tidemark_maintenance_runs", kind="expiry", status="done") == 0
    assert 3600 <= figure("tidemark_maintenance_last_success_age_seconds", kind="compaction") < 3700
    assert figure("tidemark_maintenance_last_success_age_seconds", kind="expiry") is None


def test_members(flights, figure):
    flights.join()
    flights.join("worker")

    assert figure("tidemark_members", role="driver", healthy="true") == 1
    assert figure("tidemark_members", role="worker", healthy="true") == 1


def test_more_pipelines_cost_no_more_statements(filled, django_assert_num_queries):
    statements = queries()
    for name in ("a", "b", "c"):
        Catalog(filled.conn).register_pipeline(name, spout="opaque")
    system_snapshot.forget()

    assert 0 < queries() == statements


def test_eager_scrapers_share_a_look(filled):
    queries()

    assert queries() == 0


def test_without_a_database_it_says_so(transactional_db, figure):
    with no_database():
        assert figure("tidemark_database_up") == 0
        assert figure("tidemark_committed_txid", **OF_FLIGHTS) is None


def queries():
    from django.db import connection

    with CaptureQueriesContext(connection) as seen:
        render(StoredFigures())
    return len(seen)
