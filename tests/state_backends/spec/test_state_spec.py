from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegauge.state_backends import BACKENDS, Count, Mean, StateSpec, Sum
from tidegauge.state_backends.errors import KeyShapeError, SpecError
from tidegauge.state_backends.spec.state_spec import weakest

COUNTS = {"n": Count()}


class Wide(Count):
    """A measure of many columns, as a user's own may be."""

    name = "wide"
    finish_sql = "{stored_c0}::bigint"

    def __init__(self, width):
        self.fold_sql = {}
        self.columns = {f"c{number}": "double precision" for number in range(width)}

    def arguments(self):
        return {"width": len(self.columns)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "Views", "measures": COUNTS},
            "state 'Views': 'Views' is not a valid name; use a lower case letter, then letters, digits or underscores, "
            "at most 40 in all",
        ),
        ({"name": "v" * 41, "measures": COUNTS}, "is not a valid name"),
        ({"name": 'v"; drop', "measures": COUNTS}, "is not a valid name"),
        ({"name": "", "measures": COUNTS}, "is not a valid name"),
        ({"name": "views\n", "measures": COUNTS}, "is not a valid name"),
        ({"key": {"Page": "text"}, "measures": COUNTS}, "'Page' is not a valid name"),
        ({"measures": {"1st": Count()}}, "'1st' is not a valid name"),
        (
            {"key": {"txid": "text"}, "measures": COUNTS},
            "state 'views': column 'txid' is taken or reserved; choose another name",
        ),
        ({"key": {"page": "text"}, "measures": {"page": Count()}}, "column 'page' is taken"),
        ({"key": {"prev_page": "text"}, "measures": COUNTS}, "column 'prev_page' is taken"),
        ({"key": {"value": "text"}, "value": "jsonb"}, "column 'value' is taken"),
        ({"measures": {"a": Mean("x"), "a_sum": Count()}}, "column 'a_sum' is taken"),
        # Mean stores a_sum and a_count, and the view shows it as `a`.
        ({"key": {"a": "text"}, "measures": {"a": Mean("x")}}, "column 'a' is taken"),
        ({"measures": {"txid": Mean("x")}}, "column 'txid' is taken"),
        ({"key": {"ttl": "text"}, "measures": COUNTS}, "column 'ttl' is taken"),
        ({"measures": {"committed_txid": Count()}}, "column 'committed_txid' is taken"),
        ({"key": {"ctid": "text"}, "measures": COUNTS}, "column 'ctid' is taken"),
        (
            {"key": {"page": "varchar"}, "measures": COUNTS},
            "state 'views': key 'page' has type 'varchar'; choose one of text, bigint, integer, boolean, "
            "double precision, timestamptz, date, uuid",
        ),
        ({}, "state 'views': give either measures or value='jsonb'"),
        ({"measures": COUNTS, "value": "jsonb"}, "give either measures or value"),
        ({"value": "bytea"}, "state 'views': value 'bytea' is not supported; use 'jsonb' or measures"),
        (
            {"measures": COUNTS, "kind": "exact"},
            "state 'views': kind 'exact' is not one of opaque, transactional, non_transactional",
        ),
        ({"measures": COUNTS, "ttl": timedelta()}, "must be longer than zero; None means unlimited"),
        ({"measures": COUNTS, "ttl": timedelta(days=-1)}, "must be longer than zero"),
        (
            {"key": {"page": "text"}, "measures": COUNTS, "partitions": 0},
            "state 'views': partitions 0 must be from 1 to 256, and 1 for a state without a key",
        ),
        ({"measures": COUNTS, "partitions": 2}, "partitions 2 must be from 1 to 256, and 1 for a state without a key"),
        (
            {"key": {"page": "text"}, "measures": COUNTS, "partitions": 1025},
            "partitions 1025 must be from 1 to",
        ),
        (
            {"key": {f"k{n}": "text" for n in range(32)}, "measures": COUNTS, "changelog": True},
            "state 'views': 32 key columns leave no room for the txid in the changelog's key; use at most 31, or leave "
            "out the changelog",
        ),
        (
            {"measures": {"wide": Wide(500)}},
            "state 'views': a row with all its versions has 1006 columns of 8048 bytes or more; the limits are 1600 "
            "and 8000, so split the state",
        ),
        ({"measures": {"wide": Wide(1597)}, "kind": "transactional"}, "has 1600 columns of 12800 bytes or more"),
        ({"measures": COUNTS, "backend": "memory"}, "state 'views': backend 'memory' is not one of postgres, redis"),
        (
            {"measures": COUNTS, "kind": "non_transactional", "changelog": True},
            "state 'views': a changelog needs txids; choose kind opaque or transactional",
        ),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(arguments, message):
    with pytest.raises(SpecError) as caught:
        StateSpec(**({"name": "views"} | arguments))

    assert message in str(caught.value)


HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TILED = {"key": {"page": "text", "start": "timestamptz"}, "measures": COUNTS, "tiles": {"minute": HOUR, "hour": None}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": {}}, "tiles need the start of the tile as the last key column, a timestamptz, and the key is {}"),
        ({"key": {"start": "timestamptz", "page": "text"}}, "tiles need the start of the tile as the last key column"),
        ({"tiles": {}}, "must name one or more of second, minute, hour, day"),
        ({"tiles": {"week": None}}, "must name one or more of second, minute, hour, day"),
        ({"tiles": {"minute": None, "hour": DAY}}, "all but the coarsest need a time to be kept for"),
        ({"tiles": {"minute": HOUR, "hour": timedelta()}}, "all but the coarsest need a time to be kept for"),
        ({"tiles": {"minute": -HOUR}}, "each must be kept longer than the finer ones"),
        ({"tiles": {"hour": HOUR, "minute": DAY}}, "each must be kept longer than the finer ones"),
        ({"measures": {}, "value": "jsonb"}, "cannot have tiles: a JSON value has no fold"),
        ({"kind": "transactional"}, "cannot have tiles: a transactional state cannot show whole batches"),
        ({"changelog": True}, "cannot have tiles: a changelog does not know of compacted tiles"),
        ({"ttl": DAY}, "cannot have tiles: `tiles` says how long rows are kept, so it takes no ttl"),
        ({"backend": "redis"}, "cannot have tiles: redis cannot compact them in one transaction"),
    ],
)
def test_tiles_that_cannot_be_kept_are_refused_by_name(change, message):
    StateSpec("views", **TILED)

    with pytest.raises(SpecError) as refused:
        StateSpec("views", **TILED | change)

    assert message in str(refused.value)


def test_partitions_are_refused_if_the_backend_cannot_divide_a_state(monkeypatch):
    monkeypatch.setitem(BACKENDS.data, "elsewhere", SimpleNamespace(has_partitions=False))

    with pytest.raises(SpecError, match="partitions 2, but a state in elsewhere cannot be divided; leave them at 1"):
        StateSpec("views", key={"page": "text"}, measures=COUNTS, backend="elsewhere", partitions=2)


@pytest.mark.parametrize("make", [lambda: Sum("x", type="money"), lambda: Sum("x", type="text")])
def test_a_sum_of_another_type_than_a_number_is_refused(make):
    with pytest.raises(SpecError, match=r"Sum\('x'\): type '\w+' is not one of bigint, double precision, numeric"):
        make()


def test_a_key_given_as_json_is_returned_typed():
    spec = StateSpec("views", key={"page": "text", "at": "timestamptz", "x": "double precision"}, measures=COUNTS)

    assert spec.check_key(["/", "2013-01-01T05:00:00+00:00", 3]) == ("/", datetime(2013, 1, 1, 5, tzinfo=UTC), 3.0)


# A key type, a part that it must refuse, and part of the message.
REFUSED_PARTS = [
    ("text", 5, "page must be text, got 5"),
    ("text", None, "page must be text, got None"),
    ("text", "a\0b", "page holds a NUL character, which PostgreSQL cannot store"),
    ("text", "\ud800", "page holds half of a surrogate pair, which cannot be stored"),
    ("bigint", True, "page must be bigint, got True"),
    ("bigint", 1.0, "page must be bigint, got 1.0"),
    ("bigint", "1", "page must be bigint, got '1'"),
    ("bigint", 2**63, "page must be bigint, and 9223372036854775808 is out of its range"),
    ("bigint", -(2**63) - 1, "out of its range"),
    ("integer", 2**31, "out of its range"),
    ("integer", -(2**31) - 1, "out of its range"),
    ("boolean", 1, "page must be boolean, got 1"),
    ("boolean", "true", "page must be boolean, got 'true'"),
    ("double precision", True, "page must be double precision, got True"),
    ("double precision", 10**400, "page must be double precision, got 1000"),
    ("timestamptz", datetime(2013, 1, 1), "page must be a timestamp with offset such as 2013-01-01T05:00:00Z"),
    ("timestamptz", "2013-01-01T05:00:00", "page must be a timestamp with offset"),
    ("timestamptz", date(2013, 1, 1), "page must be timestamptz"),
    ("timestamptz", "9999-12-31T23:00:00-05:00", "is not in the years 1 to 9999 of UTC"),
    ("timestamptz", "0001-01-01T00:00:00+05:00", "is not in the years 1 to 9999 of UTC"),
    ("timestamptz", "yesterday", "page must be timestamptz, got 'yesterday'"),
    ("date", datetime(2013, 1, 1, tzinfo=UTC), "page must be date"),
    ("uuid", "1234", "page must be uuid, got '1234'"),
]


