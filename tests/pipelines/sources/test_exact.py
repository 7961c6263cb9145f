"""Values that a source would change in silence are bad; all others pass as they were written."""

import json
import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tests.recovery_page import message_of
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.bad_lines import why_bad, why_bad_csv
from tidegauge.pipelines.sources.files.formats import CsvFiles, JsonFiles, ParquetFiles
from tidegauge.pipelines.sources.parsing import BAD_LINE, csv_events, csv_row, json_events, json_row, why_unreadable
from tidegauge.pipelines.spark.versions import spark_version
from tidegauge.state_backends import Count, StateSpec

# Type to texts that it cannot hold exactly, and to others that it can.
TEXTS = {
    "decimal(18,2)": (["1.125", "1e-3", "0.001e0"], ["1.120", "1.5e1", "1500e-4", "0e-9"]),
    "decimal(38,9)": (["0.1234567891"], ["0.123456789", "12345678901234567890.1"]),
    "decimal(3,0)": (["0.5"], ["1e2", "7.0"]),
    "double": (["1e400", "-1e400"], ["1e300"]),
    "float": (["-1e39"], ["1e38"]),
    "timestamp": (
        ["2024-01-01T00:00:00.1234567Z", "2024-01-01 00:00:00.000000001", "12:00", "T12:00"],
        ["2024-01-01T00:00:00.1234560Z", "2024-01-01 00:00:00+02:00", "2024-01-01 12:00:00", "2013"],
    ),
    "date": (
        ["2024-01-01T10:00:00Z", "2024-01-01 10:00", "0044-03-15 BC"],
        ["2024-01-01T00:00:00Z", "2024-01-01 00:00:00", "0044-03-15"],
    ),
}
# The same of values as JSON has them.
# Spark 4.0 reads half of a surrogate pair as a question mark; docs/spark-versions.md says so.
HALF_PAIRS = ['"\\ud800x"', '"?\\udc00"'] if spark_version() > (4, 0) else []

VALUES = {
    "decimal(18,2)": (["1.125", '"1.125"', "1e-3"], ["1.120", '"1.12"', "1.5e1"]),
    "decimal(38,9)": (
        ["0.1234567891", "12345678901234567890.12345678901234567891", f"1.{'0' * 45}1"],
        ["12345678901234567890.123456789", f"1.{'0' * 30}"],
    ),
    "double": (["1e400"], ["1e300", '"Infinity"', '"NaN"']),
    "float": (["-1e39"], ["1e38"]),
    "tinyint": (["200"], ["-56", "127"]),
    "timestamp": (
        [
            *map(json.dumps, TEXTS["timestamp"][0]),
            *('" 12:00"', '"  T12:00"', '"\\t12:00"', '"\\u0031\\u0032:00"'),
            *("9223372036854775807", "1700000000000"),
        ],
        [*map(json.dumps, TEXTS["timestamp"][1]), "1700000000", "-1"],
    ),
    "date": (list(map(json.dumps, TEXTS["date"][0])), list(map(json.dumps, TEXTS["date"][1]))),
    "string": (
        ["1.10", "1e400", "1.5", *HALF_PAIRS],
        ["12345678901234567890", '"1e400"', '"1.5"', "true", '"\\ud83d\\ude00"', '"\\\\ud800?"'],
    ),
    "struct<d: decimal(5,2)>": (['{"d": 1.125}'], ['{"d": 1.12}', "{}"]),
    "array<decimal(5,2)>": (["[1, null, 1.125]"], ["[1, null, 1.12]", "[]"]),
    "map<string, timestamp>": (['{"d": "2024-01-01T00:00:00.1234567Z"}'], ['{"d": "2024-01-01T00:00:00.123456Z"}']),
    "array<struct<x: double, ok: boolean>>": (['[{"x": 1e999}]'], ['[{"x": 1.5}, null]']),
}


def lines(spark, texts):
    return spark.createDataFrame([(text,) for text in texts], "value string").coalesce(1)


def is_bad(frame):
    return {row.value: row[BAD_LINE] is not None for row in frame.select("value", BAD_LINE).collect()}


