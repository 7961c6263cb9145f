"""A bad line is explained by its first fault, and found in its file."""

import pytest
from pyspark.sql.types import StructType

from pipelines.sources.bad_lines import line_numbers, why_bad

SCHEMA = (
    StructType()
    .add("name", "string", nullable=False)
    .add("n", "integer")
    .add("big", "long")
    .add("x", "double")
    .add("ok", "boolean")
    .add("at", "timestamp")
)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("3", "not a JSON object but a number"),
        ('"text"', "not a JSON object but a text"),
        ("true", "not a JSON object but a boolean"),
        ("{}", "name: required, and absent or null"),
        ('{"name": "a", "n": 1.5}', "n: expected int, got 1.5"),
        ('{"name": "a", "n": true}', "n: expected int, got true"),
        ('{"name": "a", "n": 2147483648}', "n: expected int, got 2147483648"),
        ('{"name": "a", "big": "9"}', 'big: expected bigint, got "9"'),
        ('{"name": "a", "x": "9"}', 'x: expected double, got "9"'),
        ('{"name": "a", "ok": "yes"}', 'ok: expected boolean, got "yes"'),
        ('{"name": "a", "at": 5}', "at: expected timestamp, got 5"),
        ('{"name": "a", "n": "' + "9" * 100 + '"}', 'n: expected int, got "' + "9" * 59 + ".."),
        ('{"name": "a"}', "a value does not fit the schema"),
        ("[" * 100_000, "not JSON that can be read: nested too deeply"),
    ],
)
def test_the_reason_names_the_column_and_what_was_expected(line, reason):
    assert why_bad(line, SCHEMA) == reason


def test_a_line_that_repeats_is_found_at_each_of_its_places(tmp_path):
    file = tmp_path / "a.json"
    file.write_bytes(b"x\r\ny\r\nx\nx")
    number = line_numbers()

    assert [number(file, "x"), number(file, "x"), number(file, "y"), number(file, "x")] == [1, 3, 2, 4]


def test_a_line_has_no_number_where_the_file_cannot_be_read(tmp_path):
    number = line_numbers()

    assert number(tmp_path / "gone.json", "x") is None
