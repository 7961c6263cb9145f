"""What every backing map must do. It runs on each of `contracts.backends.BACKENDS`."""

import math
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from tidegauge.state_backends import Count, StateSpec, Sum, Versioned
from tidegauge.state_backends.errors import DuplicateKeyError, KeyShapeError, StaleBatchError, ValueShapeError
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.spec.state_spec import MAX_KEY_BYTES

VIEWS = StateSpec("views", key={"page": "text", "day": "bigint"}, value="jsonb")
PAGES = StateSpec("pages", key={"page": "text"}, value="jsonb")
TOTALS = StateSpec("totals", value="jsonb")

# Values of each key type, as a caller may give them and as a scan gives them back.
KEY_PARTS = [
    ("text", "páge\n\"'\\,", "páge\n\"'\\,"),
    ("bigint", -(2**63), -(2**63)),
    ("integer", 2**31 - 1, 2**31 - 1),
    ("boolean", False, False),
    ("double precision", 0.1, 0.1),
    ("double precision", 3, 3.0),
    ("double precision", float("-inf"), float("-inf")),
    ("double precision", "NaN", math.nan),
    (
        "timestamptz",
        datetime(2013, 1, 1, 7, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2))),
        datetime(2013, 1, 1, 5, 30, 0, 123456, tzinfo=UTC),
    ),
    ("timestamptz", "2013-01-01T05:00:00Z", datetime(2013, 1, 1, 5, tzinfo=UTC)),
    ("date", date(2013, 1, 1), date(2013, 1, 1)),
    ("date", "2013-01-01", date(2013, 1, 1)),
    (
        "uuid",
        "12345678-1234-5678-1234-567812345678",
        uuid.UUID("12345678123456781234567812345678"),
    ),
]

# A value that cannot be stored as JSON, and part of the message.
NO_JSON = [
    (float("nan"), "not JSON compliant"),
    ([float("inf")], "not JSON compliant"),
    ({"a": "x\0y"}, "it holds a NUL character"),
    ("\ud800", "surrogates not allowed"),
    ({1, 2}, "not JSON serializable"),
]

EARLIER, LATER = datetime(2013, 1, 1, 5, 30, 0, 123456, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)

# Rows as each kind stores them, which must come back unchanged.
ROWS_OF_KIND = {
    "opaque": [Versioned(7, 3, 5, 2), Versioned(7, 3), Versioned(None, 3, 5, 2), Versioned(7, 3, None, 2)],
    "transactional": [Versioned(7, 3), Versioned(None, 3)],
    "non_transactional": [Versioned(7, None), Versioned(None, None)],
}


