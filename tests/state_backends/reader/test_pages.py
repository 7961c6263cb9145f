"""Pages, of a state in a table and of its twin in Redis: together they hold every entry while batches are committed."""

import math
import uuid
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state_backends.examples import examples
from tidegauge.state_backends import Count, Max, Min, RedisBackingMap, StateSpec, Sum, state_reader
from tidegauge.state_backends.backends.postgres.pages import page_parameters, page_sql, shape_of
from tidegauge.state_backends.errors import (
    KeyShapeError,
    NotCommittedError,
    OutOfReachError,
    SpecError,
    UnknownStateError,
)
from tidegauge.state_backends.maintenance import compact
from tidegauge.state_backends.reader import scanning
from tidegauge.state_backends.reader.bounds import check_after, check_range
from tidegauge.state_backends.spec.key_bytes import KeyBytes
from tidegauge.state_backends.spec.table import StateTable

HOUR = timedelta(hours=1)
NOTHING = timedelta()

PARTS = {
    "text": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)
    | st.sampled_from(["", "a", "A", "é", "日本", "\U0001f600", "a%", "a_", "\\"]),
    "bigint": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 2),
    "integer": st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-2, 2),
    "double precision": st.floats() | st.sampled_from([0.0, -0.0, 0.1, 1e300, 5e-324, math.nan, math.inf, -math.inf]),
    "boolean": st.booleans(),
    "timestamptz": st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC)),
    "date": st.dates(),
    "uuid": st.uuids(),
}
KEYS = {
    "text": ("text",),
    "bigint": ("bigint",),
    "double": ("double precision",),
    "texts": ("text", "text"),
    "boolean, double, text": ("boolean", "double precision", "text"),
    "timestamptz, integer": ("timestamptz", "integer"),
    "date, uuid": ("date", "uuid"),
}
BOTH = pytest.mark.parametrize("place", [0, 1], ids=["table", "redis"])
few = examples(5)
VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
PAIRS = StateSpec("pairs", key={"a": "text", "b": "bigint"}, measures={"n": Count(), "top": Max("x")})
VISITED = StateSpec("visited", key={"page": "text", "hour": "timestamptz"}, measures={"n": Count()})
PRICED = replace(PAIRS, measures={**PAIRS.measures, "cost": Sum("cost", type="numeric")})


def keyed(types):
    return StateSpec("keyed", key={f"k{n}": part for n, part in enumerate(types)}, measures={"n": Count()})


def rows(spec, keys, n=1):
    return [{**dict(zip(spec.key, key, strict=True)), "n": n} for key in keys]


class Order:
    """The order of keys as bytes, and what a key of an answer is as bytes."""

    def __init__(self, spec):
        self.spec = spec
        self._bytes = KeyBytes(spec)

    def of(self, key):
        return self._bytes.encode(self.spec.check_key(key))

    def shown(self, entry):
        return self._bytes.encode(check_after(self.spec, None, entry["key"]).key)


def pages(reader, between=lambda: None, **question):
    """Yield the entries of all pages, each continued from the one before; `between` runs between them."""
    after = None
    while True:
        page = reader.page(after=after, **question)
        yield from page.parsed()
        after = page.after
        if after is None:
            return
        between()


@pytest.mark.parametrize("types", KEYS.values(), ids=KEYS.keys())
@few
@given(data=st.data())
def test_pages_hold_each_key_that_is_there_throughout_once_while_batches_are_committed(twins, types, data):
    spec = keyed(types)
    order = Order(spec)
    keys = st.lists(st.tuples(*(PARTS[part] for part in types)), unique_by=order.of, max_size=12)
    kept = data.draw(keys)
    passing = [key for key in data.draw(keys) if order.of(key) not in set(map(order.of, kept))]
    limit = data.draw(st.integers(1, 5))
    feed = twins(spec)
    feed.commit(*rows(spec, kept))

    def commit():
        some = [key for key in passing if data.draw(st.booleans())]
        gone = [key for key in passing if key not in some]
        feed.commit(*rows(spec, [*some, *kept[::2]]), gone=gone)

    for reader in feed.readers():
        seen = [order.shown(entry) for entry in pages(reader, commit, limit=limit)]

        assert seen == sorted(set(seen))
        assert [key for key in seen if key in set(map(order.of, kept))] == sorted(map(order.of, kept))
        assert set(seen) <= set(map(order.of, [*kept, *passing]))


