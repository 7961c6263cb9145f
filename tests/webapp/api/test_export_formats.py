"""Writers of CSV, JSON lines and Arrow: values are read back equal."""

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pyarrow.csv
import pytest

from tidegauge.webapp.api.export import arrow_stream, csv_lines, json_lines

COLUMNS = {
    "name": "text",
    "number": "bigint",
    "small": "integer",
    "ratio": "double precision",
    "exact": "numeric",
    "known": "boolean",
    "at": "timestamptz",
    "day": "date",
    "id": "uuid",
    "nested": "jsonb",
}
AT = datetime(2013, 1, 1, 5, 0, 0, 1, tzinfo=UTC)
UID = UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")
FULL = (
    'a "b", c\n',
    2**63 - 1,
    -1,
    0.1,
    Decimal("12345678901234567890.10"),
    True,
    AT,
    date(2013, 2, 28),
    UID,
    {"a": [1, None]},
)
EMPTY = (None,) * len(COLUMNS)
PLAIN = (
    "JFK",
    0,
    0,
    float("nan"),
    Decimal("NaN"),
    False,
    AT.astimezone(timezone(timedelta(hours=5))),
    None,
    UID,
    "text",
)
BATCHES = [[FULL, EMPTY], [PLAIN]]


def written(write):
    return b"".join(write(COLUMNS, iter(BATCHES)))


def test_csv_has_a_header_and_nested_values_as_json():
    header, full, empty, plain = csv.reader(io.StringIO(written(csv_lines).decode(), newline=""))

    assert header == list(COLUMNS)
    assert full == [
        'a "b", c\n', "9223372036854775807", "-1", "0.1", "12345678901234567890.10", "true",
        "2013-01-01T05:00:00.000001+00:00", "2013-02-28", "6f9619ff-8b86-d011-b42d-00c04fc964ff", '{"a":[1,null]}',
    ]  # fmt: skip
    assert empty == [""] * len(COLUMNS)
    assert (plain[3], plain[4], plain[6], plain[9]) == ("NaN", "NaN", "2013-01-01T05:00:00.000001+00:00", '"text"')


def test_csv_is_read_by_pyarrow():
    table = pyarrow.csv.read_csv(
        io.BytesIO(written(csv_lines)), parse_options=pa.csv.ParseOptions(newlines_in_values=True)
    )

    assert table.num_rows == 3
    assert table["name"].to_pylist() == ['a "b", c\n', "", "JFK"]


def test_json_lines_have_one_object_each_and_keep_every_digit():
    lines = written(json_lines).decode().splitlines()

    full, empty, plain = (json.loads(line, parse_float=Decimal) for line in lines)
    assert full == {
        "name": 'a "b", c\n', "number": 2**63 - 1, "small": -1, "ratio": Decimal("0.1"),
        "exact": Decimal("12345678901234567890.10"), "known": True, "at": "2013-01-01T05:00:00.000001+00:00",
        "day": "2013-02-28", "id": str(UID), "nested": {"a": [1, None]},
    }  # fmt: skip
    assert empty == dict.fromkeys(COLUMNS)
    assert (plain["ratio"], plain["exact"], plain["nested"]) == ("NaN", "NaN", "text")


def test_what_parts_two_lines_may_stand_in_a_value():
    rows = [("}\n{", {"a,\n,b": ",\n,"}), (",\n,", None), ("]", "[,\n")]
    lines = b"".join(json_lines({"name": "text", "nested": "jsonb"}, [rows])).splitlines()

    assert [tuple(json.loads(line).values()) for line in lines] == rows


def test_arrow_is_read_back_equal():
    with pa.ipc.open_stream(written(arrow_stream)) as reader:
        schema, table = reader.schema, reader.read_all()

    assert [str(field.type) for field in schema] == [
        "string", "int64", "int32", "double", "string",
        "bool", "timestamp[us, tz=UTC]", "date32[day]", "string", "string",
    ]  # fmt: skip
    full, empty, plain = table.to_pylist()
    assert full == dict(zip(COLUMNS, FULL, strict=True)) | {
        "exact": "12345678901234567890.10", "id": str(UID), "nested": '{"a":[1,null]}',
    }  # fmt: skip
    assert empty == dict.fromkeys(COLUMNS)
    assert (plain["exact"], plain["at"], plain["nested"]) == ("NaN", AT, '"text"')
    assert plain["ratio"] != plain["ratio"]


@pytest.mark.parametrize("write", [csv_lines, json_lines, arrow_stream])
def test_each_batch_is_sent_before_the_next_is_read(write):
    sent = []

    def batches():
        for rows in BATCHES:
            yield rows
            sent.append(len(parts))

    parts = []
    for part in write(COLUMNS, batches()):
        parts.append(part)

    assert sent == sorted(sent)
    assert sent[0] < len(parts)
    assert all(parts)


@pytest.mark.parametrize("write", [csv_lines, json_lines, arrow_stream])
def test_no_rows_give_a_valid_file(write):
    content = b"".join(write(COLUMNS, iter([])))

    assert content == b"" if write is json_lines else content


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_text_that_a_spreadsheet_would_run_begins_with_an_apostrophe_in_csv_alone(text):
    columns, rows = {"name": "text", "number": "bigint"}, [[(text, -1)]]

    _, row = csv.reader(io.StringIO(b"".join(csv_lines(columns, rows)).decode(), newline=""))
    assert row == [f"'{text}", "-1"]
    assert json.loads(b"".join(json_lines(columns, rows))) == {"name": text, "number": -1}
