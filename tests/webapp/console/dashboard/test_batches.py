import re

import pytest

from tests.webapp.console.dashboard.page_text import text
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.batch import record_metrics
from tidegauge.webapp.catalog.batches import BatchSummary
from tidegauge.webapp.console.dashboard.skew import Skew, skews, worst_skew
from tidegauge.webapp.console.dashboard.views import pipelines


def txids(response) -> list[int]:
    return [int(txid) for txid in re.findall(r'<tr id="batch-(\d+)"', response.content.decode())]


class TestBatchesPage:
    def test_each_batch_shows_rows_speed_duration_keys_by_state_and_dropped_events(self, filled, reader):
        filled.commit({("JFK", "C00"): 5}, [DeadLetter("/in/a.jsonl", "{", "not JSON", 3)], late=7, dropped=2)

        page = text(reader.get("/pipelines/flights/batches"))

        assert "Skew flights_by_carrier flights_by_hour totals Dead letters Late Committed" in page
        assert re.search(r" 3 committed 5 [\d,.]+ [\d.]+ m?s — 1 1 1 1 7 2 dropped just now", page)

    def test_a_replay_is_marked(self, filled, reader):
        filled.open({("JFK", "C00"): 5})
        filled.commit({("JFK", "C00"): 5})

        page = reader.get("/pipelines/flights/batches")

        assert " 3 committed replay 2 5 " in text(page)

    def test_the_open_batch_shows_no_figures_yet(self, filled, reader):
        filled.open({("JFK", "C00"): 5})

        assert " 3 open — — — — — — — 0 0 — " in text(reader.get("/pipelines/flights/batches"))

    def test_pages_lead_on_and_back_with_every_batch_once(self, filled, reader, monkeypatch):
        monkeypatch.setattr(pipelines, "PAGE_BATCHES", 2)
        for _ in range(3):
            filled.commit({("JFK", "C00"): 1})
        newest = reader.get("/pipelines/flights/batches")
        middle = reader.get("/pipelines/flights/batches?before=4")
        oldest = reader.get("/pipelines/flights/batches?before=2")

        assert [txids(page) for page in (newest, middle, oldest)] == [[5, 4], [3, 2], [1]]
        assert b'href="?before=4">Older' in newest.content
        assert b'href="?before=6">Newer' in middle.content
        assert b'<span class="off">Older</span>' in oldest.content

    def test_a_page_that_compaction_removed_links_back(self, filled, reader):
        assert "No older batches are kept. Back to the newest batches" in text(
            reader.get("/pipelines/flights/batches?before=1")
        )

    @pytest.mark.parametrize("before", ["x", "-1", "99999999999999999999", "%00"])
    def test_an_invalid_position_is_the_newest_page(self, filled, reader, before):
        assert txids(reader.get(f"/pipelines/flights/batches?before={before}")) == [2, 1]

    def test_its_statements_do_not_grow_with_batches(self, filled, reader, django_assert_num_queries):
        # Session, user, permissions and the strip, then the pipeline and its batches.
        with django_assert_num_queries(8):
            reader.get("/pipelines/flights/batches")


class TestBatchPage:
    def test_it_shows_keys_by_state_duration_by_phase_and_offsets(self, filled, reader):
        batch = filled.commit({("JFK", "C00"): 5})
        filled.conn.execute("UPDATE tidegauge.batch SET offsets = '[{\"logOffset\": 41}]'")
        record_metrics(filled.conn, batch, {"duration_ms": {"triggerExecution": 1812, "addBatch": 906}})

        response = reader.get("/pipelines/flights/batches/3")

        assert "flights_by_carrier 1 — — — — flights_by_hour 1 " in text(response)
        assert "triggerExecution 1.81 s addBatch 906 ms" in text(response)
        assert b'<rect width="50.0%"' in response.content
        assert '{ "logOffset": 41 }' in text(response)

    def test_it_links_to_the_previous_and_the_next_batch(self, filled, reader):
        first, last = (reader.get(f"/pipelines/flights/batches/{txid}").content for txid in (1, 2))

        assert b'<span class="off">Previous</span>' in first
        assert b'rel="next" href="/pipelines/flights/batches/2"' in first
        assert b'rel="prev" href="/pipelines/flights/batches/1"' in last
        assert b'<span class="off">Next</span>' in last

    @pytest.mark.parametrize("txid", ["99", "999999999999999999", "0"])
    def test_an_unknown_batch_links_to_the_list(self, filled, reader, txid):
        response = reader.get(f"/pipelines/flights/batches/{txid}")

        assert response.status_code == 404
        assert f"No batch {txid} It may not exist yet" in text(response)

    @pytest.mark.parametrize("address", ["batches", "batches/1", "dead-letters"])
    def test_an_unknown_pipeline_lists_the_existing_ones(self, filled, reader, address):
        response = reader.get(f"/pipelines/fligths/{address}")

        assert response.status_code == 404
        assert "Existing pipelines: flights" in text(response)


class TestSkew:
    def test_it_is_the_largest_task_divided_by_the_average(self):
        assert worst_skew(batch({"a": 100, "b": 10}, {"a": (4, 50), "b": (2, 5)})) == Skew("a", 100, 4, 50)
        assert Skew("a", 100, 4, 50).ratio == 2.0

    def test_one_task_or_none_cannot_be_uneven(self):
        found = batch({"a": 100, "b": 0, "c": 3}, {"a": (1, 100), "b": (2, 0)})

        assert [skew.ratio for skew in skews(found)] == [None, None, None]
        assert worst_skew(found) is None


def batch(keys: dict[str, int], tasks: dict[str, tuple[int, int]]) -> BatchSummary:
    by_state = {state: {"tasks": count, "largest": largest} for state, (count, largest) in tasks.items()}
    return BatchSummary("flights", 1, 1, "committed", None, None, 1.0, 1, keys, 0, tasks=by_state)
