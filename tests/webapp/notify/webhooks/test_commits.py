"""What webhooks are told of commits: every batch, in order and once, with the words of the event streams."""

import json

import pytest

from tests.webapp.flights import BY_CARRIER
from tidegauge.webapp.maintenance import operations
from tidegauge.webapp.notify.webhooks import commits, following, outbox

STATE = BY_CARRIER.name


def told(webhook):
    """Look for news, and return the data of all messages so far."""
    following.follow(webhook)
    return [json.loads(body) for body in webhook.deliveries.order_by("id").values_list("body", flat=True)]


def test_a_commit_is_told_with_the_values_of_its_keys(filled, webhook):
    made = webhook("commit", states=[STATE])

    batch = filled.commit({("JFK", "AA"): 3})

    [document] = told(made)
    data = document["data"]
    assert (document["type"], data["state"], data["pipeline"]) == ("commit.batch", STATE, "flights")
    assert (data["txid"], data["complete"], bool(data["epoch"])) == (batch.txid, True, True)
    assert data["committed_at"]
    [change] = data["changes"]
    assert (change["key"], change["status"], change["value"]["flights"]) == (["JFK", "AA"], "found", 3)
    assert "lookup" not in data


def test_every_commit_is_told_once_and_in_order(filled, webhook, monkeypatch):
    monkeypatch.setattr(commits, "PAGE_BATCHES", 2)
    made = webhook("commit", states=[STATE])

    txids = [filled.commit({("JFK", "AA"): 1}).txid for _ in range(7)]

    assert [each["data"]["txid"] for each in told(made)] == txids
    assert len(told(made)) == 7


@pytest.mark.parametrize("fields", [{"keys": [["JFK", "AA"], ["EWR", "UA"]]}, {"key_prefix": ["JFK"]}])
def test_of_some_keys_only_batches_that_changed_one_are_told(filled, webhook, fields):
    made = webhook("commit", states=[STATE], **fields)

    filled.commit({("LGA", "AA"): 1})
    batch = filled.commit({("JFK", "AA"): 2, ("LGA", "AA"): 1})

    [document] = told(made)
    assert document["data"]["txid"] == batch.txid
    assert [change["key"] for change in document["data"]["changes"]] == [["JFK", "AA"]]


def test_a_batch_of_too_many_keys_is_told_without_them(filled, webhook, settings):
    settings.TIDEGAUGE_EVENTS_MAX_CHANGES = 1
    made = webhook("commit", states=[STATE], key_prefix=["JFK"])

    batch = filled.commit({("JFK", "AA"): 1, ("JFK", "UA"): 1})

    [document] = told(made)
    assert (document["data"]["changes"], document["data"]["complete"]) == ([], False)
    assert document["data"]["txid"] == batch.txid
    assert document["data"]["lookup"] == f"/api/v1/states/{STATE}/entries?prefix=%5B%22JFK%22%5D"


def test_the_lookup_of_a_message_answers(filled, webhook, settings, admin_client):
    settings.TIDEGAUGE_EVENTS_MAX_CHANGES = 1
    made = webhook("commit", states=[STATE], key_prefix=["JFK"])
    filled.commit({("JFK", "AA"): 1, ("JFK", "UA"): 1})
    [document] = told(made)

    answer = admin_client.get(document["data"]["lookup"])

    assert answer.status_code == 200
    assert {entry["key"][0] for entry in answer.json()["entries"]} == {"JFK"}


def test_a_message_that_would_be_too_large_is_told_without_its_keys(filled, webhook, monkeypatch):
    monkeypatch.setattr(commits, "MOST_BYTES", 10)
    made = webhook("commit", states=[STATE])

    filled.commit({("JFK", "AA"): 1})

    [document] = told(made)
    assert (document["data"]["changes"], document["data"]["complete"]) == ([], False)


def test_a_commit_of_a_state_without_a_changelog_is_told_without_keys(filled, webhook):
    made = webhook("commit", states=["totals"])

    filled.commit({("JFK", "AA"): 1})

    [document] = told(made)
    assert (document["type"], document["data"]["complete"]) == ("commit.batch", False)


class TestResets:
    @pytest.fixture
    def made(self, filled, webhook):
        return webhook("commit", states=[STATE])

    def test_a_ledger_of_another_epoch(self, filled, made):
        filled.conn.execute("UPDATE tidegauge.pipeline SET epoch = 'ffffffffffffffff'")

        [document] = told(made)

        assert (document["type"], document["data"]["epoch"]) == ("commit.reset", "ffffffffffffffff")
        assert "another epoch" in document["data"]["reason"]
        assert document["data"]["lookup"].startswith(f"/api/v1/states/{STATE}/entries")
        assert len(told(made)) == 1

    def test_a_ledger_that_went_back(self, filled, made):
        filled.conn.execute("UPDATE tidegauge.pipeline SET committed_txid = 1")

        [document] = told(made)

        assert (document["type"], document["data"]["txid"]) == ("commit.reset", 1)
        assert "it was reverted" in document["data"]["reason"]

    def test_a_batch_that_was_committed_again(self, filled, made):
        filled.conn.execute("UPDATE tidegauge.pipeline SET committed_attempt = committed_attempt + 1")
        filled.conn.execute("UPDATE tidegauge.batch SET attempt = attempt + 1 WHERE txid = 2")

        assert "was replayed" in told(made)[0]["data"]["reason"]

    def test_history_that_compaction_has_dropped(self, filled, made):
        filled.commit({("JFK", "AA"): 1})
        filled.commit({("JFK", "AA"): 1})
        filled.conn.execute("UPDATE tidegauge.state SET oldest_txid = 4 WHERE name = %s", [STATE])

        [document] = told(made)

        assert (document["type"], document["data"]["txid"]) == ("commit.reset", 4)
        assert "no longer on hand" in document["data"]["reason"]

    def test_more_batches_than_are_caught_up_on(self, filled, made, settings):
        settings.TIDEGAUGE_EVENTS_MAX_BATCHES = 2
        for _ in range(3):
            filled.commit({("JFK", "AA"): 1})

        assert "more than 2 batches" in told(made)[0]["data"]["reason"]

    def test_commits_are_told_on_after_it(self, filled, made):
        filled.conn.execute("UPDATE tidegauge.pipeline SET epoch = 'ffffffffffffffff'")
        told(made)
        filled.conn.execute("UPDATE tidegauge.state SET version = version + 1")
        told(made)

        assert [each["type"] for each in told(made)] == ["commit.reset", "commit.reset"]


def test_a_receiver_that_is_away_gets_all_of_it_later(filled, webhook, receiving, monkeypatch):
    """The position waits while there is no room, so nothing is lost and the outbox does not grow."""
    monkeypatch.setattr(outbox, "MOST_PENDING", 3)
    made = webhook("commit", states=[STATE])
    txids = [filled.commit({("JFK", "AA"): 1}).txid for _ in range(7)]
    assert len(told(made)) == 3

    for _ in range(3):
        outbox.send_due()
        following.follow(made)
    outbox.send_due()

    assert [each.data["txid"] for each in receiving.received] == txids


def test_a_renamed_state_is_followed_on(lasting, webhook):
    made = webhook("commit", states=["totals"])
    lasting.die()

    operations.rename(kind="state", name="totals", new="sums", requested_by="ann")

    made.refresh_from_db()
    assert (made.states, made.cursors.get().topic) == (["sums"], "commits of sums")
    operations.rename(kind="state", name="sums", new="totals", requested_by="ann")