def test_a_json_value_that_would_be_changed_makes_its_line_bad(spark):
    """Each type is a column of its own; a line has a value of one of them."""
    schema = StructType.fromDDL(", ".join(f"x{n} {kind}" for n, kind in enumerate(VALUES)) + ", other double")
    expected = {
        f'{{"x{n}": {value}, "other": 12.3456789012}}': value in changed
        for n, (changed, kept) in enumerate(VALUES.values())
        for value in [*changed, *kept, "null"]
    }

    found = is_bad(json_events(lines(spark, expected), schema, ["value"]))

    assert found == expected


@pytest.mark.skipif(not HALF_PAIRS, reason="this Spark does not report them")
def test_half_a_surrogate_pair_makes_its_line_bad_wherever_a_text_can_hold_it(spark):
    """Without maps in the schema, as most sources: the search then begins at the values that Spark has read."""
    schema = StructType.fromDDL("x string, deep struct<y: array<string>>")
    places = ['{"x": %s}', '{"x": {"as it is": %s}}', '{"x": [%s]}', '{"deep": {"y": ["a", %s]}}']
    bad = [place % half for place in places for half in HALF_PAIRS]
    good = ['{"x": "?", "other": "\\ud800"}', '{"x": "\\ud83d\\ude00?"}', '{"x": "\\\\ud800?"}', '{"x": {"y": "?"}}']

    found = is_bad(json_events(lines(spark, [*bad, *good]), schema, ["value"]))

    assert found == dict.fromkeys(bad, True) | dict.fromkeys(good, False)


def test_a_csv_field_that_would_be_changed_makes_its_line_bad(spark):
    schema = StructType.fromDDL(", ".join(f"x{n} {kind}" for n, kind in enumerate(TEXTS)) + ", other double")
    expected = {
        "," * n + value + "," * (len(TEXTS) - n) + "12.3456789012": value in changed
        for n, (changed, kept) in enumerate(TEXTS.values())
        for value in [*changed, *kept, ""]
    }

    found = is_bad(csv_events(lines(spark, expected), schema, ",", ["value"]))

    assert found == expected


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_a_plain_time_is_read_as_sparks_parsers_read_it(spark, kind):
    days = ["2024-02-29", "0001-01-01", "0000-01-01", "9999-12-31", "1582-10-10", "2023-02-29", "2024-13-01"]
    times = ["", "T00:00:00", " 23:59:59.999999", "T12:30:00.1", "T24:00:00", "T23:60:00"]
    zones = ["", "Z", "+05:30", "-18:00", "+19:00"]
    texts = [f"{day}{time}{zone}" for day in days for time in times for zone in zones[: len(time) + 1]]
    schema = StructType.fromDDL(f"x {kind}")
    given = lines(spark, [f'{{"x": "{text}"}}' for text in texts])
    fields = lines(spark, texts)

    for rows, read in (
        (json_events(given, schema, ["value"]), json_row("value", schema)),
        (csv_events(fields, schema, ",", ["value"]), csv_row("value", schema, ",")),
    ):
        read_as = rows.select("value", BAD_LINE, F.col("x").cast("string"), read.alias("row"))
        found = read_as.withColumn("expected", F.col("row.x").cast("string")).drop("row").collect()
        good = [row for row in found if row[BAD_LINE] is None]
        assert len(good) > 3
        assert [row.x for row in good] == [row.expected for row in good]
        assert [row.value for row in found if row.expected is None] == [row.value for row in found if row.x is None]


@pytest.mark.parametrize("kind", [*TEXTS, "timestamp_ntz"])
def test_a_text_that_would_be_changed_by_its_cast_is_named(spark, kind):
    changed, kept = TEXTS.get(kind, (["2024-01-01 00:00+02", "12:00"], ["2024-01-01 00:00"]))
    schema = StructType.fromDDL(f"x {kind}")
    frame = lines(spark, [*changed, *kept]).withColumnRenamed("value", "x")

    found = {row.x: row.reason for row in frame.select("x", why_unreadable(schema, F.col).alias("reason")).collect()}

    expected = schema["x"].dataType.simpleString()
    assert found == {text: f"x: expected {expected}, got {text}" for text in changed} | dict.fromkeys(kept)


NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9)
# Derandomized, and few: each example is a job of Spark.
FEW = settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])


