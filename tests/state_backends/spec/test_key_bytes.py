"""Keys as bytes: they sort as PostgreSQL sorts keys, and decode to the same keys."""

import math
import struct
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state_backends.examples import examples
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.spec.key_bytes import KeyBytes, after_prefix
from tidegauge.state_backends.spec.types import KEY_TYPES

UTC_TIMES = st.datetimes(timezones=st.just(UTC))

PARTS = {
    "text": st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "boolean": st.booleans(),
    "double precision": st.floats(),
    "timestamptz": UTC_TIMES,
    "date": st.dates(),
    "uuid": st.uuids(),
}


def spec_of(*kinds):
    key = {f"part_{number}": kind for number, kind in enumerate(kinds)}
    return StateSpec("typed", key=key, measures={"n": Count()})


@st.composite
def specs_and_keys(draw):
    kinds = draw(st.lists(st.sampled_from(list(PARTS)), min_size=1, max_size=4))
    spec = spec_of(*kinds)
    keys = st.tuples(*(PARTS[kind] for kind in kinds)).map(spec.check_key)
    return spec, draw(keys), draw(keys)


def order(key):
    """PostgreSQL's order with COLLATE "C": text by its bytes, NaN after every number, -0.0 as 0.0."""
    return [_order(part) for part in key]


def _order(part):
    if isinstance(part, str):
        return part.encode()
    return (part != part, 0.0 if part != part else part) if isinstance(part, float) else part


def test_every_key_type_has_an_encoding():
    assert set(PARTS) == set(KEY_TYPES)


@given(specs_and_keys())
def test_bytes_sort_as_keys_do(drawn):
    spec, one, other = drawn
    encode = KeyBytes(spec).encode

    assert (encode(one) < encode(other)) == (order(one) < order(other))
    assert (encode(one) == encode(other)) == (order(one) == order(other))


@pytest.mark.parametrize("kind", PARTS)
@examples(20)
@given(data=st.data())
def test_the_order_is_that_of_postgresql(kind, data, conn):
    parts = data.draw(st.lists(PARTS[kind], max_size=20))
    collation = 'COLLATE "C"' if kind == "text" else ""

    rows = conn.execute(f"SELECT part FROM unnest(%s::{kind}[]) part ORDER BY part {collation}", [parts]).fetchall()

    spec = spec_of(kind)
    encoded = [KeyBytes(spec).encode(spec.check_key(row)) for row in rows]
    assert encoded == sorted(encoded)


@given(specs_and_keys())
def test_keys_decode_to_the_same_keys(drawn):
    spec, key, _ = drawn
    codec = KeyBytes(spec)

    back = codec.decode(codec.encode(key))

    assert order(back) == order(key)
    assert list(map(type, back)) == list(map(type, key))


@given(specs_and_keys(), st.integers(0, 4))
def test_a_prefix_of_parts_is_a_prefix_of_bytes(drawn, parts):
    spec, key, other = drawn
    encode = KeyBytes(spec).encode
    prefix = encode(key[:parts])

    assert encode(key).startswith(prefix)
    assert encode(other).startswith(prefix) == (order(other[:parts]) == order(key[:parts]))


@given(st.binary(), st.binary())
def test_after_prefix_is_greater_than_all_bytes_with_the_prefix(prefix, rest):
    beyond = after_prefix(prefix)

    if beyond is None:
        assert set(prefix) <= {255}
    else:
        assert prefix + rest < beyond <= max(beyond, prefix + b"\xff" * 9)
        assert not beyond.startswith(prefix)


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        ("text", ["", "\x01", "A", "a", "a\x01", "a b", "ab", "b", "é", "日本", "🙂"]),
        ("bigint", [-(2**63), -256, -1, 0, 1, 255, 256, 2**63 - 1]),
        ("integer", [-(2**31), -1, 0, 2**31 - 1]),
        ("boolean", [False, True]),
        ("double precision", [-math.inf, -1e308, -1.5, -5e-324, 0.0, 5e-324, 1.0, 1e308, math.inf, math.nan]),
        (
            "timestamptz",
            [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
        ),
        ("date", [date.min, date(1970, 1, 1), date.max]),
    ],
)
def test_the_edges_of_each_type_are_in_order(kind, ascending):
    codec = KeyBytes(spec_of(kind))

    encoded = [codec.encode((part,)) for part in ascending]

    assert encoded == sorted(encoded)
    assert len(set(encoded)) == len(encoded)
    assert [repr(codec.decode(key)[0]) for key in encoded] == [repr(part) for part in ascending]


def test_every_nan_is_one_key_and_zero_has_no_sign():
    encode = KeyBytes(spec_of("double precision")).encode
    (negative,) = struct.unpack(">d", bytes.fromhex("fff8000000000001"))

    assert encode((negative,)) == encode((math.nan,))
    assert encode((-0.0,)) == encode((0.0,))


def test_the_key_of_a_global_state_is_empty():
    codec = KeyBytes(spec_of())

    assert codec.encode(()) == b""
    assert codec.decode(b"") == ()
