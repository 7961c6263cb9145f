"""Filters, of a state in a table and of its twin in Redis: what a plain model leaves, and how much is read for it."""

import json
import math
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.state_backends.examples import examples
from tests.state_backends.reader.test_pages import KEYS, MEASURES, PARTS, Order, pages, rows_read, scans
from tidegauge.state_backends import Count, DistinctCount, Latest, Max, Mean, Quantiles, StateSpec, Sum, TopK
from tidegauge.state_backends.backends.postgres import pages as postgres_pages
from tidegauge.state_backends.backends.postgres.pages import page_parameters, page_sql, shape_of
from tidegauge.state_backends.errors import FilterError, OutOfReachError
from tidegauge.state_backends.reader import scanning
from tidegauge.state_backends.reader.bounds import check_range
from tidegauge.state_backends.reader.filters import OPERATORS, Filter, check_where, narrowed
from tidegauge.state_backends.spec.table import StateTable

# Each makes a pipeline and two states.
fewer = examples(3)
VIEWS = StateSpec("views", key={"site": "text", "page": "text"}, measures={"n": Count(), "cost": Max("cost")})
BOTH = pytest.mark.parametrize("place", [0, 1], ids=["table", "redis"])


def exported(reader, **question):
    with reader.export(**question) as export:
        return [row for batch in export.batches() for row in batch]


def orders(left, right):
    """Return how two values compare, -1, 0 or 1: a NaN is the largest, text is its bytes."""
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    is_nan = [not isinstance(each, bytes | datetime | date | uuid.UUID) and math.isnan(each) for each in (left, right)]
    if any(is_nan):
        return is_nan[0] - is_nan[1]
    return (left > right) - (left < right)


MODEL = {
    "=": lambda value, asked: orders(value, asked) == 0,
    "!=": lambda value, asked: orders(value, asked) != 0,
    "<": lambda value, asked: orders(value, asked) < 0,
    "<=": lambda value, asked: orders(value, asked) <= 0,
    ">": lambda value, asked: orders(value, asked) > 0,
    ">=": lambda value, asked: orders(value, asked) >= 0,
    "in": lambda value, asked: any(orders(value, each) == 0 for each in asked),
}


def is_left(value, condition):
    if condition.operator == "is null":
        return value is None
    if value is None:
        return False
    return condition.operator == "is not null" or MODEL[condition.operator](value, condition.value)


def conditions(column, known):
    return st.one_of(
        st.builds(Filter, st.just(column), st.sampled_from([*MODEL][:-1]), known),
        st.builds(Filter, st.just(column), st.just("in"), st.lists(known, max_size=3)),
        st.builds(Filter, st.just(column), st.sampled_from(["is null", "is not null"]), st.none()),
    )


@pytest.fixture(autouse=True)
def few_rows_scanned(request, monkeypatch):
    if "all_rows" not in request.fixturenames:
        monkeypatch.setattr(postgres_pages, "MOST_SCANNED", 3)
        monkeypatch.setattr(scanning, "MOST_SCANNED", 3)


@pytest.fixture
def all_rows():
    """Leaves the number of rows that a page looks at as it is."""