@pytest.mark.parametrize("types", KEYS.values(), ids=KEYS.keys())
@few
@given(data=st.data())
def test_a_range_is_what_its_bounds_say_part_by_part(twins, types, data):
    spec = keyed(types)
    order, encoded = Order(spec), KeyBytes(spec)
    keys = data.draw(st.lists(st.tuples(*(PARTS[part] for part in types)), unique_by=order.of, min_size=1, max_size=15))
    feed = twins(spec)
    feed.commit(*rows(spec, keys))
    known = st.sampled_from(keys) | st.tuples(*(PARTS[part] for part in types))
    some = st.builds(lambda key, parts: key[:parts], known, st.integers(0, len(types)))

    for _ in range(4):
        prefix, start, stop = data.draw(st.tuples(some, some, some))
        if data.draw(st.booleans()):
            prefix = ()
        under, low, high = (encoded.encode(spec.check_prefix(parts)) for parts in (prefix, start, stop))
        asked = [
            key
            for key in sorted(map(order.of, keys))
            if key.startswith(under) and key >= low and (not stop or key < high)
        ]
        for reader in feed.readers():
            shown = [order.shown(entry) for entry in pages(reader, prefix=prefix, start=start, stop=stop, limit=4)]
            assert shown == asked


MEASURES = {
    "bigint": (Sum("x", type="bigint"), st.integers(-(1 << 62), 1 << 62) | st.integers(0, 2)),
    "double precision": (Max("x"), st.none() | PARTS["double precision"]),
    "numeric": (
        Max("x", type="numeric"),
        st.none() | st.decimals(-(10**28), 10**28, places=9, allow_nan=False) | st.sampled_from([Decimal("NaN")]),
    ),
    "text": (Max("x", type="text"), st.none() | PARTS["text"]),
    "boolean": (Max("x", type="boolean"), st.none() | st.booleans()),
    "timestamptz": (Min("x", type="timestamptz"), st.none() | PARTS["timestamptz"]),
}


@pytest.mark.parametrize("kind", MEASURES)
@few
@given(data=st.data())
def test_pages_by_a_measure_are_the_whole_in_its_order_nulls_last(twins, kind, data):
    measure, values = MEASURES[kind]
    values = data.draw(st.lists(values, min_size=1, max_size=12))
    feed = twins(StateSpec("sorted", key={"k": "integer"}, measures={"x": measure}))
    feed.commit(*({"k": n, "x": value} for n, value in enumerate(values)))
    descending, limit = data.draw(st.booleans()), data.draw(st.integers(1, 5))
    some = [n for n, value in enumerate(values) if value is not None]
    expected = sorted(some, key=lambda n: rank(values[n]), reverse=descending)
    expected += [n for n, value in enumerate(values) if value is None]

    for reader in feed.readers():
        shown = [entry["key"][0] for entry in pages(reader, order_by="x", descending=descending, limit=limit)]

        assert shown == expected


@BOTH
@pytest.mark.parametrize("declared", [{}, {"changelog": True}], ids=["now", "as of a batch"])
def test_pages_by_a_key_column_are_the_whole_in_its_order(twins, place, declared):
    feed = twins(VISITED, **declared)
    hours = [datetime(2013, 1, 1, hour, tzinfo=UTC) for hour in range(3)]
    keys = [(page, hour) for page in ("a", "b") for hour in hours]
    feed.commit(*rows(VISITED, keys))
    reader, at_txid = feed.readers()[place], 1 if declared else None

    found = {
        (column, descending): [
            (entry["key"][0], datetime.fromisoformat(entry["key"][1]))
            for entry in pages(reader, order_by=column, descending=descending, limit=2, at_txid=at_txid)
        ]
        for column in VISITED.key
        for descending in (True, False)
    }

    assert found["hour", True] == sorted(keys, key=lambda key: (-key[1].timestamp(), key[0]))
    assert found["hour", False] == sorted(keys, key=lambda key: (key[1], key[0]))
    assert found["page", True] == sorted(keys, key=lambda key: key[0], reverse=True)
    assert found["page", False] == keys


