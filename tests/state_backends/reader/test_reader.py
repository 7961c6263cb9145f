import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import Count, Max, Mean, PostgresBackingMap, StateReader, StateSpec, Sum, Versioned
from tidegauge.state_backends.errors import KeyShapeError, SpecError, UnknownStateError

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
FLIGHTS = StateSpec(
    "flights",
    key={"origin": "text", "carrier": "text"},
    measures={"flights": Count(), "mean_delay": Mean("delay"), "top": Max("delay"), "miles": Sum("miles", "bigint")},
)
TOTALS = StateSpec("totals", measures={"n": Count()})
TEXTS = StateSpec("texts", key={"page": "text"}, value="jsonb")


def flight(origin, carrier, flights, total=0.0, count=0, top=None, miles=0):
    return {
        "origin": origin,
        "carrier": carrier,
        "flights": flights,
        "mean_delay_sum": total,
        "mean_delay_count": count,
        "top": top,
        "miles": miles,
    }


@pytest.fixture
def feed(new_feed, fresh):
    """A feed of one state of views."""
    return new_feed(fresh(VIEWS))


@pytest.fixture
def reader(feed, conn):
    return StateReader(conn, feed.specs[0])


class TestLookup:
    def test_each_key_is_answered_in_the_order_asked_twice_if_asked_twice(self, feed, reader):
        feed.run(views(("a", 1), ("b", 2)))

        answer = reader.multi_get([("b",), ("nope",), ("a",), ("b",)])

        assert answer.parsed() == [
            {"key": ["b"], "status": "found", "value": {"n": 2}},
            {"key": ["nope"], "status": "missing", "value": None},
            {"key": ["a"], "status": "found", "value": {"n": 1}},
            {"key": ["b"], "status": "found", "value": {"n": 2}},
        ]

    def test_no_keys_are_answered_with_the_batch_all_the_same(self, feed, reader):
        batch = feed.run(views(("a", 1)))

        answer = reader.multi_get([])

        assert (answer.txid, answer.attempt, answer.batch_time, answer.parsed()) == (1, 1, batch.batch_time, [])

    def test_before_the_first_batch_everything_is_missing_at_txid_0(self, reader):
        answer = reader.multi_get([("a",)])

        assert (answer.txid, answer.attempt, answer.batch_time) == (0, 0, None)
        assert answer.parsed() == [{"key": ["a"], "status": "missing", "value": None}]

    def test_measures_are_finished(self, new_feed, fresh):
        feed = new_feed(spec := fresh(FLIGHTS))

        feed.run([flight("JFK", "AA", 3, 10.0, 4, 7.5, 2**62), flight("JFK", "", 1)])

        assert feed.read(spec, ("JFK", "AA"), ("JFK", "")) == [
            {"flights": 3, "mean_delay": 2.5, "top": 7.5, "miles": 2**62},
            {"flights": 1, "mean_delay": None, "top": None, "miles": 0},
        ]

    def test_only_the_measures_asked_for_are_answered(self, new_feed, fresh, conn):
        feed = new_feed(spec := fresh(FLIGHTS))
        feed.run([flight("JFK", "AA", 3, 10.0, 4, 7.5)])
        reader = StateReader(conn, spec)

        assert reader.multi_get([("JFK", "AA")], ["top", "flights"]).parsed()[0]["value"] == {"top": 7.5, "flights": 3}
        assert reader.multi_get([("JFK", "AA")], []).parsed()[0]["value"] == {}
        with pytest.raises(SpecError) as caught:
            reader.multi_get([("JFK", "AA")], ["flights", "speed"])
        assert str(caught.value) == (
            f"state {spec.name!r}: no measure 'speed'; there are flights, mean_delay, top, miles"
        )

    def test_nan_and_infinity_are_text(self, new_feed, fresh):
        feed = new_feed(spec := fresh(FLIGHTS))

        feed.run([flight("JFK", "AA", 1, float("nan"), 1, float("inf"))])

        assert feed.read(spec, ("JFK", "AA"))[0] == {"flights": 1, "mean_delay": "NaN", "top": "Infinity", "miles": 0}

    def test_keys_come_back_as_json(self, new_feed, fresh, conn):
        spec = fresh(
            StateSpec("typed", key={"at": "timestamptz", "d": "date", "ok": "boolean"}, measures={"n": Count()})
        )
        feed = new_feed(spec)
        key = (datetime(2013, 1, 1, 5, tzinfo=UTC), "2013-01-01", True)
        feed.run([{"at": key[0], "d": key[1], "ok": key[2], "n": 1}])
        conn.execute("SET TIME ZONE 'UTC'")

        (answer,) = StateReader(conn, spec).multi_get([key]).parsed()

        assert answer == {
            "key": ["2013-01-01T05:00:00+00:00", "2013-01-01", True],
            "status": "found",
            "value": {"n": 1},
        }
        assert spec.check_key(answer["key"]) == spec.check_key(key)

    def test_a_wrong_key_is_refused_with_its_index(self, reader):
        with pytest.raises(KeyShapeError, match="key 1: page must be text, got 7") as caught:
            reader.multi_get([("a",), (7,)])

        assert caught.value.index == 1

    @pytest.mark.parametrize("ask", [lambda reader: reader.multi_get([("a",)]), lambda reader: reader.page()])
    def test_a_state_that_is_not_registered_is_refused(self, conn, fresh, ask):
        spec = fresh(VIEWS)

        with pytest.raises(UnknownStateError) as caught:
            ask(StateReader(conn, spec))

        assert str(caught.value) == f"state {spec.name!r} is not registered with any pipeline"

    def test_a_global_state_answers_its_one_key(self, new_feed, fresh):
        feed = new_feed(spec := fresh(TOTALS))
        assert feed.read(spec, ()) == ["missing"]

        feed.run([{"n": 3}])
        feed.run([{"n": 4}])

        assert feed.read(spec, (), ()) == [{"n": 7}, {"n": 7}]

    @pytest.mark.parametrize("value", [0, False, "", [1, {"a": None}], {"b": 1}, "text"])
    def test_json_values_are_answered_as_they_are(self, new_feed, fresh, conn, value):
        new_feed(spec := fresh(TEXTS))
        PostgresBackingMap(conn, spec).multi_put([("a",)], [Versioned(value, 0)])

        assert StateReader(conn, spec).multi_get([("a",)]).parsed() == [
            {"key": ["a"], "status": "found", "value": value}
        ]

    def test_a_thousand_keys_are_one_statement(self, feed, reader):
        feed.run(views(*((f"{n}", n) for n in range(1000))))

        answers = reader.multi_get([(f"{n}",) for n in range(999, -1, -1)]).parsed()

        assert [answer["value"]["n"] for answer in answers] == list(range(999, -1, -1))