class TestModel:
    @pytest.mark.parametrize("kind", MEASURES)
    @fewer
    @given(data=st.data())
    def test_entries_by_the_value_of_a_measure_are_those_of_the_model(self, twins, monkeypatch, kind, data):
        measure, values = MEASURES[kind]
        before = data.draw(st.lists(values, min_size=1, max_size=10))
        after = [data.draw(st.sampled_from(before) | values) for _ in before]
        known = (st.sampled_from(before) | values).filter(lambda value: value is not None)
        asked = data.draw(st.lists(st.lists(conditions("x", known), min_size=1, max_size=2), min_size=3, max_size=3))
        feed = twins(
            StateSpec("held", key={"k": "integer"}, measures={"x": measure}), changelog=data.draw(st.booleans())
        )
        feed.commit(*({"k": n, "x": value} for n, value in enumerate(before)))
        left = []

        for reader in feed.readers():
            told = {row[0]: row[1] for row in exported(reader)}
            left = [{n for n, value in told.items() if all(is_left(value, each) for each in where)} for where in asked]
            for where, expected in zip(asked, left, strict=True):
                assert {e["key"][0] for e in pages(reader, where=where, limit=2)} == expected
                assert [row[0] for row in exported(reader, where=where)] == sorted(expected)
                with monkeypatch.context() as patch:
                    patch.setattr(scanning, "MOST_SCANNED", 50)
                    assert {e["key"][0] for e in pages(reader, where=where, order_by="x", limit=2)} == expected

        feed.write(feed.begin(1), [{"k": n, "x": value} for n, value in enumerate(after)])
        for reader in feed.readers():
            for where, expected in zip(asked, left, strict=True):
                assert {e["key"][0] for e in pages(reader, where=where, limit=2)} == expected
                assert {e["key"][0] for e in pages(reader, where=where, at_txid=1, limit=2)} == expected

    @pytest.mark.parametrize("types", KEYS.values(), ids=KEYS.keys())
    @fewer
    @given(data=st.data())
    def test_entries_by_the_parts_of_their_keys_are_those_of_the_model(self, twins, types, data):
        spec = StateSpec("keyed", key={f"k{n}": part for n, part in enumerate(types)}, measures={"n": Count()})
        order = Order(spec)
        keys = data.draw(
            st.lists(st.tuples(*(PARTS[part] for part in types)), unique_by=order.of, min_size=1, max_size=12)
        )
        some = [
            conditions(f"k{n}", st.sampled_from([key[n] for key in keys]) | PARTS[part]) for n, part in enumerate(types)
        ]
        where = data.draw(st.lists(st.one_of(*some), min_size=1, max_size=3))
        prefix = data.draw(st.just(()) | st.builds(lambda key: key[:1], st.sampled_from(keys)))
        feed = twins(spec, changelog=data.draw(st.booleans()))
        feed.commit(*({**dict(zip(spec.key, key, strict=True)), "n": 1} for key in keys))
        left = [
            key
            for key in keys
            if all(is_left(key[int(each.column[1:])], each) for each in where)
            and all(orders(part, asked) == 0 for part, asked in zip(key, prefix, strict=False))
        ]

        for reader in feed.readers():
            for at in ({}, {"at_txid": 1}) if spec.changelog or reader.spec.backend == "postgres" else ({},):
                shown = [order.shown(entry) for entry in pages(reader, where=where, prefix=prefix, limit=2, **at)]
                assert shown == sorted(map(order.of, left))
                assert [order.of(row[:-1]) for row in exported(reader, where=where, prefix=prefix, **at)] == shown

    @fewer
    @given(
        text=PARTS["text"] | st.sampled_from(["=a", "<>", " a ", '"', "in", "a>=b", "is null", "a and b", "'", "%41"])
    )
    @example(text="x' OR 1=1 --")
    @example(text="); DROP TABLE tidegauge.state; --")
    def test_any_text_can_be_asked_for_as_a_json_string(self, twins, text):
        feed = twins(VIEWS)
        feed.commit(
            {"site": text, "page": text, "n": 1, "cost": None}, {"site": "-", "page": "-", "n": 1, "cost": None}
        )

        for reader in feed.readers():
            for condition in (f"page={json.dumps(text)}", f"page in [{json.dumps(text)}]", f"site={json.dumps(text)}"):
                (entry,) = pages(reader, where=[Filter.parse(condition)])
                assert entry["key"] == [text, text]


