"""What webhooks are told of pipelines and maintenance: each change once, whatever fails in between."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.notify.webhooks import following, outbox, services
from tidegauge.webapp.notify.webhooks.models import Cursor
from tidegauge.webapp.notify.webhooks.runs import OVERLAP


def told(webhook):
    """Look for news, and return all messages so far: their types and data."""
    following.follow(webhook)
    found = webhook.deliveries.order_by("id").values_list("event", "body")
    return [(event, json.loads(body)["data"]) for event, body in found]


def events(webhook):
    return [event for event, _ in told(webhook)]


def lag(filled, seconds):
    oldest = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    filled.report("running", pending={"count": 1, "unit": "files", "oldest": oldest})


class TestPipelines:
    def test_a_failure_and_the_recovery_are_told_once_each(self, filled, webhook):
        made = webhook("pipeline")
        assert events(made) == []

        filled.fail("no such file", failures=1, next_try_at=timezone.now())
        assert events(made) == events(made) == ["pipeline.failing"]
        filled.report("failed", "gave up")
        assert events(made)[1:] == ["pipeline.failed"]
        filled.report("starting")
        assert len(events(made)) == 2
        filled.report("running")
        assert events(made)[2:] == ["pipeline.recovered"]

        [(_, failing), *_] = told(made)
        assert (failing["pipeline"], failing["message"], failing["failures"]) == ("flights", "no such file", 1)
        assert failing["states"] == ["flights_by_carrier", "flights_by_hour", "totals"]
        assert len(told(made)) == 3

    def test_a_driver_that_is_gone_has_failed(self, filled, webhook):
        made = webhook("pipeline")

        filled.die()

        assert [(event, data["status"]) for event, data in told(made)] == [("pipeline.failed", "lost")]

    def test_a_pause_mends_nothing(self, filled, webhook):
        made = webhook("pipeline")
        filled.report("failed", "gave up")
        following.follow(made)

        filled.report("paused")

        assert events(made) == ["pipeline.failed"]

    def test_a_lag_is_told_beyond_the_limit_and_over_below_half_of_it(self, filled, webhook):
        made = webhook("pipeline", late_seconds=600)
        lag(filled, 300)
        assert events(made) == []

        lag(filled, 700)
        assert events(made) == ["pipeline.late"]
        lag(filled, 500)
        assert events(made) == ["pipeline.late"]
        lag(filled, 100)
        assert events(made) == ["pipeline.late", "pipeline.recovered"]

    def test_a_webhook_without_a_limit_is_told_of_no_lag(self, filled, webhook):
        made = webhook("pipeline")

        lag(filled, 10_000)

        assert events(made) == []

    def test_a_webhook_of_some_states_is_told_of_their_pipelines_without_messages(self, filled, webhook):
        of_totals, of_others = webhook(states=["totals"]), webhook(name="b", states=["elsewhere"])

        filled.report("failed", "the row was JFK,AA,1")

        [(_, data)] = told(of_totals)
        assert (data["states"], data["message"]) == (["totals"], "")
        assert told(of_others) == []


class TestRuns:
    def test_a_run_that_is_done_or_failed_is_told_once(self, filled, webhook):
        made = webhook("maintenance")
        run(filled, "done", state="totals")
        run(filled, "failed", error="disk full")
        run(filled, "cancelled")
        run(filled, "running", finished_at=None)

        found = told(made)

        assert told(made) == found
        assert [event for event, _ in found] == ["maintenance.done", "maintenance.failed"]
        assert (found[0][1]["state"], found[1][1]["error"]) == ("totals", "disk full")

    def test_a_run_that_becomes_visible_after_a_later_one_is_told(self, filled, webhook):
        made = webhook("maintenance")
        Cursor.objects.update(position=older(Cursor.objects.get().position))
        run(filled, "done", finished_at=timezone.now())
        assert len(told(made)) == 1

        run(filled, "done", finished_at=timezone.now() - OVERLAP / 2)

        assert len(told(made)) == len(told(made)) == 2

    def test_runs_of_before_the_webhook_are_not_told(self, filled, webhook):
        run(filled, "done")

        assert told(webhook("maintenance")) == []

    def test_a_webhook_of_some_states_is_told_of_their_runs_without_errors(self, filled, webhook):
        made = webhook("maintenance", states=["totals"])
        run(filled, "failed", state="totals", error="row JFK,AA")
        run(filled, "done")

        [(event, data)] = told(made)

        assert (event, data["state"]) == ("maintenance.failed", "totals")
        assert "JFK" not in json.dumps(data)

    def test_no_more_are_stored_than_there_is_room_and_the_rest_follows(self, filled, webhook, monkeypatch):
        monkeypatch.setattr(outbox, "MOST_PENDING", 3)
        made = webhook("maintenance")
        for _ in range(8):
            run(filled, "done")

        counts = []
        for _ in range(4):
            counts.append(len(told(made)))
            made.deliveries.update(status="delivered", finished_at=timezone.now())

        assert counts == [3, 6, 8, 8]


class TestExactness:
    def test_messages_and_position_are_stored_together_or_not_at_all(self, filled, webhook, monkeypatch):
        made = webhook("pipeline")
        filled.report("failed", "gave up")

        def crash(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(outbox, "add", crash)
            with pytest.raises(KeyboardInterrupt):
                following.follow(made)

        assert events(made) == ["pipeline.failed"]

    def test_a_position_that_another_worker_has_moved_is_not_told_from_again(self, filled, webhook, monkeypatch):
        made = webhook("pipeline")
        filled.report("failed", "gave up")
        find = following.find_pipelines

        def overtaken(*arguments):
            news = find(*arguments)
            monkeypatch.setattr(following, "find_pipelines", find)
            following.follow(made)
            return news

        monkeypatch.setattr(following, "find_pipelines", overtaken)

        assert events(made) == ["pipeline.failed"]

    def test_what_cannot_be_followed_does_not_stop_the_rest_and_is_shown(self, filled, webhook):
        made = webhook("commit", "maintenance", states=["nowhere", "totals"])
        run(filled, "done", state="totals")
        filled.commit({("EWR", "AA"): 1})

        assert sorted(events(made)) == ["commit.batch", "maintenance.done"]

        made.refresh_from_db()
        assert made.problem.startswith("commits of nowhere: ")
        made.states = ["totals"]
        services.update(made)
        following.follow(made)
        made.refresh_from_db()
        assert made.problem == ""

    def test_a_disabled_webhook_goes_on_where_it_was(self, filled, webhook):
        made = webhook("commit", states=["totals"])
        made.enabled = False
        services.update(made)
        filled.commit({("EWR", "AA"): 1})
        following.follow_all()
        assert not made.deliveries.exists()

        made.enabled = True
        services.update(made)
        following.follow_all()

        assert [event for event, _ in told(made)] == ["commit.batch"]

    def test_what_is_followed_anew_begins_then(self, filled, webhook):
        made = webhook("pipeline", states=["totals"])
        made.kinds = ["commit"]
        services.update(made)
        following.follow(made)
        assert list(made.cursors.values_list("topic", flat=True)) == ["commits of totals"]

        filled.commit({("EWR", "AA"): 1})

        assert events(made) == ["commit.batch"]


def run(filled, status, state="flights_by_carrier", **fields):
    fields = {"finished_at": timezone.now()} | fields
    return MaintenanceRun.objects.create(kind="compaction", state_id=state, status=status, requested_by="ann", **fields)


def older(position):
    return {name: (timezone.now() - timedelta(hours=1)).isoformat() for name in position}