class TestCommittedBatch:
    def test_an_open_batch_shows_nothing_of_itself(self, feed, reader):
        feed.run(views(("a", 1), ("b", 1)))
        before = reader.multi_get([("a",), ("b",), ("new",)])

        batch = feed.begin(1)
        feed.apply(batch, feed.specs[0], views(("a", 10), ("new", 10)))

        assert reader.multi_get([("a",), ("b",), ("new",)]) == before
        assert len(reader.page().parsed()) == 2

    def test_a_commit_shows_the_batch_in_all_states_at_once(self, new_feed, fresh):
        feed = new_feed(one := fresh(VIEWS), two := fresh(TOTALS))
        feed.run(views(("a", 1)), [{"n": 1}])
        batch = feed.begin(1)
        feed.apply(batch, one, views(("a", 10)))
        assert feed.read(one, ("a",)) + feed.read(two, ()) == [{"n": 1}, {"n": 1}]
        feed.apply(batch, two, [{"n": 10}])
        assert feed.read(one, ("a",)) + feed.read(two, ()) == [{"n": 1}, {"n": 1}]

        feed.ledger.commit(batch)

        assert feed.read(one, ("a",)) + feed.read(two, ()) == [{"n": 11}, {"n": 11}]

    def test_a_reverted_commit_shows_the_batch_before_it_at_once(self, feed, reader):
        first = feed.run(views(("a", 1)))
        feed.run(views(("a", 10), ("new", 1)))

        feed.ledger.begin(1)  # nothing is reverted so far

        answer = reader.multi_get([("a",), ("new",)])
        assert (answer.txid, answer.attempt, answer.batch_time) == (1, 1, first.batch_time)
        assert [row["value"] for row in answer.parsed()] == [{"n": 1}, None]

    @pytest.mark.parametrize("kind", ["transactional", "non_transactional"])
    def test_kinds_that_keep_one_version_say_that_an_open_batch_may_show(self, new_feed, fresh, conn, kind):
        feed = new_feed(spec := fresh(replace(VIEWS, kind=kind)))
        batch = feed.begin(0)
        feed.apply(batch, spec, views(("a", 1)))

        assert StateReader(conn, spec).isolation == "uncommitted"
        assert feed.read(spec, ("a",)) == [{"n": 1}]

    def test_an_opaque_state_says_that_batches_show_whole(self, reader):
        assert reader.isolation == "committed"

    def test_two_states_never_differ_while_a_second_connection_commits(self, new_feed, fresh, connect):
        """Every batch moves a number from one state to the other, so their sum stays; some batches fail half way."""
        feed = new_feed(one := fresh(VIEWS), two := fresh(replace(VIEWS, partitions=4)))
        pages = [f"{n}" for n in range(20)]
        feed.run(views(*((page, 0) for page in pages)), views(*((page, 0) for page in pages)))
        done, errors = threading.Event(), []

        def write():
            try:
                for batch_id in range(1, 40):
                    if batch_id % 3 == 0:
                        failed = feed.begin(batch_id)
                        feed.apply(failed, one, views(*((page, 7) for page in pages)))
                    batch = feed.begin(batch_id)
                    feed.apply(batch, one, views(*((page, -batch_id) for page in pages)))
                    feed.apply(batch, two, views(*((page, batch_id) for page in pages)))
                    feed.ledger.commit(batch)
            except Exception as error:
                errors.append(error)
            finally:
                done.set()

        conn = connect()
        readers = [StateReader(conn, one), StateReader(conn, two)]
        sums, txids = set(), []
        thread = threading.Thread(target=write)
        thread.start()
        while not done.is_set():
            with conn.transaction():
                conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                answers = [reader.multi_get([(page,) for page in pages]) for reader in readers]
            values = [[row["value"]["n"] for row in answer.parsed()] for answer in answers]
            sums |= {left + right for left, right in zip(*values, strict=True)}
            assert len(set(values[0])) == 1
            assert answers[0].txid == answers[1].txid
            txids.append(answers[0].txid)
        thread.join()

        assert errors == []
        assert sums == {0}
        assert txids == sorted(txids)
        assert len(set(txids)) > 5