class TestParse:
    @pytest.mark.parametrize(
        ("text", "parsed"),
        [
            ("flights>1000", ("flights", ">", "1000")),
            (" flights >= -1e3 ", ("flights", ">=", "-1e3")),
            ("name=a>=b", ("name", "=", "a>=b")),
            ("name != New York ", ("name", "!=", "New York")),
            ('name=" =x"', ("name", "=", " =x")),
            ("name=", ("name", "=", "")),
            ("name=in", ("name", "=", "in")),
            ('carrier IN ["AA", "U,A"]', ("carrier", "in", ["AA", "U,A"])),
            ("n in[1.10]", ("n", "in", [Decimal("1.10")])),
            ("delay is  NULL", ("delay", "is null", None)),
            ("delay is not null ", ("delay", "is not null", None)),
            ("is is null", ("is", "is null", None)),
        ],
    )
    def test_a_condition_is_a_column_an_operator_and_a_value(self, text, parsed):
        assert tuple(Filter.parse(text)) == parsed

    @pytest.mark.parametrize(
        "text",
        [
            "", "flights", ">5", "flights ~ 5", "flights like 5", "1=1", "a.b=1", '"n"=1', "n) or (n=1", "nin [1]",
            "is null", "n is", "n is nul", "n is null or n=1", "n is null; drop table x",
        ],
    )  # fmt: skip
    def test_what_is_not_a_condition_is_refused_with_the_operators(self, text):
        with pytest.raises(FilterError, match=r"where: .*operators are =, !=, <"):
            check_where(VIEWS, [Filter.parse(text)])

    @pytest.mark.parametrize("text", ["page==a", "page=>a", "page<>a", "page='a'", 'page="a', 'page="a" or "b"'])
    def test_text_that_begins_as_an_operator_or_quotation_is_refused_unless_it_is_a_json_string(self, text):
        with pytest.raises(FilterError, match="neither a plain value nor a JSON string"):
            Filter.parse(text)

    @pytest.mark.parametrize(
        "text", ["page in a", 'page in "a"', "page in [", 'page in ("a")', "page in " + "[" * 5000]
    )
    def test_a_list_that_is_none_is_refused(self, text):
        with pytest.raises(FilterError, match="`in` after page takes a JSON list"):
            Filter.parse(text)


TYPED = StateSpec(
    "typed",
    key={"at": "timestamptz", "day": "date", "id": "uuid", "part": "integer", "on": "boolean", "page": "text"},
    measures={
        "n": Count(),
        "mean": Mean("ms"),
        "cost": Sum("cost", type="numeric(12,2)"),
        "top": TopK("page"),
        "ms": Quantiles("ms"),
        "newest": Latest("page", by="at"),
        "users": DistinctCount("user"),
    },
)