def rank(value):
    is_nan = isinstance(value, float | Decimal) and math.isnan(value)
    return (is_nan, 0 if is_nan else value)


@BOTH
@pytest.mark.parametrize("order_by", [None, "n"])
def test_the_next_page_begins_after_the_last_entry_as_json(twins, place, order_by):
    feed = twins(replace(PAIRS, key={"a": "double precision", "b": "bigint"}))
    keys = [(a, b) for a in (-math.inf, -0.0, 0.1, 1e22, math.nan) for b in (-(1 << 63), 0, (1 << 63) - 1)]
    feed.commit(*({"a": a, "b": b, "n": (1 << 53) + n % 4, "top": None} for n, (a, b) in enumerate(keys)))
    reader, after, seen = feed.readers()[place], None, []

    while entries := reader.page(after=after, order_by=order_by, limit=2).parsed():
        last = entries[-1]
        after = last["key"] if order_by is None else [last["value"]["n"], last["key"]]
        seen += [tuple(entry["key"]) for entry in entries]

    assert len(seen) == len(set(seen)) == len(keys)


@st.composite
def histories(draw):
    """Batches over few keys: per key how many to add, None to remove it, nothing where the key is absent."""
    batch = st.dictionaries(st.integers(0, 7), st.none() | st.integers(1, 3), max_size=8)
    return draw(st.lists(batch, min_size=2, max_size=6))


def states_of(history):
    """Return the state after each batch, the empty one first."""
    states, state = [{}], {}
    for batch in history:
        state = dict(state)
        for key, n in batch.items():
            if n is None:
                state.pop(key, None)
            else:
                state[key] = state.get(key, 0) + n
        states.append(state)
    return states


def write(feed, batch):
    added = [{"page": str(key), "n": n} for key, n in batch.items() if n is not None]
    return feed.commit(*added, gone=[(str(key),) for key, n in batch.items() if n is None])


@few
@given(history=histories(), data=st.data())
def test_pages_as_of_a_batch_are_that_batch_whatever_is_committed_or_open(twins, history, data):
    feed = twins(VIEWS, changelog=True)
    for batch in history:
        write(feed, batch)
    states = states_of(history)

    def go_on():
        opened = feed.begin(feed.next_batch_id())
        added = data.draw(st.dictionaries(st.integers(0, 9), st.integers(1, 2)))
        feed.write(opened, [{"page": str(key), "n": n} for key, n in added.items()])
        assert all_entries(feed.readers()[0], txid) == all_entries(feed.readers()[1], txid) == states[txid]
        feed.ledger.commit(opened)
        feed.rows_in_redis.publish(opened.txid)

    txid = data.draw(st.integers(0, len(history)))
    order_by, limit = data.draw(st.sampled_from([None, "n"])), data.draw(st.integers(1, 3))
    for reader in feed.readers():
        seen = list(pages(reader, go_on, order_by=order_by, limit=limit, at_txid=txid))

        assert len(seen) == len(states[txid])
        assert {int(entry["key"][0]): entry["value"]["n"] for entry in seen} == states[txid]


def all_entries(reader, txid):
    return {int(entry["key"][0]): entry["value"]["n"] for entry in pages(reader, limit=2, at_txid=txid)}


@few
@given(history=histories(), limit=st.integers(1, 4), order_by=st.sampled_from([None, "n"]))
def test_without_a_changelog_pages_of_the_past_are_right_or_out_of_reach(twins, history, limit, order_by):
    feed = twins(VIEWS)
    for batch in history:
        write(feed, batch)
    states = states_of(history)

    for reader in feed.readers():
        assert all_entries(reader, len(history)) == states[-1]
        for txid, state in enumerate(states):
            with suppress(OutOfReachError):
                seen = list(pages(reader, limit=limit, order_by=order_by, at_txid=txid))
                assert {int(entry["key"][0]): entry["value"]["n"] for entry in seen} == state


