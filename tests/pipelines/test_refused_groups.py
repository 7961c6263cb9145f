"""Groups that no table can hold are sifted out one by one, and the others go through untouched."""

import pyarrow as pa

from pipelines.refused_groups import RefusedGroups
from state_backends import Count, StateSpec

ARROW = pa.schema([("a", pa.string()), ("b", pa.string()), ("n", pa.int64()), ("count", pa.int64())])
SPEC = StateSpec("s", key={"a": "text", "b": "text", "n": "bigint"}, measures={"count": Count()})


def batch_of(*groups):
    return pa.RecordBatch.from_pylist([dict(zip(ARROW.names, group, strict=True)) for group in groups], schema=ARROW)


def sift(*groups):
    refused = RefusedGroups(SPEC)
    kept = [row for rows in refused.sift([batch_of(*groups)]) for row in rows.to_pylist()]
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
    refused = RefusedGroups(SPEC)

    rest = list(refused.sift([batch_of((None, "x", 1, 7))]))

    assert rest == []
    assert refused.letters[0].line == '{"a":null,"b":"x","n":1,"count":7}'
    assert refused.letters[0].source == "state s"