class TestTypes:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("n=9223372036854775807", 2**63 - 1),
            ("n=+5", 5),
            ("mean=.5", 0.5),
            ("mean=1e308", 1e308),
            ("mean=-Infinity", -math.inf),
            ("cost=0.10000000000000000001", Decimal("0.10000000000000000001")),
            ("cost=1e30", Decimal("1e30")),
            ("at=2013-01-01T05:00:00+02:00", datetime(2013, 1, 1, 5, tzinfo=timezone(timedelta(hours=2)))),
            ("at=2013-01-01 03:00:00Z", datetime(2013, 1, 1, 3, tzinfo=UTC)),
            ("day=2013-02-28", date(2013, 2, 28)),
            ("id=6f9619ff-8b86-d011-b42d-00c04fc964ff", uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")),
            ("on=true", True),
            ("users>=10", 10),
            ("part in [1, 2]", [1, 2]),
        ],
    )
    def test_a_value_is_read_as_the_type_of_its_column(self, text, value):
        (condition,) = check_where(TYPED, [Filter.parse(text)])

        assert condition.value == value

    @pytest.mark.parametrize(
        "text",
        [
            "n>1.5", "n>9223372036854775808", "n>", "n>1_000", "n>٣", "n>1 2", "n>true", "n>0x10", "n in [1.5]",
            "n in [null]", "n in [[1]]", "part>2147483648", "mean>1e309", "mean>1e-400", "mean>abc", "mean>infinity",
            "cost>1e131073", "cost>1e-16384", "cost>1,5", "cost in [true]", "cost in [{}]", "at>2013-01-01T05:00:00",
            "at>2013-01-01", "at>2013-01-01T05:00:00 00:00", "at>0001-01-01T00:00:00+14:00", "day>2013-02-30", "id>x",
            "on=yes", "on=1", "page in [1]", 'page="\\u0000"', 'page="\\ud800"',
        ],
    )  # fmt: skip
    def test_a_value_of_another_type_is_refused_with_column_type_and_operators(self, text):
        column = Filter.parse(text).column
        sql_type = TYPED.key.get(column) or TYPED.measures[column].result_type

        with pytest.raises(FilterError) as refused:
            check_where(TYPED, [Filter.parse(text)])

        assert f"where: {column} is {sql_type.split('(')[0]}" in str(refused.value)
        assert ", ".join(OPERATORS) in str(refused.value)

    @pytest.mark.parametrize(
        ("column", "what"),
        [("top", "top_k of type jsonb"), ("ms", "quantiles of type jsonb"), ("newest", "latest of type jsonb")],
    )
    def test_sketches_and_lists_are_refused_by_name(self, column, what):
        with pytest.raises(FilterError, match=f"measure '{column}' is a {what}, .* page, n, mean, cost, users"):
            check_where(TYPED, [Filter(column, "=", "1")])

    def test_an_unknown_column_is_refused_with_those_there_are(self):
        with pytest.raises(FilterError, match=r"no column 'hits'.* site, page, n, cost"):
            check_where(VIEWS, [Filter("hits", "=", "1")])

    def test_a_state_of_json_values_has_only_its_key_to_filter_by(self):
        spec = StateSpec("documents", key={"id": "text"}, value="jsonb")

        assert check_where(spec, [Filter("id", "=", "a")])
        with pytest.raises(FilterError, match=r"no column 'value'.* there are id"):
            check_where(spec, [Filter("value", "=", "1")])

    def test_too_many_conditions_and_values_are_refused(self):
        with pytest.raises(FilterError, match="21 conditions are over the limit of 20"):
            check_where(VIEWS, [Filter("n", ">", "1")] * 21)
        with pytest.raises(FilterError, match="a list of up to 1000 values"):
            check_where(VIEWS, [Filter("n", "in", [1] * 1001)])

    def test_a_numeric_is_compared_with_every_digit_that_is_asked_for(self, twins):
        feed = twins(replace(VIEWS, measures={"cost": Sum("cost", type="numeric(12,2)"), "n": Count()}))
        feed.commit({"site": "a", "page": "a", "n": 1, "cost": Decimal("0.10")})

        for reader in feed.readers():
            assert not list(pages(reader, where=[Filter.parse("cost>=0.1000000000000000000001")]))
            assert len(list(pages(reader, where=[Filter.parse("cost<0.1000000000000000000001")]))) == 1
            assert len(list(pages(reader, where=[Filter.parse("cost<1e131071")]))) == 1
            assert len(list(pages(reader, where=[Filter.parse("cost>1e-16383"), Filter.parse("cost<Infinity")]))) == 1


class TestBatches:
    @BOTH
    def test_the_value_of_an_open_batch_is_not_the_one_that_is_compared(self, twins, place):
        feed = twins(VIEWS)
        feed.commit({"site": "a", "page": "a", "n": 1, "cost": 5.0})
        feed.write(feed.begin(1), [{"site": "a", "page": "a", "n": 9, "cost": 7.0}])
        reader = feed.readers()[place]

        assert not list(pages(reader, where=[Filter("n", ">", 1)]))
        assert [entry["value"] for entry in pages(reader, where=[Filter("n", "=", 1)])] == [{"n": 1, "cost": 5}]
        assert exported(reader, where=[Filter("cost", "=", 5)]) == [("a", "a", 1, 5.0)]

    def test_a_row_that_cannot_be_told_then_makes_the_page_an_error_whatever_it_holds_now(self, twins):
        feed = twins(VIEWS)
        for n in range(3):
            feed.commit({"site": "a", "page": "a", "n": n, "cost": None})
        reader, _ = feed.readers()

        with pytest.raises(OutOfReachError):
            reader.page(where=[Filter("n", ">", 100)], at_txid=1)

    @BOTH
    def test_expired_entries_are_not_left_by_a_filter(self, twins, place):
        feed = twins(VIEWS, ttl=timedelta(hours=1))
        feed.commit({"site": "a", "page": "a", "n": 5, "cost": None})
        feed.wait(timedelta(hours=2))
        feed.commit({"site": "b", "page": "b", "n": 5, "cost": None})

        assert [entry["key"] for entry in pages(feed.readers()[place], where=[Filter("n", "=", 5)])] == [["b", "b"]]

    @BOTH
    def test_a_global_aggregate_is_filtered_too(self, twins, place):
        feed = twins(replace(VIEWS, key={}))
        feed.commit({"n": 5, "cost": None})
        reader = feed.readers()[place]

        assert [entry["key"] for entry in reader.page(where=[Filter("n", ">", 4)]).parsed()] == [[]]
        assert reader.page(where=[Filter("n", ">", 5)]).parsed() == []