@pytest.fixture
def table(twins):
    """A feed without a changelog, and the reader of its table."""
    feed = twins(VIEWS)
    return feed, feed.readers()[0]


class TestReachWithoutAChangelog:
    """Only the entries that a page shows must be known."""

    def page(self, reader, **question):
        return [entry["key"][0] for entry in reader.page(at_txid=1, **question).parsed()]

    def test_a_row_beyond_the_page_may_have_moved_on(self, table):
        feed, reader = table
        feed.commit(*rows(VIEWS, [("a",), ("b",), ("c",)]))
        feed.commit(*rows(VIEWS, [("c",)]))
        feed.commit(*rows(VIEWS, [("c",)]))

        assert self.page(reader, limit=2) == ["a", "b"]
        assert self.page(reader, stop=("c",)) == ["a", "b"]
        assert self.page(reader, search="b") == ["b"]
        with pytest.raises(OutOfReachError) as caught:
            self.page(reader, limit=3)
        assert caught.value.oldest == 2

    def test_a_row_before_the_page_may_have_moved_on(self, table):
        feed, reader = table
        feed.commit(*rows(VIEWS, [("a",), ("b",)]))
        feed.commit(*rows(VIEWS, [("a",)]))
        feed.commit(*rows(VIEWS, [("a",)]))

        assert self.page(reader, after=["a"]) == ["b"]
        assert self.page(reader, start=("b",)) == ["b"]
        with pytest.raises(OutOfReachError):
            self.page(reader)

    def test_a_row_that_would_have_been_between_two_of_the_page_is_not_left_out(self, table):
        feed, reader = table
        feed.commit(*rows(VIEWS, [("a",), ("b",), ("c",)]))
        feed.commit(gone=[("b",)])
        feed.commit(*rows(VIEWS, [("b",)]))

        with pytest.raises(OutOfReachError) as caught:
            self.page(reader, limit=2)

        assert caught.value.oldest == 2
        assert self.page(reader, limit=1) == ["a"]

    def test_by_a_measure_every_row_of_the_range_may_have_been_on_the_page(self, table):
        feed, reader = table
        feed.commit(*rows(VIEWS, [("a",), ("b",)]))
        feed.commit(*rows(VIEWS, [("b",)]))
        feed.commit(*rows(VIEWS, [("b",)]))

        with pytest.raises(OutOfReachError):
            self.page(reader, order_by="n", limit=1)
        assert self.page(reader, order_by="n", stop=("b",)) == ["a"]

    def test_pages_begun_at_a_batch_end_with_an_error_once_it_is_out_of_reach(self, table):
        feed, reader = table
        feed.commit(*rows(VIEWS, [("a",), ("b",), ("c",)]))
        page = reader.page(at_txid=1, limit=1)
        feed.commit(*rows(VIEWS, [("b",)]))
        second = reader.page(at_txid=1, limit=1, after=page.after)
        feed.commit(*rows(VIEWS, [("c",)]))
        feed.commit(*rows(VIEWS, [("c",)]))

        assert [entry["key"] for entry in second.parsed()] == [["b"]]
        with pytest.raises(OutOfReachError, match="can be answered from batch 3 on"):
            reader.page(at_txid=1, limit=1, after=second.after)


