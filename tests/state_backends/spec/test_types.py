"""SQL types: the table itself, and the dicts by SQL or Python type that must agree with it."""

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import ClassVar

import pyarrow as pa
import pytest

from tests.contracts import backing_map
from tests.contracts.backends import BACKENDS
from tests.state_backends.spec import test_key_bytes
from tests.webapp.api import test_typed_keys
from tidegauge.state_backends import Count, StateSpec, Versioned
from tidegauge.state_backends.aggregators import by_time, column, distinct, quantiles
from tidegauge.state_backends.backends.redis import row_codec
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.reader import bounds
from tidegauge.state_backends.spec import key_bytes
from tidegauge.state_backends.spec.key_bytes import KeyBytes
from tidegauge.state_backends.spec.types import KEY_TYPES, TYPES, SqlType, type_of

# One value of each type, and the text that PostgreSQL writes of it.
SAMPLES = {
    "text": ("é", "é"),
    "bigint": (-(2**63), "-9223372036854775808"),
    "integer": (7, "7"),
    "boolean": (True, "true"),
    "double precision": (0.1, "0.1"),
    "numeric": (Decimal("1.50"), "1.50"),
    "timestamptz": (datetime(2013, 1, 1, 5, tzinfo=UTC), "2013-01-01 05:00:00+00"),
    "date": (date(2013, 1, 1), "2013-01-01"),
    "uuid": (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    "bytea": (b"\x00\xff", "\\x00ff"),
    "jsonb": ({"a": [1, None]}, '{"a": [1, null]}'),
    "json": ([1, "a"], '[1, "a"]'),
}
EVERY_TYPE = pytest.mark.parametrize("sql_type", TYPES.values(), ids=list(TYPES))


@pytest.mark.parametrize(
    ("names", "of"),
    [
        pytest.param(SAMPLES, TYPES, id="samples here"),
        pytest.param(test_key_bytes.PARTS, KEY_TYPES, id="parts of keys as bytes"),
        pytest.param(test_typed_keys.WRITTEN, KEY_TYPES, id="keys over HTTP"),
        pytest.param(test_typed_keys.WRONG, KEY_TYPES, id="wrong keys over HTTP"),
        pytest.param([kind for kind, _, _ in backing_map.KEY_PARTS], KEY_TYPES, id="keys of every backend"),
    ],
)
def test_a_dict_by_sql_type_covers_the_table(names, of):
    assert set(names) == set(of)


@pytest.mark.parametrize(
    ("names", "of"),
    [
        pytest.param(column.FITS, column.VALUE_TYPES, id="what Spark holds and PostgreSQL does not"),
        pytest.param(column.NUMBER_TYPES, column.VALUE_TYPES, id="numbers"),
        pytest.param(by_time.FIELD_TYPES, column.VALUE_TYPES, id="fields of Latest"),
        pytest.param(distinct.ITEM_TYPES, column.VALUE_TYPES, id="items that are counted"),
        pytest.param(quantiles.FORMATS, column.NUMBER_TYPES, id="numbers of quantiles"),
        pytest.param(column.VALUE_TYPES, TYPES, id="values of measures"),
    ],
)
def test_a_dict_of_some_types_has_only_types_of_the_table(names, of):
    assert set(names) < set(of)


@pytest.mark.parametrize(
    ("pythons", "of"),
    [
        pytest.param(key_bytes.FORMS.keys() | {int}, KEY_TYPES.values(), id="keys as bytes"),
        pytest.param(row_codec.FORMS.keys() | {Decimal, date, uuid.UUID}, TYPES.values(), id="values in Redis"),
        pytest.param(
            bounds.STRICT.keys() | {date, uuid.UUID},
            [sql_type for sql_type in TYPES.values() if sql_type.is_ordered],
            id="values that order",
        ),
    ],
)
def test_a_dict_by_python_type_covers_the_table_except_defaults(pythons, of):
    assert pythons == {sql_type.python for sql_type in of}


@EVERY_TYPE
def test_the_text_of_a_value_reads_as_the_value(sql_type):
    value, text = SAMPLES[sql_type.name]

    assert sql_type.from_text(text) == value
    assert isinstance(value, sql_type.python)


@EVERY_TYPE
def test_arrow_holds_a_value_or_its_text(sql_type):
    value, text = SAMPLES[sql_type.name]

    assert pa.array([text if sql_type.is_text_in_arrow else value], sql_type.arrow).type == sql_type.arrow


def test_subsets_derive_from_the_table():
    assert list(KEY_TYPES) == [
        "text", "bigint", "integer", "boolean", "double precision", "timestamptz", "date", "uuid",
    ]  # fmt: skip
    assert list(column.NUMBER_TYPES) == ["bigint", "double precision", "numeric"]
    assert list(column.VALUE_TYPES) == ["bigint", "double precision", "numeric", "text", "boolean", "timestamptz"]


def test_a_type_that_is_not_in_the_table_is_handled_as_text():
    unknown = type_of("tsvector")

    assert (unknown.spark, unknown.arrow, unknown.is_ordered) == ("tsvector", pa.string(), False)


class Smallest(Count):
    columns: ClassVar = {"": "smallint"}
    result_type = "smallint"


@pytest.fixture
def smallint(monkeypatch):
    added = SqlType("smallint", int, "smallint", pa.int16(), width=2, widens_to="integer", is_key=True)
    monkeypatch.setitem(TYPES, "smallint", added)
    monkeypatch.setitem(KEY_TYPES, "smallint", added)
    return StateSpec("shelves", key={"shelf": "smallint"}, measures={"n": Smallest()})


@pytest.mark.parametrize("backend", ["memory", "postgres", "redis"])
def test_a_type_that_is_added_to_the_table_works_for_keys_and_values(smallint, backend, conn):
    backing = BACKENDS[backend](conn)(smallint)
    keys = [(-(2**15),), (-1,), (2**15 - 1,)]

    backing.multi_put(keys, [Versioned({"n": part}, 1) for (part,) in keys])

    assert [(key, row.value) for key, row in backing.scan()] == [(key, {"n": key[0]}) for key in keys]
    with pytest.raises(KeyShapeError, match="key 0: shelf must be smallint, and 32768 is out of its range"):
        backing.multi_get([(2**15,)])


def test_keys_of_an_added_type_sort_as_bytes(smallint):
    codec = KeyBytes(smallint)

    assert sorted(map(codec.encode, [(2,), (-3,), (0,)])) == list(map(codec.encode, [(-3,), (0,), (2,)]))


@pytest.mark.parametrize(("number", "is_out"), [("9" * 29 + ".999999999", False), ("1" + "0" * 29, True)])
def test_the_largest_number_of_a_numeric_is_in_range_whatever_its_digits(number, is_out):
    assert type_of("numeric(38, 9)").is_out_of_range(Decimal(number)) is is_out
    assert type_of("numeric(38, 9)").is_out_of_range(Decimal(number).copy_negate()) is is_out
