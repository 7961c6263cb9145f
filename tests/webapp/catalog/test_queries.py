from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from tests.webapp.flights import BY_CARRIER, SPECS, Flights, flights_pipeline
from tidegauge.state_backends import BatchLedger
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.errors import UnknownPipelineError, UnknownStateError
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.reprocess import Phase, accept, enter
from tidegauge.state_backends.schema.swap import Swap
from tidegauge.webapp.catalog import queries, readers
from tidegauge.webapp.catalog.batches import recent_batches
from tidegauge.webapp.catalog.dead_letters import newest_dead_letters

BAD_LINE = DeadLetter("/input/2013-01-01.jsonl", '{"origin": "JFK"', "not JSON", line_number=7)


@pytest.fixture
def flights(db) -> Iterator[Flights]:
    with flights_pipeline(readers.connection()) as pipeline:
        yield pipeline


class TestPipelines:
    def test_there_are_none_at_first(self, db):
        assert (queries.pipelines(), queries.states(), recent_batches()) == ([], [], {})

    def test_a_new_pipeline_has_committed_nothing(self, flights):
        status = queries.pipeline("flights")

        assert (status.status, status.committed_txid, status.committed_at) == ("starting", 0, None)
        assert (status.rows_per_second, status.pending, status.lag_seconds) == (0, None, None)
        assert status.states == [spec.name for spec in SPECS]

    def test_the_open_batch_and_the_committed_one_are_distinguished(self, flights):
        flights.commit({("JFK", "AA"): 3})
        flights.open({("JFK", "AA"): 2})

        status = queries.pipeline("flights")

        assert (status.committed_txid, status.open_txid) == (1, 2)

    def test_the_rate_is_that_of_the_last_seconds(self, flights):
        flights.commit({("JFK", "AA"): 300})

        assert queries.pipeline("flights").rows_per_second > 300 / 10

    def test_the_rate_of_an_idle_pipeline_is_0(self, flights):
        flights.commit({("JFK", "AA"): 300})
        flights.conn.execute(
            "UPDATE tidegauge.batch SET started_at = started_at - interval '12 s', "
            "committed_at = committed_at - interval '11 s'"
        )

        assert queries.pipeline("flights").rows_per_second == 0

    def test_the_rate_of_slow_batches_is_not_0_between_their_commits(self, flights):
        flights.commit({("JFK", "AA"): 600})
        flights.conn.execute(
            "UPDATE tidegauge.batch SET started_at = started_at - interval '60 s', "
            "committed_at = committed_at - interval '20 s'"
        )

        assert queries.pipeline("flights").rows_per_second == pytest.approx(600 / 60, rel=0.1)

    @pytest.mark.parametrize("reported", ["starting", "running", "paused", "restarting"])
    def test_a_driver_that_died_without_a_report_is_lost(self, flights, reported):
        flights.report(reported)
        flights.die()

        assert queries.pipeline("flights").status == "lost"

    @pytest.mark.parametrize("reported", ["stopped", "finished", "failed"])
    def test_a_driver_that_ended_has_the_status_it_reported(self, flights, reported):
        flights.report(reported, "checkpoint is gone")
        flights.die()

        status = queries.pipeline("flights")

        assert (status.status, status.message) == (reported, "checkpoint is gone")

    def test_a_pipeline_without_any_driver_never_started(self, flights):
        flights.conn.execute("DELETE FROM tidegauge.driver")

        assert queries.pipeline("flights").status == "never started"

    def test_the_lag_is_the_age_of_the_oldest_input(self, flights):
        oldest = datetime.now(UTC) - timedelta(seconds=90)
        flights.report(pending={"count": 4, "unit": "files", "oldest": oldest.isoformat()})

        assert queries.pipeline("flights").lag_seconds == pytest.approx(90, abs=5)

    @pytest.mark.parametrize(
        ("pending", "lag"), [({"count": 0, "oldest": None}, 0), ({"count": 4, "oldest": None}, None)]
    )
    def test_the_lag_is_0_without_pending_input_and_unknown_without_its_time(self, flights, pending, lag):
        flights.report(pending=pending)

        assert queries.pipeline("flights").lag_seconds == lag

    def test_dead_letters_of_an_open_batch_do_not_count(self, flights):
        flights.commit({("JFK", "AA"): 1}, [BAD_LINE])
        flights.open({("JFK", "AA"): 1}, [BAD_LINE, BAD_LINE])

        assert queries.pipeline("flights").dead_letters == 1
        assert [letter.txid for letter in newest_dead_letters("flights")] == [1]

    def test_dead_letters_late_and_dropped_events_are_those_of_all_committed_batches(self, flights):
        flights.commit({("JFK", "AA"): 1}, [BAD_LINE, BAD_LINE], late=3, dropped=1)
        flights.commit({("JFK", "AA"): 1}, [BAD_LINE], late=1)

        status = queries.pipeline("flights")

        assert (status.dead_letters, status.late, status.dropped) == (3, 4, 1)

    def test_the_dead_letters_of_a_ledger_without_totals_are_counted(self, flights):
        flights.commit({("JFK", "AA"): 1}, [BAD_LINE, BAD_LINE])
        flights.conn.execute("UPDATE tidegauge.batch SET total_dead_letters = NULL")

        assert queries.pipeline("flights").dead_letters == 2

    def test_a_restarting_driver_has_its_failures_and_the_time_of_its_next_attempt(self, flights):
        at = datetime.now(UTC) + timedelta(seconds=8)
        flights.fail("no disk", 3, at)

        status = queries.pipeline("flights")

        assert (status.status, status.message) == ("restarting", "no disk")
        assert (status.failures, status.max_failures, status.next_try_at) == (3, 8, at)

    def test_the_desired_state_is_separate_from_the_status(self, flights):
        flights.report("running")
        before = queries.pipeline("flights")
        driver_status.set_desired_state(flights.conn, "flights", paused=True, by="ann")

        status = queries.pipeline("flights")

        assert (before.wanted, before.wanted_by, before.wanted_at) == ("running", "", None)
        assert (status.status, status.wanted, status.wanted_by) == ("running", "paused", "ann")

    def test_old_batches_are_not_read(self, flights):
        for _ in range(100):
            flights.commit({("JFK", "AA"): 1})
        flights.conn.execute("UPDATE tidegauge.batch SET committed_at = committed_at - interval '2 days'")
        # Autovacuum may have seen the table empty, and then the planner takes any way to read it for the cheapest.
        flights.conn.execute("ANALYZE tidegauge.batch")
        # So few rows would be read whole, sorted, or joined as a whole.
        for way in ("seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin"):
            flights.conn.execute(f"SET LOCAL enable_{way} = off")
        before = rows_read(flights, "batch")
        queries.pipelines()

        # The last 20 for the rejected share, at most 12 for the trend, the last one for the rest.
        assert rows_read(flights, "batch") - before < 40

    def test_a_pipeline_has_the_weakest_guarantee_of_its_states(self, flights):
        flights.conn.execute("UPDATE tidegauge.state SET guarantee = 'at least once' WHERE name = 'totals'")

        assert queries.pipeline("flights").guarantee == "at least once"

    def test_an_unknown_pipeline_lists_the_existing_ones(self, flights):
        with pytest.raises(UnknownPipelineError, match="pipeline 'fligths' does not exist; there are flights"):
            queries.pipeline("fligths")