@pytest.mark.parametrize(("kind", "part", "reason"), REFUSED_PARTS)
def test_a_part_of_the_wrong_type_or_range_is_refused_with_its_index(kind, part, reason):
    spec = StateSpec("typed", key={"page": kind}, measures=COUNTS)

    with pytest.raises(KeyShapeError) as caught:
        spec.check_keys([(part,)])

    assert str(caught.value).startswith("key 0: ")
    assert reason in str(caught.value)
    assert caught.value.index == 0
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("key", [(), ("a",), ("a", 1, 2), "ab", 7, None, {"page": "a", "day": 1}])
def test_a_key_of_the_wrong_shape_is_refused_with_its_index(key):
    spec = StateSpec("views", key={"page": "text", "day": "bigint"}, measures=COUNTS)

    with pytest.raises(KeyShapeError, match="key 1: expected") as caught:
        spec.check_keys([("a", 1), key])

    assert caught.value.index == 1


TEXTS = st.one_of(st.text("ab\0é", max_size=3), st.sampled_from(["x" * 1_024, "x" * 1_025, "é" * 600]))
NUMBERS = st.one_of(st.integers(-(2**33), 2**33), st.sampled_from([2**31 - 1, 2**31, -(2**31), True]))
PARTS = st.one_of(TEXTS, NUMBERS, st.sampled_from([None, 1.0]))
KEYS = st.one_of(st.tuples(TEXTS, NUMBERS, TEXTS), st.lists(PARTS, max_size=4), st.tuples(PARTS, PARTS, PARTS), PARTS)


@example([("x" * 1_025, 1, "x" * 1_024)])
@example([("é" * 600, 1, "x" * 1_024)])
@example([("a", 2**31, "b")])
@example([("a", -(2**31) - 1, "b")])
@example([("a", True, "b")])
@example([("a", 1)])
@given(keys=st.lists(KEYS, max_size=3))
def test_check_keys_gives_what_check_key_gives_for_each(keys):
    spec = StateSpec("views", key={"page": "text", "size": "integer", "to": "text"}, measures=COUNTS)
    outcomes = []

    for check in (lambda: [spec.check_key(key, n) for n, key in enumerate(keys, 5)], lambda: spec.check_keys(keys, 5)):
        try:
            outcomes.append(check())
        except KeyShapeError as error:
            outcomes.append((str(error), error.index))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("part", ["x" * 100_000, 10**3000, ["x" * 100_000], {"a": "x" * 100_000}, b"x" * 100_000])
@pytest.mark.parametrize("kind", ["bigint", "timestamptz", "double precision", "uuid"])
def test_a_message_stays_short_whatever_it_quotes(part, kind):
    spec = StateSpec("views", key={"page": kind}, measures=COUNTS)

    for key in ([part], part):
        with pytest.raises(KeyShapeError) as caught:
            spec.check_key(key, 3)
        assert len(str(caught.value)) < 250


def test_a_state_with_more_measures_than_an_answer_can_hold_is_refused():
    with pytest.raises(SpecError, match="1 key columns and 51 measures; the limits are 32 and 50"):
        StateSpec("s", key={"k": "text"}, measures={f"m{number}": Count() for number in range(51)})


@pytest.mark.parametrize(
    ("guarantees", "expected"),
    [
        (["exactly once", "exactly once"], "exactly once"),
        (["approximate", "at least once"], "approximate"),
        (["approximate", "a new word"], "a new word"),
    ],
)
def test_the_weakest_guarantee_counts(guarantees, expected):
    assert weakest(guarantees) == expected