class TestBounds:
    @BOTH
    @pytest.mark.parametrize("changelog", [False, True])
    def test_a_page_that_has_looked_at_many_rows_ends_there_and_goes_on_behind(self, twins, place, changelog):
        feed = twins(VIEWS, changelog=changelog)
        feed.commit(*({"site": "s", "page": f"{n:02}", "n": n + 1, "cost": None} for n in range(10)))
        reader, where = feed.readers()[place], [Filter("n", "in", [2, 10])]
        at = {"at_txid": 1} if changelog else {}

        first = reader.page(where=where, **at)
        second = reader.page(where=where, after=first.after, **at)

        assert ([e["key"][1] for e in first.parsed()], first.complete, first.after) == (["01"], False, ["s", "02"])
        assert (second.parsed(), second.complete, second.after) == ([], False, ["s", "05"])
        assert [entry["key"][1] for entry in pages(reader, where=where, **at)] == ["01", "09"]

    @pytest.mark.parametrize("past", [False, True])
    def test_no_more_rows_are_read_than_the_page_needs(self, conn, twins, all_rows, monkeypatch, past):
        monkeypatch.setattr(postgres_pages, "MOST_SCANNED", 400)
        feed = twins(VIEWS, changelog=past)
        feed.commit(*({"site": "s", "page": f"{n:05}", "n": n + 1, "cost": None} for n in range(2_000)))
        table = StateTable(feed.table_spec)
        conn.execute(f"ANALYZE tidegauge_state.{table.spec.name}")

        def read(*conditions):
            where = check_where(table.spec, [Filter.parse(text) for text in conditions])
            bounds = narrowed(table.spec, check_range(table.spec, (), (), ()), where)
            shape = shape_of(["n"], bounds, None, False, None, where, past=past)
            batch = [1] if past else []
            parameters = [*batch, *page_parameters(table, shape, bounds, None, 50, where), table.spec.name]
            conn.execute("SET LOCAL enable_seqscan = off")
            conn.execute("SET LOCAL enable_bitmapscan = off")
            (plan,) = conn.execute(
                b"EXPLAIN (ANALYZE, FORMAT JSON) " + page_sql(table, shape).as_bytes(), parameters
            ).fetchone()
            return sum(rows_read(scan) for scan in scans(plan[0]["Plan"], table.spec.name))

        with conn.transaction():
            assert read("n>0") <= 2 * 60
            assert read("n>1000000") <= 2 * 410
            assert read("site=s", "page=01000") <= 4


class TestNarrowed:
    @pytest.mark.parametrize(
        ("conditions", "prefix", "start", "stop"),
        [
            (["site=a"], ("a",), (), ()),
            (["site=a", "page=b"], ("a", "b"), (), ()),
            (["page=b"], (), (), ()),
            (["site>=a", "site<c"], (), ("a",), ("c",)),
            (["site>a"], (), ("a",), ()),
            (["site=a", "page>=b"], ("a",), ("a", "b"), ()),
            (["site!=a", "n=1"], (), (), ()),
        ],
    )
    def test_conditions_on_the_first_key_columns_become_a_range_of_keys(self, conditions, prefix, start, stop):
        where = check_where(VIEWS, [Filter.parse(text) for text in conditions])

        found = narrowed(VIEWS, check_range(VIEWS, (), (), ()), where)

        assert (found.prefix, found.start, found.stop) == (prefix, start, stop)

    def test_a_prefix_that_is_asked_for_stays(self):
        where = check_where(VIEWS, [Filter("site", "=", "b"), Filter("page", "=", "x")])

        assert narrowed(VIEWS, check_range(VIEWS, ("a",), (), ()), where).prefix == ("a", "x")