class TestPage:
    @BOTH
    def test_a_page_is_of_one_batch_and_names_it(self, twins, place):
        feed = twins(VIEWS)
        reader = feed.readers()[place]
        assert (reader.page().txid, reader.page().parsed(), reader.page().after) == (0, [], None)
        batch = feed.commit(*rows(VIEWS, [("a",), ("b",)]))

        page = reader.page(limit=1)

        assert (page.txid, page.attempt, page.batch_time, page.after) == (1, 1, batch.batch_time, ["a"])
        (entry,) = page.parsed()
        assert (entry["key"], entry["value"], entry["txid"]) == (["a"], {"n": 1}, 1)
        assert datetime.fromisoformat(entry["updated_at"]) == batch.batch_time
        assert reader.page(limit=3).after is None

    @BOTH
    def test_only_the_measures_asked_for_are_answered(self, twins, place):
        feed = twins(PAIRS)
        feed.commit({"a": "x", "b": 1, "n": 1, "top": 2.5})
        reader = feed.readers()[place]

        assert reader.page(measures=["top"]).parsed()[0]["value"] == {"top": 2.5}
        assert reader.page(measures=[], order_by="n").parsed()[0]["value"] == {}

    @BOTH
    def test_expired_and_removed_entries_are_left_out_and_fill_no_page(self, twins, place):
        feed = twins(VIEWS, ttl=HOUR)
        feed.commit(*rows(VIEWS, [("a",), ("b",), ("c",)]))
        feed.wait(2 * HOUR)
        feed.commit(*rows(VIEWS, [("b",), ("d",), ("e",)]))
        feed.commit(gone=[("d",)])

        page = feed.readers()[place].page(limit=2)

        assert [entry["key"][0] for entry in page.parsed()] == ["b", "e"]

    @BOTH
    @pytest.mark.parametrize("changelog", [False, True])
    def test_a_search_goes_on_from_page_to_page(self, twins, place, changelog):
        feed = twins(PAIRS, changelog=changelog)
        names = ["Ab", "aB", "b", "ba", "AX", "%a", "a_"]
        feed.commit(*({"a": name, "b": n, "n": 1, "top": None} for n, name in enumerate(names)))
        reader = feed.readers()[place]

        for at in (None, 1):
            found = [entry["key"][0] for entry in pages(reader, search="a", limit=2, at_txid=at)]
            assert found == sorted(name for name in names if name.lower().startswith("a"))
            assert [entry["key"][1] for entry in pages(reader, search="3", limit=1, at_txid=at)] == [3]

    @BOTH
    def test_after_an_entry_before_the_range_a_page_begins_with_the_range(self, twins, place):
        feed = twins(PAIRS)
        feed.commit(*({"a": a, "b": b, "n": 1, "top": None} for a in "abc" for b in range(2)))
        reader = feed.readers()[place]

        for bounds in ({"start": ("b",)}, {"prefix": ("b",)}, {"start": ("b", 0), "stop": ("c",)}):
            page = reader.page(after=["a", 0], limit=2, **bounds)
            assert [entry["key"] for entry in page.parsed()] == [["b", 0], ["b", 1]]

    @BOTH
    def test_numbers_are_searched_as_they_are_shown(self, twins, place):
        feed = twins(StateSpec("numbers", key={"x": "double precision"}, measures={"n": Count()}))
        feed.commit(*({"x": x, "n": 1} for x in (3.0, 3.5, math.inf, math.nan)))
        reader = feed.readers()[place]

        for search, found in {"3": [3, 3.5], "3.": [3.5], "infi": ["Infinity"], "na": ["NaN"]}.items():
            assert [entry["key"][0] for entry in reader.page(search=search).parsed()] == found

    @BOTH
    def test_a_global_state_has_one_entry_and_none_behind_it(self, twins, place):
        feed = twins(StateSpec("totals", measures={"n": Count()}), changelog=True)
        feed.commit({"n": 3})
        reader = feed.readers()[place]

        for at in (None, 1):
            page = reader.page(limit=1, at_txid=at)
            assert [(entry["key"], entry["value"]) for entry in page.parsed()] == [([], {"n": 3})]
            assert (page.after, reader.page(after=page.after, at_txid=at).parsed()) == ([], [])

    def test_a_partitioned_table_is_paged_in_key_order(self, new_feed, fresh, conn):
        feed = new_feed(spec := fresh(replace(VIEWS, partitions=4)))
        feed.run(rows(spec, [(f"{n:02}",) for n in range(20)]))

        shown = [entry["key"][0] for entry in pages(state_reader(conn, spec), limit=3)]

        assert shown == [f"{n:02}" for n in range(20)]

    @BOTH
    def test_a_measure_may_be_called_as_a_column_of_the_statement(self, twins, place):
        feed = twins(StateSpec("named", key={"k": "text"}, measures={"reach": Count(), "oldest": Count()}))
        feed.commit({"k": "a", "reach": 1, "oldest": 2})
        reader = feed.readers()[place]

        for at in (None, 1):
            assert reader.page(order_by="reach", at_txid=at).parsed()[0]["value"] == {"reach": 1, "oldest": 2}
            assert reader.multi_get([("a",)], at_txid=at).parsed()[0]["value"] == {"reach": 1, "oldest": 2}

    @BOTH
    @pytest.mark.parametrize(
        ("question", "message"),
        [
            ({"prefix": (1,)}, "prefix: a must be text, got 1"),
            ({"start": ("x", 1, 2)}, "start: expected a list of at most 2 parts"),
            ({"stop": ("x", "y")}, "stop: b must be bigint, got 'y'"),
            ({"after": ["x"]}, "after: expected 2 parts"),
            ({"after": "x"}, "after: expected a list of 2 parts"),
            ({"after": ["x", 1], "order_by": "top"}, "after: expected a list of 2 parts"),
            ({"after": ["x"], "order_by": "top"}, "after: expected the value of 'top' and a key"),
            (
                {"after": ["x", ["x", 1]], "order_by": "top"},
                "after: expected a value of type double precision",
            ),
            ({"after": [1 << 64, ["x", 1]], "order_by": "n"}, "after: expected a value of type bigint"),
            ({"after": ["1e999999", ["x", 1]], "order_by": "cost"}, "after: expected a value of type numeric"),
        ],
    )
    def test_bounds_that_do_not_fit_are_refused_by_name(self, twins, place, question, message):
        reader = twins(PRICED).readers()[place]

        with pytest.raises(KeyShapeError, match=message):
            reader.page(**question)

    @BOTH
    def test_what_cannot_order_is_refused(self, twins, place):
        reader = twins(PAIRS).readers()[place]
        values = twins(StateSpec("texts", key={"page": "text"}, value="jsonb")).readers()[place]

        with pytest.raises(SpecError, match="no measure 'x'; there are n, top"):
            reader.page(order_by="x")
        with pytest.raises(SpecError, match="no measure 'x'"):
            reader.page(measures=["x"])
        with pytest.raises(SpecError, match="measure 'value' has no order; those that have one: none"):
            values.page(order_by="value")
        with pytest.raises(NotCommittedError):
            reader.page(at_txid=1)

    def test_a_state_that_is_not_registered_is_unknown(self, conn, client, fresh):
        for backend in ("postgres", "redis"):
            reader = state_reader(conn, replace(fresh(VIEWS), backend=backend))
            with pytest.raises(UnknownStateError):
                reader.page()

    @BOTH
    def test_compacted_history_ends_pages_of_the_past_with_an_error(self, twins, client, place):
        feed = twins(VIEWS, changelog=True)
        for _ in range(3):
            feed.commit(*rows(VIEWS, [("a",), ("b",)]))
        reader = feed.readers()[place]
        page = reader.page(at_txid=1, limit=1)
        list(compact(feed.conn, reader.spec, keep=NOTHING))

        with pytest.raises(OutOfReachError):
            reader.page(at_txid=1, limit=1, after=page.after)


