"""JSON that is joined from parts is, byte for byte, what PostgreSQL's own functions write."""

import pytest
from psycopg import sql

from tidegauge.state_backends.reader.json_sql import json_array, json_object, json_part

VALUES = {
    "text": ["", 'é🙂 "q" \\ \n\t\x01\x7f %s </script>', None],
    "bigint": [-(2**63), 2**63 - 1, None],
    "integer": [-1, 0, None],
    "boolean": [True, False, None],
    "double precision": ["NaN", "-Infinity", "1e-7", "1e300", "0.1", None],
    "numeric": ["NaN", "Infinity", "1.500", "12345678901234567890.12", None],
    "numeric(12,3)": ["1.5", None],
    "timestamptz": ["2026-03-01 05:00:00.120+02", "0044-03-15 12:00:00+00 BC", None],
    "date": ["2026-02-28", None],
    "uuid": ["00000000-0000-0000-0000-00000000000e", None],
    "jsonb": ['{"b": [1.50, null, "é"], "a": {}}', "null", '"t"', None],
    "json": ['{"b":1,  "b":2}', None],
    # Of aggregators of users.
    "interval": ["1 day 02:03:04.5", None],
    "inet": ["::1", None],
    "smallint": [7, None],
}


@pytest.mark.parametrize("sql_type", VALUES)
def test_a_value_is_written_as_json_build_object_does(conn, sql_type):
    part = json_part(sql.Identifier("v"), sql_type)
    ours = json_array(json_object({"of_type": part, "again": part}), "n DESC")

    statement = sql.SQL(
        "SELECT {ours}, json_agg(json_build_object('of_type', v, 'again', v) ORDER BY n DESC)::text "
        "FROM unnest(%s::{type}[]) WITH ORDINALITY AS each (v, n)"
    ).format(ours=ours, type=sql.SQL(sql_type))
    written, expected = conn.execute(statement, [VALUES[sql_type]]).fetchone()

    assert written == expected


def test_what_is_empty_is_written_as_well(conn):
    statement = sql.SQL("SELECT {}, {} FROM (SELECT 1 WHERE false) nothing").format(
        json_array(sql.SQL("'1'")), json_object({})
    )

    assert conn.execute(statement.as_string() + " GROUP BY ()").fetchone() == ("[]", "{}")