class TestStates:
    def test_a_state_has_its_schema_and_guarantees(self, flights):
        flights.commit({("JFK", "AA"): 3, ("JFK", "UA"): 1})

        state = queries.state("flights_by_carrier")

        assert state.key == BY_CARRIER.key
        assert state.measures["mean_delay"] == {
            "aggregate": "mean",
            "type": "double precision",
            "since_txid": 0,
            "last_fed_txid": None,
        }
        assert (state.kind, state.ttl, state.changelog) == ("opaque", timedelta(days=400), True)
        assert (state.guarantee, state.isolation) == ("exactly once", "committed")
        assert (state.txid, state.keys_estimate) == (1, 2)
        assert state.bytes > 0

    def test_keys_of_an_open_batch_do_not_count(self, flights):
        flights.commit({("JFK", "AA"): 3})
        flights.open({("JFK", "UA"): 1})

        assert queries.state("flights_by_carrier").keys_estimate == 1

    def test_the_keys_of_a_large_state_are_estimated_over_its_partitions(self, flights, monkeypatch):
        for _ in range(3):
            flights.commit({("JFK", "AA"): 1, ("EWR", "UA"): 1})
        flights.conn.execute("ANALYZE tidegauge_state.flights_by_hour")
        monkeypatch.setattr(queries, "COUNTED_BYTES", 0)

        assert queries.state("flights_by_hour").keys_estimate == 6

    def test_of_many_states_the_smallest_are_counted(self, flights, monkeypatch):
        flights.commit({("JFK", "AA"): 1, ("EWR", "UA"): 1})
        sizes = sorted((queries.state(spec.name).bytes, spec.name) for spec in SPECS)
        monkeypatch.setattr(queries, "LEAST_COUNTED_BYTES", queries.COUNTED_BYTES)

        keys = {state.name: state.keys_estimate for state in queries.states()}

        # The statistics know nothing of the rows of an open transaction.
        assert keys == {name: int(name == sizes[0][1]) for _, name in sizes}

    def test_a_states_pipeline_is_found_by_the_states_name(self, flights):
        assert queries.pipeline_of("totals") == queries.pipeline("flights")

    def test_an_unknown_state_lists_the_existing_ones(self, flights):
        names = "flights_by_carrier, flights_by_hour, totals"
        with pytest.raises(UnknownStateError, match=f"state 'total' does not exist; there are {names}"):
            queries.state("total")

    def test_states_take_two_statements_however_many_there_are(self, flights, django_assert_num_queries):
        with django_assert_num_queries(2):
            queries.states()

    def test_sizes_are_found_without_a_search_of_all_tables(self, flights):
        before = rows_read(flights, "pg_class")
        queries.states()

        assert rows_read(flights, "pg_class") - before < 100