class TestTimeToLive:
    HOUR = timedelta(hours=1)

    @pytest.fixture
    def feed(self, new_feed, fresh):
        return new_feed(fresh(replace(VIEWS, ttl=self.HOUR)))

    def wait(self, feed, minutes):
        let_time_pass(feed.conn, feed.specs, feed.pipeline, timedelta(minutes=minutes))

    def test_a_row_past_its_time_is_expired_and_an_unknown_one_missing(self, feed):
        feed.run(views(("a", 1)))
        self.wait(feed, 61)
        feed.run(views(("b", 1)))

        assert feed.read(feed.specs[0], ("a",), ("b",), ("c",)) == ["expired", {"n": 1}, "missing"]

    def test_entries_leave_expired_rows_out(self, feed, reader):
        feed.run(views(("a", 1)))
        self.wait(feed, 61)
        feed.run(views(("b", 1)))

        assert [entry["key"] for entry in reader.page().parsed()] == [["b"]]

    def test_an_expired_row_that_is_updated_counts_from_the_start(self, feed):
        feed.run(views(("a", 10)))
        self.wait(feed, 61)

        feed.run(views(("a", 1)))

        assert feed.read(feed.specs[0], ("a",)) == [{"n": 1}]

    def test_an_open_batch_does_not_prolong_what_readers_see(self, feed):
        feed.run(views(("a", 10)))
        self.wait(feed, 59)
        batch = feed.begin(1)
        feed.apply(batch, feed.specs[0], views(("a", 1)))
        self.wait(feed, 2)
        assert feed.read(feed.specs[0], ("a",)) == ["expired"]

        feed.ledger.commit(batch)

        assert feed.read(feed.specs[0], ("a",)) == [{"n": 11}]

    def test_a_removed_row_is_missing_not_expired(self, feed, conn):
        spec = feed.specs[0]
        feed.run(views(("a", 10)))
        self.wait(feed, 61)
        PostgresBackingMap(conn, spec).multi_put([("a",)], [Versioned(None, 1)])

        assert feed.read(spec, ("a",)) == ["missing"]


