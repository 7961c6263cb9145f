from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.webapp.console.dashboard.page_text import text
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus, ReprocessStatus
from tidegauge.webapp.catalog.verdicts import Limits, verdict, worst_first
from tidegauge.webapp.catalog.visible import Visible

NOTHING_PENDING = {"count": 0, "unit": "files", "oldest": None}
LIMITS = Limits(stale_seconds=300, rejected_share=0.05)
LETTER = DeadLetter("/in/a.jsonl", "{", "not JSON", 3)


def reprocess(status: str) -> ReprocessStatus:
    return ReprocessStatus(status, "", datetime.now(UTC), 1, 1, 1.0, None)


@pytest.fixture
def well(filled) -> PipelineStatus:
    """A pipeline that has counted everything, to be changed by `replace`."""
    return queries.pipeline("flights")


@pytest.mark.parametrize(
    ("change", "name", "tone"),
    [
        ({}, "caught up", "good"),
        ({"lag_seconds": 20.0}, "catching up", "good"),
        ({"lag_seconds": None, "pending": {"count": 4}}, "catching up", "good"),
        ({"lag_seconds": None, "pending": None}, "running", "good"),
        ({"lag_seconds": 960.0}, "stale", "bad"),
        ({"failures": 1}, "retrying", "watch"),
        ({"status": "restarting"}, "retrying", "watch"),
        ({"rejected_share": 0.26}, "rejecting", "watch"),
        ({"rejected_share": 0.05}, "caught up", "good"),
        ({"pending": NOTHING_PENDING | {"alarm": "the slot is full"}}, "source alarm", "watch"),
        ({"reprocess": reprocess("failed")}, "reprocess failed", "bad"),
        ({"reprocess": reprocess("running")}, "caught up", "good"),
        ({"status": "paused", "lag_seconds": 960.0}, "paused", "watch"),
        ({"status": "stopped", "rejected_share": 0.26}, "stopped", "watch"),
        ({"status": "failed", "lag_seconds": 960.0, "rejected_share": 0.26}, "failed", "bad"),
        ({"status": "lost", "failures": 2}, "lost", "bad"),
        ({"status": "starting", "lag_seconds": None, "pending": None}, "starting", "calm"),
        ({"status": "finished"}, "finished", "calm"),
        ({"status": "never started", "lag_seconds": None, "pending": None}, "never started", "calm"),
    ],
)
def test_the_first_rule_that_applies_decides(well, change, name, tone):
    found = verdict(replace(well, **change), LIMITS)

    assert (found.name, found.tone) == (name, tone)
    assert found.reason
    assert not found.reason.endswith(".")


def test_without_limits_nothing_is_stale_or_rejecting(well):
    behind = replace(well, lag_seconds=960.0, rejected_share=0.9)

    assert verdict(behind, Limits(None, None)).name == "catching up"


def test_the_worst_come_first_and_those_that_are_well_keep_their_order(well):
    changes = {
        "d": {},
        "c": {"lag_seconds": 2.0},
        "b": {"status": "stopped"},
        "a": {"lag_seconds": 960.0},
        "z": {"status": "lost"},
    }

    found = worst_first(replace(well, name=name, **change) for name, change in changes.items())

    assert [each.name for each in found] == ["z", "a", "b", "c", "d"]


class TestLag:
    def test_input_of_the_open_batch_is_not_counted_yet(self, filled):
        filled.open({("JFK", "C00"): 5})
        filled.conn.execute("UPDATE tidegauge.pipeline SET open_time = now() - interval '16 minutes'")

        found = queries.pipeline("flights")

        assert found.pending == NOTHING_PENDING
        assert found.lag_seconds == pytest.approx(960, abs=30)
        assert verdict(found).reason == "its oldest input has waited for 16 min, more than 5 min"

    @pytest.mark.parametrize("status", ["failed", "stopped"])
    def test_nobody_knows_what_is_pending_after_the_driver_has_ended(self, filled, status):
        filled.report(status, pending=NOTHING_PENDING)
        filled.die()

        found = queries.pipeline("flights")

        assert (found.pending, found.waiting_since, found.lag_seconds) == (None, None, None)

    def test_what_waited_when_the_driver_ended_waits_still(self, filled):
        oldest = datetime.now(UTC) - timedelta(seconds=90)
        filled.report("failed", pending={"count": 1, "unit": "files", "oldest": oldest.isoformat()})
        filled.die()

        found = queries.pipeline("flights")

        assert (found.pending["count"], found.waiting_since) == (1, oldest)

    def test_a_driver_that_finished_has_read_everything(self, filled):
        filled.report("finished", pending=NOTHING_PENDING)
        filled.die()

        assert queries.pipeline("flights").lag_seconds == 0