class TestCost:
    """A page in key order walks an index from its first entry to its last."""

    def read_by(self, conn, spec, at, **question):
        """Return how many rows of the state's tables a page of ten has read."""
        bounds = check_range(spec, question.get("prefix"), question.get("start"), None)
        place, table = check_after(spec, None, question.get("after")), StateTable(spec)
        order_by = question.get("order_by")
        shape = shape_of(["n"], bounds, order_by, order_by is not None, place, past=at is not None)
        parameters = [*page_parameters(table, shape, bounds, place, 10), spec.name]
        explain = b"EXPLAIN (ANALYZE, FORMAT JSON) " + page_sql(table, shape).as_bytes()
        ((((plan),),),) = conn.execute(explain, parameters if at is None else [at, *parameters]).fetchall()
        return sum(map(rows_read, scans(plan["Plan"], spec.name)))

    @pytest.mark.parametrize("declared", [{}, {"changelog": True}, {"partitions": 4}], ids=str)
    def test_it_reads_few_rows_more_than_it_shows_wherever_it_begins(self, new_feed, fresh, conn, declared):
        feed = new_feed(spec := fresh(replace(PAIRS, measures={"n": Count()}, **declared)))
        keys = [(f"{n % 50:02}", n) for n in range(5000)]
        for _ in range(3):
            feed.run([{"a": a, "b": b, "n": 1} for a, b in keys])
        for schema in ("tidegauge_state", *(["tidegauge_changelog"] if spec.changelog else [])):
            conn.execute(f"ANALYZE {schema}.{spec.name}")

        asked = ({}, {"after": ["00", 50]}, {"after": ["48", 4000]}, {"prefix": ("25",)}, {"start": ("49",)})
        read = [self.read_by(conn, spec, at, **question) for at in (None, 2, 3) for question in asked]

        # A hop to each key and one to its version, where there is a changelog; one row beyond, per partition.
        assert max(read) <= 24
        # Newest first: the 100 rows with the last value of the first column, and one beyond, per partition.
        assert self.read_by(conn, spec, None, order_by="a") <= 110


