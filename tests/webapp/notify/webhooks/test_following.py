"""What webhooks are told of commits and maintenance: each change once, whatever fails in between."""

import json
from datetime import timedelta

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
        made = webhook("maintenance")
        run(filled, "done")

        def crash(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(outbox, "add", crash)
            with pytest.raises(KeyboardInterrupt):
                following.follow(made)

        assert events(made) == ["maintenance.done"]

    def test_a_position_that_another_worker_has_moved_is_not_told_from_again(self, filled, webhook, monkeypatch):
        made = webhook("commit", states=["totals"])
        filled.commit({("EWR", "AA"): 1})
        find = following.find_commits

        def overtaken(*arguments, **named):
            news = find(*arguments, **named)
            monkeypatch.setattr(following, "find_commits", find)
            following.follow(made)
            return news

        monkeypatch.setattr(following, "find_commits", overtaken)

        assert events(made) == ["commit.batch"]

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
        made = webhook("maintenance", states=["totals"])
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