def keys_of_every_type() -> tuple[dict[str, str], list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return key columns, one of each type, and keys that have every value of KEY_PARTS: as given, and as stored."""
    parts = {kind: [(given, stored) for of, given, stored in KEY_PARTS if of == kind] for kind, _, _ in KEY_PARTS}
    count = max(map(len, parts.values()))
    keys = [[values[number % len(values)] for values in parts.values()] for number in range(count)]
    columns = {f"a_{kind.replace(' ', '_')}": kind for kind in parts}
    given, stored = ([tuple(part[side] for part in key) for key in keys] for side in (0, 1))
    return columns, given, stored


class BackingMapContract:
    """What every backing map must do; the fixture `new_backing` makes an empty one for a spec."""

    @pytest.fixture
    def backing(self, new_backing) -> IBackingMap:
        return new_backing(VIEWS)

    @pytest.fixture
    def pages(self, new_backing) -> IBackingMap:
        return new_backing(PAGES)

    def test_absent_keys_are_none_in_the_order_asked(self, backing):
        backing.multi_put([("/home", 9)], [Versioned(7, txid=1)])

        rows = backing.multi_get([("/cart", 9), ("/home", 9), ("/home", 9)])

        assert rows == [None, Versioned(7, txid=1), Versioned(7, txid=1)]

    def test_rows_come_in_the_order_asked_not_the_order_stored(self, backing):
        keys = [(page, day) for page in ("b", "a", "c") for day in (2, 1)]
        backing.multi_put(keys, [Versioned(number, txid=1) for number in range(6)])

        rows = backing.multi_get(list(reversed(keys)))

        assert [row.value for row in rows] == [5, 4, 3, 2, 1, 0]

    def test_empty_calls_do_nothing(self, backing):
        backing.multi_put([], [])
        backing.multi_remove([])

        assert backing.multi_get([]) == []
        assert list(backing.scan()) == []

    def test_a_put_replaces_what_was_there(self, backing):
        backing.multi_put([("/home", 9)], [Versioned(7, 2, 5, 1)])

        backing.multi_put([("/home", 9)], [Versioned(8, 3)])

        assert backing.multi_get([("/home", 9)]) == [Versioned(8, 3)]

    def test_a_key_that_comes_twice_in_a_put_is_refused_and_nothing_is_stored(self, backing):
        rows = [Versioned(1, 1), Versioned(2, 1), Versioned(3, 1)]

        with pytest.raises(DuplicateKeyError, match=r"key \('a', 1\) is given twice, at 0 and 2; combine"):
            backing.multi_put([("a", 1), ("b", 1), ("a", 1)], rows)

        assert list(backing.scan()) == []

    def test_every_nan_is_one_key_and_so_are_both_zeros(self, new_backing):
        backing = new_backing(StateSpec("readings", key={"x": "double precision"}, value="jsonb"))
        backing.multi_put([(float("nan"),), (-0.0,)], [Versioned(1, 1), Versioned(2, 1)])

        assert [row.value for row in backing.multi_get([(float("nan"),), ("NaN",), (0.0,)])] == [1, 1, 2]
        scanned = [key for key, _ in backing.scan()]
        assert scanned == [(0.0,), (math.nan,)]  # a NaN equals only the same object
        assert str(scanned[0][0]) == "0.0"
        with pytest.raises(DuplicateKeyError):
            backing.multi_put([(float("nan"),), (float("nan"),)], [Versioned(3, 2), Versioned(4, 2)])

    def test_a_put_with_a_wrong_key_stores_nothing(self, backing):
        with pytest.raises(KeyShapeError, match="key 1: "):
            backing.multi_put([("a", 1), ("b",)], [Versioned(1, 1), Versioned(2, 1)])

        assert list(backing.scan()) == []

    def test_one_row_too_few_is_refused(self, backing):
        with pytest.raises(ValueError, match="2 keys and 1 rows; give a row per key"):
            backing.multi_put([("a", 1), ("b", 1)], [Versioned(1, 1)])

        assert list(backing.scan()) == []

    def test_any_json_value_comes_back_as_it_was(self, backing):
        values = [0, "", False, [], {}, -1.5, 2**53, "π", {"a": [1, {"b": None}], "c": "\\"}, [None, [[]]], "null"]
        values += ["\\u0000"]  # not a NUL, though it looks like one
        keys = [("/home", number) for number in range(len(values))]
        rows = [Versioned(value, 2, value, 1) for value in values]

        backing.multi_put(keys, rows)

        stored = backing.multi_get(keys)
        assert stored == rows
        assert [type(row.value) for row in stored] == list(map(type, values))

    @pytest.mark.parametrize("kind", ROWS_OF_KIND)
    def test_rows_of_every_kind_come_back_as_they_were(self, new_backing, kind):
        backing = new_backing(StateSpec("rows", key={"page": "text"}, value="jsonb", kind=kind))
        rows = ROWS_OF_KIND[kind]
        keys = [(f"row {number}",) for number in range(len(rows))]

        backing.multi_put(keys, rows)

        assert backing.multi_get(keys) == rows
        assert list(backing.scan()) == list(zip(keys, rows, strict=True))

    def test_a_value_that_json_cannot_hold_is_refused_and_nothing_is_stored(self, pages):
        for value, reason in NO_JSON:
            with pytest.raises(ValueShapeError, match=rf"value of key \('b',\) cannot be stored as JSON: .*{reason}"):
                pages.multi_put([("a",), ("b",)], [Versioned(1, 1), Versioned(value, 1)])

        assert list(pages.scan()) == []

    def test_changing_an_object_after_the_put_changes_no_row(self, pages):
        value = {"pages": [1]}
        pages.multi_put([("a",)], [Versioned(value, 1)])

        value["pages"].append(2)

        assert pages.multi_get([("a",)]) == [Versioned({"pages": [1]}, 1)]

    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    def test_a_row_is_never_replaced_by_an_older_batch(self, new_backing, kind):
        backing = new_backing(StateSpec("rows", key={"page": "text"}, value="jsonb", kind=kind))
        backing.multi_put([("a",), ("b",)], [Versioned(6, 6), Versioned(5, 5)])

        with pytest.raises(StaleBatchError, match=r"batch 5 is older than stored batch 6 for key \('a',\)"):
            backing.multi_put([("b",), ("a",), ("c",)], [Versioned(0, 5), Versioned(0, 5), Versioned(0, 5)])

        kept = {key: row.value for key, row in backing.scan()}
        assert kept["a",] == 6
        # A put of rows of several buckets is all or none in each of them.
        assert backing.spec.partitions > 1 or kept == {("a",): 6, ("b",): 5}
        backing.multi_put([("a",)], [Versioned(7, 6)])
        assert backing.multi_get([("a",)]) == [Versioned(7, 6)]

    def test_times_come_back_as_they_were_given(self, pages):
        pages.multi_put([("a",)], [Versioned(2, 2, 1, 1, at=LATER, prev_at=EARLIER)])

        (row,) = pages.multi_get([("a",)])
        assert (row.at, row.prev_at) == (LATER, EARLIER)
        pages.revert(2)
        (row,) = pages.multi_get([("a",)])
        assert (row.at, row.prev_at) == (EARLIER, None)

    def test_a_row_without_times_gets_the_time_of_the_put(self, pages):
        start = datetime.now(UTC)

        pages.multi_put([("a",), ("b",)], [Versioned(2, 2, 1, 1), Versioned(2, 2)])

        (a, b) = pages.multi_get([("a",), ("b",)])
        for at in (a.at, a.prev_at, b.at):
            assert abs(at - start) < timedelta(minutes=1)
        assert b.prev_at is None

    def test_measures_come_back_as_stored_columns(self, new_backing):
        backing = new_backing(
            StateSpec(
                "sales", key={"shop": "text"}, measures={"n": Count(), "my_updated_at": Sum("x", "double precision")}
            )
        )
        row = Versioned({"n": 2, "my_updated_at": None}, 2, {"n": 1, "my_updated_at": -0.5}, 1)

        backing.multi_put([("a",)], [row])

        assert backing.multi_get([("a",)]) == [row]

    def test_a_removed_key_is_deleted_with_all_versions(self, backing):
        backing.multi_put([("a", 1), ("b", 1)], [Versioned(1, 2, 0, 1), Versioned(2, 2)])

        backing.multi_remove([("a", 1), ("absent", 1)])

        assert backing.multi_get([("a", 1), ("b", 1)]) == [None, Versioned(2, 2)]

    # scan

    def test_a_scan_is_in_byte_order_in_any_language(self, pages):
        texts = ["", "B", "Z", "a", "b", "~", "é", "ß", "\uff5a", "日本", "🙂", "a\u0301", "A", " ", "a b", "a-b", "ab"]
        pages.multi_put([(text,) for text in texts], [Versioned(text, 1) for text in texts])

        scanned = [key[0] for key, _ in pages.scan()]

        assert scanned == sorted(texts, key=str.encode)

    def test_a_scan_starts_with_start_and_ends_before_stop(self, pages):
        pages.multi_put([(text,) for text in "abcd"], [Versioned(text, 1) for text in "abcd"])

        assert [key for key, _ in pages.scan(start=("b",), stop=("d",))] == [("b",), ("c",)]
        assert [key for key, _ in pages.scan(start=("b ",))] == [("c",), ("d",)]
        assert [key for key, _ in pages.scan(stop=("b",))] == [("a",)]
        assert [key for key, _ in pages.scan(start=("d",), stop=("b",))] == []

    def test_a_scan_compares_compound_keys_part_by_part(self, backing):
        keys = [("a", 1), ("a", 10), ("a", 2), ("ab", 0), ("b", -1)]
        backing.multi_put(keys, [Versioned(0, 1) for _ in keys])

        assert [key for key, _ in backing.scan()] == [("a", 1), ("a", 2), ("a", 10), ("ab", 0), ("b", -1)]
        assert [key for key, _ in backing.scan(start=("a", 2), stop=("b", -1))] == [("a", 2), ("a", 10), ("ab", 0)]

    def test_a_prefix_matches_whole_parts(self, backing):
        keys = [("a", 1), ("a", 2), ("ab", 1)]
        backing.multi_put(keys, [Versioned(0, 1) for _ in keys])

        assert [key for key, _ in backing.scan(prefix=("a",))] == [("a", 1), ("a", 2)]
        assert [key for key, _ in backing.scan(prefix=["a", 2])] == [("a", 2)]
        assert [key for key, _ in backing.scan(prefix=("a",), start=("a", 2))] == [("a", 2)]
        assert len(list(backing.scan(prefix=()))) == 3

    def test_a_scan_checks_its_bounds(self, backing):
        with pytest.raises(KeyShapeError, match="expected 2 parts"):
            list(backing.scan(start=("a",)))
        with pytest.raises(KeyShapeError, match="day must be bigint"):
            list(backing.scan(stop=("a", "1")))
        with pytest.raises(KeyShapeError, match="prefix: page must be text, got 1"):
            list(backing.scan(prefix=(1,)))
        with pytest.raises(KeyShapeError, match="prefix: expected a list of at most 2 parts"):
            list(backing.scan(prefix=("a", 1, 1)))

    def test_a_nan_is_one_key_and_the_largest(self, new_backing):
        backing = new_backing(StateSpec("nans", key={"x": "double precision"}, value="jsonb"))
        numbers = [float("nan"), float("inf"), 0.0, float("-inf")]

        backing.multi_put([(number,) for number in numbers], [Versioned(str(number), 1) for number in numbers])

        assert [row.value for _, row in backing.scan()] == ["-inf", "0.0", "inf", "nan"]
        assert backing.multi_get([(float("nan"),), (-0.0,)]) == [Versioned("nan", 1), Versioned("0.0", 1)]
        with pytest.raises(DuplicateKeyError):
            backing.multi_put([(float("nan"),), (float("nan"),)], [Versioned(1, 1), Versioned(2, 1)])

    # keys

    def test_every_key_type_finds_what_it_stored(self, new_backing):
        key, given, stored = keys_of_every_type()
        backing = new_backing(StateSpec("typed", key=key, value="jsonb"))
        rows = [Versioned(str(number), 1) for number in range(len(given))]

        backing.multi_put(given, rows)

        assert backing.multi_get([*given, *stored]) == rows * 2
        assert dict(backing.scan()) == dict(zip(stored, rows, strict=True))
        assert [key for key, _ in backing.scan()] == sorted(stored)
        assert [key for key, _ in backing.scan(start=given[0], prefix=given[0])] == [stored[0]]
        backing.multi_remove(given)
        assert backing.multi_get(stored) == [None] * len(stored)

    def test_a_wrong_key_is_refused_with_its_index_by_every_call(self, backing):
        """Every way in which a key can be wrong is in tests/state_backends/spec/test_state_spec.py."""
        for call in (backing.multi_get, backing.multi_remove):
            for key in [("a", "1"), ("a", 2**63), ("a",)]:
                with pytest.raises(KeyShapeError, match=r"^key 1: ") as caught:
                    call([("a", 1), key])
                assert caught.value.index == 1

    def test_the_longest_key_is_stored_and_one_byte_more_is_refused(self, new_backing):
        backing = new_backing(StateSpec("long", key={"a": "text", "b": "text"}, value="jsonb"))
        # Random text, which an index cannot compress.
        noise = "".join(chr(33 + (number * 7919) % 89) for number in range(MAX_KEY_BYTES))
        longest = (noise[:1000], noise[1000:])

        backing.multi_put([longest], [Versioned(1, 1)])

        assert backing.multi_get([longest]) == [Versioned(1, 1)]
        with pytest.raises(KeyShapeError, match="key 0: 2049 bytes of text are over the limit of 2048: "):
            backing.multi_get([(noise, "x")])
        with pytest.raises(KeyShapeError, match="2050 bytes of text"):
            backing.multi_get([("é" * 1025, "")])

    def test_compound_keys_never_collide(self, new_backing):
        backing = new_backing(StateSpec("compound", key={"a": "text", "b": "text"}, value="jsonb"))
        keys = [
            ("ab", "c"),
            ("a", "bc"),
            ("a,b", "c"),
            ("a", "b,c"),
            ("", "abc"),
            ("abc", ""),
            ('"', '"'),
            ("\x01", ""),
        ]

        backing.multi_put(keys, [Versioned(number, 1) for number in range(len(keys))])

        assert [row.value for row in backing.multi_get(keys)] == list(range(len(keys)))

    def test_a_global_state_has_one_row_under_the_empty_key(self, new_backing):
        backing = new_backing(TOTALS)
        assert backing.multi_get([()]) == [None]

        backing.multi_put([()], [Versioned(3, 2, 1, 1)])

        assert backing.multi_get([(), ()]) == [Versioned(3, 2, 1, 1)] * 2
        assert list(backing.scan(start=(), prefix=())) == [((), Versioned(3, 2, 1, 1))]
        with pytest.raises(DuplicateKeyError):
            backing.multi_put([(), ()], [Versioned(1, 1), Versioned(2, 1)])
        with pytest.raises(KeyShapeError, match=r"key 0: expected 0 parts \(none\), got 1"):
            backing.multi_get([("x",)])
        backing.multi_remove([()])
        assert list(backing.scan()) == []

    # revert

    def test_a_revert_restores_the_previous_version_of_every_row_of_the_batch(self, backing):
        backing.multi_put(
            [("old", 1), ("both", 1), ("new", 1), ("removed", 1)],
            [Versioned(4, 4, 3, 3), Versioned(5, 5, 4, 4), Versioned(1, 5), Versioned(None, 5, 2, 2)],
        )

        rows = backing.revert(5)

        assert rows == 3
        assert dict(backing.scan()) == {
            ("old", 1): Versioned(4, 4, 3, 3),
            ("both", 1): Versioned(4, 4),
            ("removed", 1): Versioned(2, 2),
        }

    def test_a_revert_restores_a_removed_row(self, backing):
        backing.multi_put([("a", 1)], [Versioned(1, 5, None, 4)])

        backing.revert(5)

        assert backing.multi_get([("a", 1)]) == [Versioned(None, 4)]

    def test_a_second_revert_changes_nothing(self, backing):
        backing.multi_put([("a", 1), ("b", 1)], [Versioned(5, 5, 4, 4), Versioned(1, 5)])
        backing.revert(5)

        assert backing.revert(5) == 0
        assert list(backing.scan()) == [(("a", 1), Versioned(4, 4))]

    @pytest.mark.parametrize("kind", ["transactional", "non_transactional"])
    def test_kinds_that_keep_one_version_cannot_revert(self, new_backing, kind):
        backing = new_backing(StateSpec("one_version", key={"page": "text"}, value="jsonb", kind=kind))
        (row, _) = ROWS_OF_KIND[kind]
        backing.multi_put([("a",)], [row])

        assert backing.revert(3) == 0
        assert backing.multi_get([("a",)]) == [row]

    def test_many_keys_are_put_read_scanned_reverted_and_removed(self, backing):
        keys = [(page, day) for page in "abcde" for day in range(5)]
        backing.multi_put(keys, [Versioned(n, 2, -n, 1) for n in range(25)])

        assert [row.value for row in backing.multi_get(keys[::-1])] == list(range(24, -1, -1))
        assert [key for key, _ in backing.scan()] == keys
        assert [key for key, _ in backing.scan(prefix=("c",), stop=("c", 2))] == [("c", 0), ("c", 1)]
        assert backing.revert(2) == 25
        backing.multi_remove(keys[1:])
        assert list(backing.scan()) == [(keys[0], Versioned(0, 1))]
