"""Trident's cases of how rows and keys are written down (tests/vectors/trident.json): ours differs and is as exact.

Storm stores an opaque row as the JSON list [txid, value, previous]; ours have typed columns or fields. What carries
over is that a row comes back as it was, and what Storm's form loses.
"""

import json
from pathlib import Path

import pytest

from tidegauge.state_backends import Combine, StateSpec, Versioned
from tidegauge.state_backends.maps import MAPS

TRIDENT = json.loads((Path(__file__).parents[2] / "vectors" / "trident.json").read_text())
ROWS = {case["name"]: case for case in TRIDENT["serializer_vectors"]}
KEYS = {case["name"]: case for case in TRIDENT["redis_key_vectors"]}


def test_no_case_is_left_out():
    assert set(ROWS) == {
        "json_opaque",
        "json_transactional",
        "json_non_transactional_null",
        "json_opaque_null_txid_unreadable",
        "json_small_integers_change_type",
    }
    assert set(KEYS) == {"default_key_factory_single", "default_key_factory_non_string"}


@pytest.fixture
def backing(new_backing):
    """A backing map with one text column as its key, of the kind asked for."""
    return lambda kind, key="text": new_backing(StateSpec("cases", key={"word": key}, value="jsonb", kind=kind))


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_a_row_comes_back_as_it_was(backing, kind):
    value = ROWS[f"json_{kind}"]["value"]
    row = Versioned(value["value"], value["txid"], value.get("prev"), 2 if "prev" in value else None)
    rows = backing(kind)

    rows.multi_put([("a",)], [row])

    assert rows.multi_get([("a",)]) == [row]


def test_a_null_of_the_non_transactional_kind_reads_as_absent(backing):
    """Storm writes `null` and reads it as nothing; here it is a tombstone, which reads so too."""
    counts = MAPS["non_transactional"](backing("non_transactional"))
    counts.multi_put([("a",)], [ROWS["json_non_transactional_null"]["value"]])

    assert counts.multi_get([("a",)]) == [None]


def test_a_row_written_outside_a_batch_can_be_read_in_the_next(backing):
    """Storm writes its null txid and cannot read it back; here such a row has a txid older than any batch."""
    counts = MAPS["opaque"](backing("opaque"))
    counts.begin_commit(ROWS["json_opaque_null_txid_unreadable"]["value"]["txid"])
    counts.multi_put([("a",)], [5])

    counts.begin_commit(1)

    assert counts.multi_get([("a",)]) == [5]


def test_a_small_number_read_back_can_be_counted_on(backing):
    txid, value, prev = json.loads(ROWS["json_small_integers_change_type"]["utf8"])
    rows = backing("opaque")
    rows.multi_put([("a",)], [Versioned(value, txid, prev, txid - 1)])
    counts = MAPS["opaque"](rows)

    counts.begin_commit(txid + 1)

    assert counts.multi_update([("a",)], [Combine(lambda stored, partial: stored + partial, 1)]) == [7]


@pytest.mark.parametrize(
    ("case", "key_type"), list(zip(KEYS.values(), ["text", "bigint"], strict=True)), ids=list(KEYS)
)
def test_keys_of_any_type_are_keys(backing, case, key_type):
    """Storm's default key is one text and anything else raises; ours are typed, and two states share none."""
    rows, others = backing("opaque", key_type), backing("opaque", key_type)

    rows.multi_put([tuple(case["key"])], [Versioned(1, 1)])

    assert [key for key, _ in rows.scan()] == [tuple(case["key"])]
    assert list(others.scan()) == []