class TestEntries:
    @pytest.fixture
    def flights(self, new_feed, fresh, conn):
        feed = new_feed(spec := fresh(FLIGHTS))
        feed.run(
            [
                flight("LGA", "AA", 5, top=1.0),
                flight("JFK", "B6", 9, top=3.0),
                flight("JFK", "AA", 5),
                flight("ewr", "UA", 1, top=2.0),
                flight("E_R", "100%", 2),
                flight("ExR", "1000", 3),
                flight("E\\R", "x", 4),
            ]
        )
        return StateReader(conn, spec)

    def keys(self, snapshot):
        return [tuple(entry["key"]) for entry in snapshot.parsed()]

    def test_entries_come_in_key_order_with_value_txid_and_time(self, feed, reader):
        feed.run(views(("b", 1), ("B", 2), ("é", 3), ("a", 4)))
        batch = feed.run(views(("a", 1)))

        entries = reader.page().parsed()

        assert [(entry["key"], entry["value"], entry["txid"]) for entry in entries] == [
            (["B"], {"n": 2}, 1),
            (["a"], {"n": 5}, 2),
            (["b"], {"n": 1}, 1),
            (["é"], {"n": 3}, 1),
        ]
        assert datetime.fromisoformat(entries[1]["updated_at"]) == batch.batch_time

    def test_entries_by_a_measure_break_ties_by_key(self, flights):
        by_flights = flights.page(order_by="flights", descending=True, limit=3)

        assert self.keys(by_flights) == [("JFK", "B6"), ("JFK", "AA"), ("LGA", "AA")]
        assert self.keys(flights.page(order_by="flights", limit=1)) == [("ewr", "UA")]

    def test_entries_without_the_measure_come_last_either_way(self, flights):
        up, down = flights.page(order_by="top"), flights.page(order_by="top", descending=True)

        assert self.keys(up)[:3] == [("LGA", "AA"), ("ewr", "UA"), ("JFK", "B6")]
        assert self.keys(down)[:3] == [("JFK", "B6"), ("ewr", "UA"), ("LGA", "AA")]

    @pytest.mark.parametrize(
        ("search", "found"),
        [
            ("jf", {("JFK", "AA"), ("JFK", "B6")}),
            ("aa", {("JFK", "AA"), ("LGA", "AA")}),
            ("E_", {("E_R", "100%")}),
            ("100%", {("E_R", "100%")}),
            ("100", {("E_R", "100%"), ("ExR", "1000")}),
            ("E\\", {("E\\R", "x")}),
            ("FK", set()),
            ("%", set()),
            ("_", set()),
            ("'; DROP TABLE x", set()),
        ],
    )
    def test_a_search_finds_parts_that_begin_so_letter_for_letter(self, flights, search, found):
        assert set(self.keys(flights.page(search=search))) == found

    def test_an_unknown_measure_cannot_order(self, flights):
        with pytest.raises(SpecError, match="no measure 'nothing'; there are flights, mean_delay"):
            flights.page(order_by="nothing")

    def test_a_global_state_has_one_entry(self, new_feed, fresh, conn):
        feed = new_feed(spec := fresh(TOTALS))
        reader = StateReader(conn, spec)
        assert reader.page().parsed() == []
        feed.run([{"n": 3}])

        for arguments in ({}, {"order_by": "n"}):
            assert [(entry["key"], entry["value"]) for entry in reader.page(**arguments).parsed()] == [([], {"n": 3})]

    def test_json_values_are_entries_too(self, new_feed, fresh, conn):
        new_feed(spec := fresh(TEXTS))
        PostgresBackingMap(conn, spec).multi_put(
            [("a",), ("b",), ("gone",)], [Versioned({"x": [1]}, 0), Versioned(0, 0), Versioned(None, 0)]
        )

        entries = StateReader(conn, spec).page().parsed()

        assert [(entry["key"], entry["value"]) for entry in entries] == [
            (["a"], {"x": [1]}),
            (["b"], 0),
        ]

    def test_the_live_view_shows_the_same_to_anyone_with_sql(self, feed, conn):
        feed.run(views(("a", 1)))
        batch = feed.begin(1)
        feed.apply(batch, feed.specs[0], views(("a", 10), ("b", 1)))

        view = f"SELECT page, n, txid FROM tidegauge_live.{feed.specs[0].name}"

        assert conn.execute(view).fetchall() == [("a", 1, 1)]