def rows_read(flights, table):
    """How many rows of a table this transaction has read."""
    row = flights.conn.execute(
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_all_tables WHERE relname = %s", [table]
    ).fetchone()
    return row[0]


class TestReprocess:
    def test_it_is_part_of_its_pipeline_and_not_a_pipeline_of_its_own(self, reprocessing):
        assert queries.pipeline_names() == ["flights"]
        assert [status.name for status in queries.pipelines()] == ["flights"]
        assert list(recent_batches()) == ["flights"]

    def test_its_progress_is_shown_with_the_pipeline(self, reprocessing):
        reprocess = queries.pipeline("flights").reprocess

        assert (reprocess.status, reprocess.batches, reprocess.rows, reprocess.rows_per_second) == (
            "running",
            1,
            40,
            20,
        )
        assert reprocess.pending["count"] == 2

    def test_the_existing_states_are_shown(self, reprocessing):
        assert {state.txid for state in queries.states()} == {1}

    def test_a_pipeline_without_one_has_none(self, flights):
        assert queries.pipeline("flights").reprocess is None

    def test_the_page_of_the_pipeline_shows_its_progress(self, reprocessing, client, django_user_model):
        client.force_login(django_user_model.objects.create_user("reader"))

        page = client.get("/pipelines/flights/").content.decode()

        assert "Its states are being reprocessed." in page
        assert "2 files remaining" in page


def reprocess_with_less(flights):
    """Reprocess the states of a pipeline with less input than was counted, which is accepted."""
    flights.commit({("JFK", "AA"): 3})
    conn = flights.conn
    swap = Swap(conn, "flights")
    swap.begin(SPECS, spout="transactional")
    ledger = BatchLedger(conn, swap.name)
    ledger.acquire()
    ledger.bind("another")
    ledger.commit(ledger.begin(0), rows_in=2)
    ledger.release()
    accept(conn, "flights", "3 rows were counted, but only 2 by the reprocess")
    swap.swap(SPECS, {spec.name: "" for spec in SPECS}, keep_old=timedelta(days=7))


class TestLastReprocess:
    @pytest.fixture
    def reprocessed(self, flights) -> Flights:
        reprocess_with_less(flights)
        return flights

    def test_it_says_until_when_the_former_states_are_kept_and_what_the_new_ones_lack(self, reprocessed):
        last = queries.pipeline("flights").last_reprocess

        assert timedelta(days=6) < last.kept_until - last.swapped_at < timedelta(days=8)
        assert last.bytes > 0
        assert last.lacks == "3 rows were counted, but only 2 by the reprocess"

    def test_what_is_kept_is_not_a_pipeline_of_its_own(self, reprocessed):
        assert [status.name for status in queries.pipelines()] == ["flights"]
        assert queries.pipeline("flights").reprocess is None

    def test_without_kept_states_nothing_is_kept(self, reprocessed):
        Kept(reprocessed.conn, "flights").drop()

        last = queries.pipeline("flights").last_reprocess

        assert (last.kept_until, last.bytes) == (None, 0)

    def test_a_pipeline_that_was_never_reprocessed_has_none(self, flights):
        assert queries.pipeline("flights").last_reprocess is None

    def test_the_page_of_the_pipeline_shows_it(self, reprocessed, client, django_user_model):
        client.force_login(django_user_model.objects.create_user("reader"))

        page = client.get("/pipelines/flights/").content.decode()

        assert "The states lack input that was counted before." in page
        assert "tidegauge run flights --roll-back" in page

    def test_a_compaction_drops_what_is_kept_once_its_time_is_over(self, lasting):
        reprocess_with_less(lasting)
        enter(lasting.conn, "flights", Phase.SWAPPED, Phase.SETTLED)
        lasting.conn.execute("UPDATE tidegauge.reprocess SET keep_until = now() - interval '1 s'")

        call_command("compact", SPECS[0].name, stdout=StringIO(), stderr=StringIO())

        assert queries.pipeline("flights").last_reprocess.kept_until is None
        kept = lasting.conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'tidegauge_kept_state'")
        assert kept.fetchall() == []
