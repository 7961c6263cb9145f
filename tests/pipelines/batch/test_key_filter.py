"""Groups that no table can hold are sifted out one by one, and the others go through untouched."""

import pyarrow as pa

from tidegauge.pipelines.batch.key_filter import KeyFilter
from tidegauge.state_backends import Count, StateSpec, Sum

ARROW = pa.schema([("a", pa.string()), ("b", pa.string()), ("n", pa.int64()), ("count", pa.int64())])
SPEC = StateSpec("s", key={"a": "text", "b": "text", "n": "bigint"}, measures={"count": Count()})


def batch_of(*groups):
    return pa.RecordBatch.from_pylist([dict(zip(ARROW.names, group, strict=True)) for group in groups], schema=ARROW)


def sift(*groups):
    refused = KeyFilter(SPEC, partials=True)
    kept = [row for rows in refused.filter_invalid([batch_of(*groups)]) for row in rows.to_pylist()]
    return [tuple(row.values()) for row in kept], [letter.reason for letter in refused.letters]


def test_good_groups_go_through():
    assert sift(("", "x", 0, 1), ("é", "y", -1, 2)) == ([("", "x", 0, 1), ("é", "y", -1, 2)], [])


def test_each_refused_group_is_named_once_by_its_first_fault():
    kept, reasons = sift(
        (None, "x", 1, 1), ("a", None, None, 1), ("a\0", "b\0", 1, 1), ("a" * 2000, "b" * 49, 1, 1), ("a", "b", 1, 1)
    )

    assert kept == [("a", "b", 1, 1)]
    assert reasons == [
        "key column a is null",
        "key column b is null",
        "key column a holds a NUL character",
        "the key's text is over the limit of 2048 bytes",
    ]


def test_a_letter_holds_the_group_s_aggregates():
    refused = KeyFilter(SPEC, partials=True)

    rest = list(refused.filter_invalid([batch_of((None, "x", 1, 7))]))

    assert rest == []
    assert refused.letters[0].line == '{"a":null,"b":"x","n":1,"count":7}'
    assert refused.letters[0].source == "state s"


def test_times_and_uuids_that_no_reader_could_read_back_are_refused():
    spec = StateSpec("s", key={"at": "timestamptz", "on": "date", "id": "uuid"}, measures={"count": Count()})
    types = [pa.timestamp("us", "UTC"), pa.date32(), pa.string(), pa.int64()]
    good_id, last_microsecond = "0" * 8 + "-0000-4000-8000-" + "A" * 12, 253_402_300_799_999_999
    columns = [
        [0, last_microsecond, last_microsecond + 1, -62_135_596_800_000_001, 0, 0, 0],
        [0, -719_162, 0, 0, 2_932_897, -719_163, 0],
        [good_id, good_id, good_id, good_id, good_id, good_id, "not-a-uuid"],
        [1, 2, 3, 4, 5, 6, 7],
    ]
    arrays = [
        pa.array(column).cast(kind) if kind != pa.date32() else pa.array(column, pa.int32()).cast(kind)
        for column, kind in zip(columns, types, strict=True)
    ]
    refused = KeyFilter(spec, partials=True)

    [kept] = refused.filter_invalid([pa.RecordBatch.from_arrays(arrays, ["at", "on", "id", "count"])])

    assert kept["count"].to_pylist() == [1, 2]
    assert [letter.reason for letter in refused.letters] == [
        "key column at is outside the years 1 to 9999",
        "key column at is outside the years 1 to 9999",
        "key column on is outside the years 1 to 9999",
        "key column on is outside the years 1 to 9999",
        "key column id is not a uuid",
    ]


def test_tuples_for_an_updater_have_no_totals():
    spec = StateSpec("s", key={"word": "text"}, measures={"frequency": Sum("change", type="bigint")})
    tuples = pa.RecordBatch.from_pylist([{"word": "dog", "change": 1}, {"word": None, "change": 1}])
    refused = KeyFilter(spec, partials=False)

    [kept] = refused.filter_invalid([tuples])

    assert kept.to_pylist() == [{"word": "dog", "change": 1}]
    assert [letter.reason for letter in refused.letters] == ["key column word is null"]