@FEW
@given(st.lists(NUMBERS, min_size=200))
def test_a_decimal_is_as_it_was_written_or_its_line_is_bad(spark, numbers):
    schema = StructType.fromDDL("x decimal(18,6)")
    frame = json_events(lines(spark, [f'{{"x": {number}}}' for number in numbers]), schema, [])

    read = [(row.x, row[BAD_LINE] is not None) for row in frame.collect()]

    for number, (value, bad) in zip(numbers, read, strict=True):
        fits = number == number.quantize(Decimal("1e-6"))
        assert bad != fits, number
        assert bad or value == number


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("decimal(18,2)", "1.125", "1.125"),
        ("decimal(18,2)", '"1.125"', '"1.125"'),
        ("decimal(5,2)", "1000", "1000"),
        ("double", "1e400", "1E+400"),
        ("tinyint", "200", "200"),
        ("string", "1.10", "1.10"),
        ("date", '"2024-01-01T10:00:00Z"', '"2024-01-01T10:00:00Z"'),
        ("timestamp", '"2024-01-01T00:00:00.1234567Z"', '"2024-01-01T00:00:00.1234567Z"'),
    ],
)
def test_the_reason_of_a_json_line_has_column_type_and_value(spark, kind, value, shown):
    schema = StructType.fromDDL(f"x {kind}")

    assert why_bad(f'{{"x": {value}}}', schema) == f"x: expected {kind}, got {shown}"


def test_the_reason_of_a_csv_line_has_column_type_and_value(spark):
    schema = StructType.fromDDL("price decimal(18,2), x double")

    assert why_bad_csv("1.125,1", schema) == 'price: expected decimal(18,2), got "1.125"'
    assert why_bad_csv("1.12,1e400", schema) == 'x: expected double, got "1e400"'


def test_money_with_too_many_places_is_a_dead_letter_and_not_rounded(workspace):
    spec = StateSpec("paid", key={"price": "text"}, measures={"count": Count()})
    workspace.land("1.json", '{"price": 1.125}', '{"price": 1.12}')
    events = Stream.read(JsonFiles(workspace.input, schema="price decimal(18,2)")).each(price="string(price)")

    workspace.run(Pipeline("p", [events.group_by("price").persistent_aggregate(spec)]))

    assert workspace.values("paid") == {"1.12": {"count": 1}}
    [(source, line, reason)] = workspace.rows("SELECT source, line_number, reason FROM tidegauge.dead_letter")
    assert (source, line, reason) == ("1.json", 1, "price: expected decimal(18,2), got 1.125")
    assert re.search(message_of("Values that cannot be counted", 1), reason)


def test_csv_with_a_header_is_checked_as_well(workspace):
    spec = StateSpec("paid", key={"price": "text"}, measures={"count": Count()})
    workspace.land("1.csv", "price,at", "1.125,2024-01-01", "1.12,2024-01-01T00:00:00.1234567Z", "1.12,")
    events = Stream.read(CsvFiles(workspace.input, schema="price decimal(18,2), at timestamp"))

    by_price = events.each(price="string(price)").group_by("price")
    workspace.run(Pipeline("p", [by_price.persistent_aggregate(spec)]))

    assert workspace.values("paid") == {"1.12": {"count": 1}}
    assert workspace.rows("SELECT line_number FROM tidegauge.dead_letter ORDER BY 1") == [(2,), (3,)]


def test_a_number_in_parquet_that_is_too_large_for_its_column_is_a_dead_letter(workspace):
    spec = StateSpec("levels", key={"level": "text"}, measures={"count": Count()})
    workspace.input.joinpath("1.parquet").write_bytes(b"")
    pq.write_table(pa.table({"level": pa.array([300, 44, None], pa.int32())}), workspace.input / "1.parquet")
    events = Stream.read(ParquetFiles(workspace.input, schema="level tinyint")).each(level="string(level)")

    workspace.run(Pipeline("p", [events.where("level is not null").group_by("level").persistent_aggregate(spec)]))

    assert workspace.values("levels") == {"44": {"count": 1}}
    assert workspace.rows("SELECT line, line_number, reason FROM tidegauge.dead_letter") == [
        ('{"level":300}', 1, "level: expected tinyint, got 300")
    ]
