"""The reason why a line is bad names its first fault, and its number is found in the file."""

import pytest
from pyspark.sql.types import StructType

from tidegauge.pipelines.sources.bad_lines import line_numbers, why_bad, why_bad_csv

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


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a,1,2,3,true", "5 fields, expected 6"),
        ("name, n, big, x, ok, at", "a header, not an event"),
        (",1,2,3,true,", "name: required, and empty"),
        ("a,1.0,,,,", 'n: expected int, got "1.0"'),
        ("a,,9223372036854775808,,,", 'big: expected bigint, got "9223372036854775808"'),
        ("a,,,,TRUE,2013", 'at: expected timestamp, got "2013"'),
        ('a,,,,true,"2013', "a quote is not closed; a quoted field must end on its line"),
        ("a" * 200_000 + ",,,,,", "not CSV: field larger than field limit (131072)"),
        ("a,1,2,3e5,true,2013-01-01", "a value does not fit the schema"),
        ("\N{REPLACEMENT CHARACTER},1,2,3,true,", "not UTF-8"),
    ],
)
def test_the_reason_why_a_line_of_csv_is_bad_names_the_column_and_what_was_expected(line, reason):
    assert why_bad_csv(line, SCHEMA) == reason


def test_a_header_line_that_repeats_is_found_at_its_second_place(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("a\nb\na\nb\n")
    number = line_numbers(lambda line: line == "a")

    assert [number(file, "a"), number(file, "b"), number(file, "a")] == [3, 2, None]


def test_a_line_that_repeats_is_found_at_each_of_its_places(tmp_path):
    file = tmp_path / "a.json"
    file.write_bytes(b"x\r\ny\r\nx\nx")
    number = line_numbers()

    assert [number(file, "x"), number(file, "x"), number(file, "y"), number(file, "x")] == [1, 3, 2, 4]


def test_a_line_has_no_number_where_the_file_cannot_be_read(tmp_path):
    number = line_numbers()

    assert number(tmp_path / "gone.json", "x") is None