def scans(plan, table):
    """Yield the scans of a state's tables in a plan."""
    if plan.get("Relation Name", "").startswith(table):
        yield plan
    for part in plan.get("Plans", []):
        yield from scans(part, table)


def rows_read(scan):
    return (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]


class TestScan:
    """A state in Redis is scanned where no index has the order."""

    def test_a_bounded_scan_is_incomplete_and_says_where_to_continue(self, twins, monkeypatch):
        feed = twins(VIEWS)
        feed.commit(*rows(VIEWS, [(f"p{n:02}",) for n in range(20)]), *rows(VIEWS, [("x",)]))
        _, reader = feed.readers()
        monkeypatch.setattr(scanning, "MOST_SCANNED", 6)

        first = reader.page(search="x")

        assert (first.parsed(), first.complete, first.after) == ([], False, ["p05"])
        assert [entry["key"] for entry in pages(reader, search="x")] == [["x"]]

    def test_a_page_of_a_reverted_batch_is_read_again(self, twins, monkeypatch):
        feed = twins(VIEWS)
        feed.commit(*rows(VIEWS, [("a",), ("b",)]))
        feed.commit(*rows(VIEWS, [("a",), ("b",)]))
        _, reader = feed.readers()
        scan = RedisBackingMap.scan_committed

        def taken_back(rows, *bounds, **after):
            batch, scanned = scan(rows, *bounds, **after)
            if batch.txid == 2:
                feed.rows_in_redis.revert(2)
            return batch, scanned

        monkeypatch.setattr(RedisBackingMap, "scan_committed", taken_back)
        page = reader.page(limit=1)

        assert (page.txid, page.parsed()[0]["value"]) == (1, {"n": 1})

    def test_pages_far_in_are_found_by_their_key(self, twins, monkeypatch):
        monkeypatch.setattr("tidegauge.state_backends.backends.redis.rows.CHUNK_KEYS", 5)
        feed = twins(VIEWS)
        feed.commit(*rows(VIEWS, [(f"{n:03}",) for n in range(60)]))
        _, reader = feed.readers()
        monkeypatch.setattr(scanning, "MOST_SCANNED", 4)

        assert [entry["key"][0] for entry in reader.page(after=["050"], limit=3).parsed()] == ["051", "052", "053"]
        assert [entry["key"][0] for entry in pages(reader, limit=4)] == [f"{n:03}" for n in range(60)]


@pytest.mark.parametrize("key", [uuid.UUID(int=1), date(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)])
def test_bounds_come_as_text_too_as_they_do_over_json(twins, key):
    kind = {uuid.UUID: "uuid", date: "date", datetime: "timestamptz"}[type(key)]
    feed = twins(StateSpec("typed", key={"k": kind}, measures={"n": Count()}))
    feed.commit({"k": key, "n": 1})

    for reader in feed.readers():
        (entry,) = reader.page(prefix=[str(key)], start=[str(key)]).parsed()
        assert reader.page(after=entry["key"]).parsed() == []
