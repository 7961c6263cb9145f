"""The arrays in which keys travel: PostgreSQL reads back what was sent, whatever the text."""

from datetime import UTC, date, datetime
from uuid import UUID

import pytest

from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.spec.table import StateTable, as_array

ODD_TEXTS = ["", "NULL", "null", "a,b", "{x}", " padded ", "it's", "Zürich 東京 🛫", "\x7f", "%s", "50%"]
ESCAPED_TEXTS = ['say "hi"', "back\\slash", "\\n", "new\nline", "tab\t", "\x01\x1f", '\\"', "\u2028"]


def table(**key):
    return StateTable(StateSpec("seen", key=key, measures={"n": Count()}))


@pytest.mark.parametrize("text", [*ODD_TEXTS, *ESCAPED_TEXTS])
def test_a_text_arrives_as_it_was_sent(conn, text):
    (array,) = conn.execute("SELECT %s::text[]", [as_array(("JFK", text))]).fetchone()

    assert array == ["JFK", text]


def test_texts_with_and_without_escapes_may_be_mixed(conn):
    texts = (*ODD_TEXTS, *ESCAPED_TEXTS)

    assert conn.execute("SELECT %s::text[]", [as_array(texts)]).fetchone() == (list(texts),)


@pytest.mark.parametrize(
    ("sql_type", "parts"),
    [
        ("bigint", (0, -(2**63), 2**63 - 1)),
        ("integer", (1, -1)),
        ("boolean", (True, False)),
        ("double precision", (1.5, -0.0, 1e300, float("inf"))),
        ("timestamptz", (datetime(2013, 1, 1, 5, tzinfo=UTC),)),
        ("date", (date(1, 1, 1), date(2013, 1, 1))),
        ("uuid", (UUID(int=7),)),
    ],
)
def test_parts_of_other_types_arrive_as_they_were_sent(conn, sql_type, parts):
    assert conn.execute(f"SELECT %s::{sql_type}[]", [as_array(parts)]).fetchone() == (list(parts),)


def test_keys_travel_as_one_array_per_column():
    assert table(origin="text", flight="integer").key_columns([("JFK", 1), ("EWR", 2)]) == [
        '{"JFK","EWR"}',
        "{1, 2}",
    ]


def test_no_key_is_an_empty_array_per_column():
    assert table(origin="text", flight="integer").key_columns([]) == [[], []]


def test_the_key_of_a_global_state_is_true():
    assert (table().key_columns([(), ()]), table().key_columns([])) == ([[True, True]], [[]])
