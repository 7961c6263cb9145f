from datetime import UTC, datetime, timedelta

import pytest

from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.errors import UnknownPipelineError
from tidegauge.state_backends.ledger.batch import record_metrics
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.batches import (
    BatchRate,
    batch_at,
    batches_at,
    newest_batches,
    recent_batches,
    recent_rates,
)
from tidegauge.webapp.catalog.dead_letters import newest_dead_letters

BAD_LINE = DeadLetter("/input/2013-01-01.jsonl", '{"origin": "JFK"', "not JSON", line_number=7)


class TestBatches:
    def test_the_newest_batch_comes_first_with_its_figures(self, flights):
        flights.commit({("JFK", "AA"): 3}, [BAD_LINE])
        flights.open({("JFK", "AA"): 2})

        opened, committed = newest_batches("flights")

        assert (opened.txid, opened.status, opened.seconds, opened.keys_in_all) == (2, "open", None, None)
        assert (committed.txid, committed.status, committed.rows_in, committed.dead_letters) == (1, "committed", 3, 1)
        assert committed.keys_written == {"flights_by_carrier": 1, "flights_by_hour": 1, "totals": 1}

    def test_a_batch_has_its_late_events_its_tasks_and_its_metrics(self, flights):
        mark = datetime(2013, 1, 1, 10, tzinfo=UTC)
        spread = {"totals": {"tasks": 2, "largest": 1}}
        batch = flights.commit({("JFK", "AA"): 3}, late=2, dropped=1, tasks=spread, watermark=mark)
        record_metrics(flights.conn, batch, {"input_rows": 3})

        [summary] = newest_batches("flights")

        assert (summary.late, summary.dropped, summary.tasks, summary.watermark) == (2, 1, spread, mark)
        assert summary.metrics == {"input_rows": 3}

    def test_the_limit_is_respected(self, flights):
        for _ in range(4):
            flights.commit({("JFK", "AA"): 1})

        assert [batch.txid for batch in newest_batches("flights", 2)] == [4, 3]
        assert [batch.txid for batch in recent_batches(3)["flights"]] == [4, 3, 2]
        assert len(recent_rates(["flights"], 3)["flights"]) == 3


def test_the_rates_are_those_of_the_committed_batches(flights):
    for rows in (3, 9):
        flights.commit({("JFK", "AA"): rows})
    flights.open({("JFK", "AA"): 5})

    newest, before = recent_rates(["flights", "nothing"], 10)["flights"]

    last = newest_batches("flights")[1]
    seconds = (last.committed_at - before.committed_at).total_seconds()
    assert newest == BatchRate(last.committed_at, pytest.approx(9 / seconds))
    assert newest.committed_at > before.committed_at
    assert recent_rates([], 10) == {}


def test_a_dead_letter_has_its_position_and_its_reason(flights):
    flights.commit({("JFK", "AA"): 1}, [BAD_LINE])

    [letter] = newest_dead_letters("flights")

    assert (letter.source, letter.line_number, letter.reason) == (BAD_LINE.source, 7, "not JSON")
    assert (letter.line, letter.state) == (BAD_LINE.line, "")


@pytest.mark.parametrize("query", [newest_batches, newest_dead_letters])
def test_an_unknown_pipeline_is_not_an_empty_one(flights, query):
    assert query("flights") == []
    with pytest.raises(UnknownPipelineError):
        query("fligths")


def test_older_batches_are_those_before_one(filled):
    filled.commit({("JFK", "C00"): 5}, late=7, dropped=2)
    filled.open({("JFK", "C00"): 5})

    assert newest_batches("flights", 2, 4) == newest_batches("flights")[1:3]
    assert newest_batches("flights", 2, 1) == []


def test_the_batch_of_a_time_is_the_last_one_up_to_it_also_among_batches_of_which_some_were_compacted(flights):
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    for minute in range(12):
        batch = flights.commit({("JFK", "AA"): 1})
        at = [noon + timedelta(minutes=minute), batch.txid]
        flights.conn.execute("UPDATE tidegauge.batch SET batch_time = %s WHERE txid = %s", at)
    flights.conn.execute("DELETE FROM tidegauge.batch WHERE txid IN (1, 2, 7, 8)")
    pipeline = queries.pipeline("flights")

    asked = [noon + timedelta(minutes=minutes) for minutes in (1.5, 2, 5.5, 7, 60)]

    # Batches 3 to 6 and 9 to 12 are left, of the minutes 2 to 5 and 8 to 11.
    assert batches_at(pipeline, asked) == [None, 3, 6, 6, 12]
    assert batch_at(pipeline, asked[1] - timedelta(microseconds=1)) is None
