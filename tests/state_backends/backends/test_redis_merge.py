"""The merge on Redis: what every merge promises, and arithmetic beyond Lua's numbers."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.contracts.backends import emptied, spread
from tests.contracts.merge import (
    MIDNIGHT,
    VIEWS,
    FoldContract,
    KeysThroughArrowContract,
    ReplayContract,
    TimeToLiveContract,
    rows,
)
from tests.state_backends.feed import arrow
from tidegauge.state_backends import Count, Max, StateSpec, Sum, Versioned
from tidegauge.state_backends.backends.redis import scripts
from tidegauge.state_backends.backends.redis.rows import RedisBackingMap
from tidegauge.state_backends.errors import DuplicateKeyError, KeyShapeError, SpecError, ValueShapeError

MINUTE = timedelta(minutes=1)


@pytest.fixture
def fresh(fresh, client):
    return lambda spec: emptied(client, fresh(spec))


@pytest.fixture(params=[1, 8], ids=["in_one", "spread"])
def state(request, fresh, client):
    """Makes a map and a function that merges rows into it as one task of a batch."""

    def state(spec, **limits):
        backing = RedisBackingMap(client, fresh(spread(spec, request.param)), **limits)

        def merge(txid, *rows, at=MIDNIGHT, batches=None):
            return backing.merge(arrow(rows) if batches is None else batches, txid, at)

        return backing, merge

    return state


class Last:
    """A measure of a user's own: the last value there was."""

    fold_lua: ClassVar = {"": "{partial} or {stored}"}
    fold_sql: ClassVar = {}

    def __init__(self, sql_type):
        self.columns = {"": sql_type}

    def partial(self):
        return {"": "last(x)"}


class TestFold(FoldContract):
    def test_a_row_loses_the_fields_that_have_become_null(self, state):
        backing, merge = state(StateSpec("tops", key={"page": "text"}, measures={"top": Max("x")}, ttl=MINUTE))
        nothing = pa.RecordBatch.from_pydict({"page": ["a"], "top": pa.array([None], pa.float64())})
        merge(1, {"page": "a", "top": 1.0}, at=MIDNIGHT)
        merge(2, {"page": "a", "top": 2.0}, at=MIDNIGHT)

        merge(3, batches=[nothing], at=MIDNIGHT + MINUTE)
        merge(4, {"page": "a", "top": 4.0}, at=MIDNIGHT + MINUTE)

        assert rows(backing)["a",] == Versioned({"top": 4.0}, 4, {"top": None}, 3)

    @pytest.mark.parametrize(
        ("sql_type", "arrow_type", "first", "second"),
        [
            ("text", pa.string(), "é\0\n", ""),
            ("bytea", pa.binary(), b"\x00\xff", b""),
            ("boolean", pa.bool_(), True, False),
            ("date", pa.date32(), date(2013, 1, 1), date.max),
            ("timestamptz", pa.timestamp("us", "UTC"), MIDNIGHT, datetime.max.replace(tzinfo=UTC)),
            ("numeric", pa.decimal128(38, 9), Decimal("-0.000000001"), Decimal("12345678901234567890.000000001")),
            ("double precision", pa.float64(), float("nan"), -0.0),
        ],
    )
    def test_an_aggregator_of_ones_own_folds_columns_of_any_type(self, state, sql_type, arrow_type, first, second):
        backing, merge = state(StateSpec("last", key={"page": "text"}, measures={"x": Last(sql_type)}))

        for txid, value in enumerate([first, second, None], start=1):
            columns = {"page": ["a", "b"], "x": pa.array([value, None], arrow_type)}
            merge(txid, batches=[pa.RecordBatch.from_pydict(columns)])

        assert repr(rows(backing)["a",].value["x"]) == repr(second)
        assert rows(backing)["b",].value == {"x": None}

    def test_calls_in_chunks_fold_every_key_once(self, state):
        backing, merge = state(VIEWS, max_put_keys=7)
        task = [{"page": f"{n:03}", "n": n} for n in range(100)]

        assert [merge(txid, *task) for txid in (1, 2, 2)] == [100] * 3

        assert {key: row.value["n"] for key, row in backing.scan()} == {(f"{n:03}",): 2 * n for n in range(100)}

    def test_a_measure_that_lua_cannot_fold_is_refused(self, state):
        _, merge = state(replace(VIEWS, measures={"x": Sum("x", type="numeric")}))

        with pytest.raises(
            SpecError, match=r"state 'views_\d+': Lua cannot fold its measures; use a map's multi_update"
        ):
            merge(1, {"page": "a", "x": 1})

    def test_a_value_of_another_type_is_refused_before_anything_is_written(self, state):
        backing, merge = state(VIEWS)

        with pytest.raises(ValueShapeError, match=r"state 'views_\d+': n must be bigint: .*'many'"):
            merge(1, {"page": "a", "n": "many"})

        assert rows(backing) == {}