class TestRejectedShare:
    def test_it_is_that_of_recent_batches(self, flights):
        flights.commit({("JFK", "C00"): 8}, [LETTER] * 8)
        flights.conn.execute("UPDATE tidegauge.batch SET committed_at = now() - interval '2 days'")
        flights.commit({("JFK", "C00"): 30}, [LETTER] * 10)
        flights.commit({("JFK", "C00"): 10})

        found = queries.pipeline("flights")

        assert found.rejected_share == 0.25
        assert verdict(found).reason == "25 % of the rows of recent batches are dead letters, more than 5 %"

    def test_it_is_unknown_without_recent_batches(self, flights):
        assert queries.pipeline("flights").rejected_share is None

    def test_it_is_at_most_1(self, flights):
        flights.commit({("JFK", "C00"): 1}, [LETTER] * 3)

        assert queries.pipeline("flights").rejected_share == 1


class TestPages:
    def test_the_overview_marks_and_counts_problems(self, filled, reader):
        healthy = reader.get("/")
        filled.die()
        lost = reader.get("/")

        assert "The pipeline is well" in text(healthy)
        assert "The pipeline needs you 3 of 3 states are stale" in text(lost)
        assert b'<li class="panel incident is-bad" id="incident-flights">' in lost.content

    def test_input_that_waits_too_long_is_explained(self, filled, reader):
        oldest = datetime.now(UTC) - timedelta(minutes=16, seconds=5)
        filled.report("running", pending={"count": 1, "unit": "files", "oldest": oldest.isoformat()})

        assert "Its oldest input has waited for 16 min, more than 5 min" in text(reader.get("/"))
        page = text(reader.get("/pipelines/flights/"))
        assert "Stale: its oldest input has waited for 16 min, more than 5 min." in page

    def test_rejected_rows_are_explained(self, filled, reader):
        filled.commit({("JFK", "C00"): 3_450}, [LETTER] * 886)

        assert "Rejecting: " in text(reader.get("/pipelines/flights/"))

    def test_a_failed_pipeline_shows_what_is_known(self, filled, admin_client):
        filled.open({("JFK", "C00"): 5})
        filled.report("failed", "cannot read <input>", pending=NOTHING_PENDING)
        filled.die()

        page = text(admin_client.get("/pipelines/flights/"))

        assert "It will not be retried. Correct the cause, then start " in page
        assert "Lag none" not in page
        assert "Pending unknown" in page
        assert " 3 interrupted " in text(admin_client.get("/pipelines/flights/batches"))
        assert "Failure" not in page
        assert "Pause pipeline" not in page

    def test_a_page_follows_a_verdict_that_changes_with_time_alone(self, filled, reader, settings):
        oldest = datetime.now(UTC) - timedelta(seconds=90)
        filled.report("running", pending={"count": 1, "unit": "files", "oldest": oldest.isoformat()})
        shown = reader.get("/").context["poll"]
        settings.TIDEGAUGE_STALE_AFTER_SECONDS = 60

        answer = reader.get(f"/?v={shown[6:-2]}", headers={"HX-Request": "true"})

        assert answer.status_code == 200
        assert "flights stale" in text(answer)


def test_a_verdict_tells_a_restricted_user_nothing_of_what_is_outside(filled, django_user_model):
    filled.report("failed", "the row was JFK,AA,1")

    [seen] = Visible(KeyScope(states=frozenset({"totals"}))).pipelines()

    assert "JFK" not in repr(verdict(seen))