class TestReplay(ReplayContract):
    """A refused call writes nothing."""


class TestKeysThroughArrow(KeysThroughArrowContract):
    @pytest.mark.parametrize(
        ("page", "reason"), [("a\0b", "key 1: page holds a NUL"), ("é" * 1025, "key 1: 2050 bytes of text are over")]
    )
    def test_a_key_that_could_not_be_asked_for_is_refused_before_anything_is_written(self, state, page, reason):
        backing, merge = state(VIEWS)

        with pytest.raises(KeyShapeError, match=reason):
            merge(1, {"page": "fine", "n": 1}, {"page": page, "n": 1})

        assert rows(backing) == {}

    @pytest.mark.parametrize(
        ("kind", "part"), [("integer", 2**31), ("uuid", "1234"), ("bigint", "one"), ("date", "yesterday")]
    )
    def test_a_part_of_another_type_is_refused(self, state, kind, part):
        _, merge = state(StateSpec("typed", key={"k": kind}, measures={"n": Count()}))

        with pytest.raises(KeyShapeError, match=rf"state 'typed_\d+': k must be {kind}: "):
            merge(1, {"k": part, "n": 1})

    def test_zero_has_one_sign_as_a_key(self, state):
        backing, merge = state(StateSpec("typed", key={"k": "double precision"}, measures={"n": Count()}))

        with pytest.raises(DuplicateKeyError):
            merge(1, {"k": 0.0, "n": 1}, {"k": -0.0, "n": 1})

        assert rows(backing) == {}


class TestTimeToLive(TimeToLiveContract):
    """By the clock that the batch brings."""


LARGEST = 2**63 - 1
BIGINTS = st.integers(-LARGEST - 1, LARGEST) | st.sampled_from(
    [sign * (10**power + step) for sign in (1, -1) for power in range(1, 19) for step in (-1, 0, 1)]
    + [LARGEST, -LARGEST - 1, -LARGEST, 2**53, 2**53 + 1, -(2**53) - 1]
)
DOUBLES = st.floats()


@pytest.fixture(scope="module")
def lua(client):
    """Calls a function of arithmetic.lua on two numbers; raises OverflowError where it says that the result is none."""
    text = scripts.file_text("arithmetic")
    functions = {
        name: client.register_script(
            # An echo is the text that a field would hold.
            f"{text}\nlocal result = {name}(ARGV[1], ARGV[2])\nreturn {{redis.call('ECHO', result), overflow or false}}"
        )
        for name in ("add_integer", "min_integer", "max_integer", "add_double", "min_double", "max_double")
    }

    def call(name, one, other):
        result, overflow = functions[name](args=[repr(one), repr(other)])
        if overflow:
            raise OverflowError(overflow.decode())
        return result.decode()

    return call


class TestArithmetic:
    @given(BIGINTS, BIGINTS)
    @example(-LARGEST, -1)
    @example(LARGEST - 1, 1)
    def test_bigints_add_exactly_or_not_at_all(self, lua, one, other):
        if -LARGEST - 1 <= one + other <= LARGEST:
            assert lua("add_integer", one, other) == str(one + other)
        else:
            with pytest.raises(OverflowError):
                lua("add_integer", one, other)

    @given(BIGINTS, st.integers(-2, 2))
    @example(2**53, 1)
    def test_bigints_compare_exactly(self, lua, one, step):
        other = max(-LARGEST - 1, min(LARGEST, one + step))

        assert lua("min_integer", one, other) == str(min(one, other))
        assert lua("max_integer", one, other) == str(max(one, other))

    @given(DOUBLES, DOUBLES)
    @example(float("inf"), float("-inf"))
    @example(-0.0, -0.0)
    def test_doubles_add_to_the_last_bit(self, lua, one, other):
        total = one + other
        if abs(total) == float("inf") and float("inf") not in (abs(one), abs(other)):
            with pytest.raises(OverflowError):
                lua("add_double", one, other)
        else:
            text = lua("add_double", one, other)
            assert repr(float(text)) == repr(total)
            assert text != "-nan"

    @given(DOUBLES, DOUBLES)
    def test_a_nan_is_the_largest_double(self, lua, one, other):
        in_order = sorted([one, other], key=lambda x: (x != x, 0 if x != x else x))

        assert float(lua("min_double", one, other)) == pytest.approx(in_order[0], abs=0, rel=0, nan_ok=True)
        assert float(lua("max_double", one, other)) == pytest.approx(in_order[1], abs=0, rel=0, nan_ok=True)
