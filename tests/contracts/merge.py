"""What every merge on a server must do: Trident's rule per row, for any task, key and clock.

A module that runs it has a fixture `state`: spec to (backing map, merge(txid, *rows, at=.., batches=..)).
"""

import json
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

from tests.state_backends.feed import arrow
from tidegauge.state_backends import Count, Max, Mean, Min, RowCount, StateSpec, Sum, Versioned
from tidegauge.state_backends.errors import DuplicateKeyError, KeyShapeError, SpecError, StaleBatchError

SALES = StateSpec(
    "sales",
    key={"shop": "text"},
    measures={"n": Count(), "total": Sum("x", "double precision"), "top": Max("x"), "mean": Mean("x")},
)
VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
ORDERS = StateSpec("orders", key={"shop": "text"}, measures={"n": RowCount(), "cents": Sum("x", type="bigint")})
MIDNIGHT = datetime(2013, 1, 1, tzinfo=UTC)


def sale(shop, n, total=0.0, top=None, mean_sum=0.0, mean_count=0):
    return {"shop": shop, "n": n, "total": total, "top": top, "mean_sum": mean_sum, "mean_count": mean_count}


def orders(n, cents, shop="a"):
    return {"shop": shop, "n": n, "cents": cents}


def rows(backing):
    return dict(backing.scan())


class FoldContract:
    def test_the_first_batch_is_stored_as_it_is(self, state):
        backing, merge = state(SALES)

        assert merge(1, sale("a", 2, 3.5, 3.0, 3.5, 2), sale("b", 1)) == 2

        assert rows(backing)["a",] == Versioned({"n": 2, "total": 3.5, "top": 3.0, "mean_sum": 3.5, "mean_count": 2}, 1)

    def test_the_next_batch_folds_every_measure_and_keeps_the_previous_version(self, state):
        backing, merge = state(SALES)
        merge(1, sale("a", 2, 3.5, 3.0, 3.5, 2))

        merge(2, sale("a", 1, -1.0, -1.0, -1.0, 1))

        assert rows(backing)["a",] == Versioned(
            {"n": 3, "total": 2.5, "top": 3.0, "mean_sum": 2.5, "mean_count": 3},
            2,
            {"n": 2, "total": 3.5, "top": 3.0, "mean_sum": 3.5, "mean_count": 2},
            1,
        )

    def test_keys_that_a_batch_lacks_stay_as_they_are(self, state):
        backing, merge = state(VIEWS)
        merge(1, {"page": "a", "n": 1}, {"page": "b", "n": 1})

        merge(2, {"page": "a", "n": 1})

        assert rows(backing)["b",] == Versioned({"n": 1}, 1)

    def test_nulls_change_nothing(self, state):
        backing, merge = state(SALES)
        nothing = {"shop": "a", "n": None, "total": None, "top": None, "mean_sum": None, "mean_count": None}
        merge(1, nothing)
        merge(2, sale("a", 2, 3.5, 3.0, 3.5, 2))

        merge(3, nothing)

        assert rows(backing)["a",].value == {"n": 2, "total": 3.5, "top": 3.0, "mean_sum": 3.5, "mean_count": 2}

    def test_nan_and_infinity_go_through(self, state):
        backing, merge = state(
            replace(SALES, measures={"low": Min("x"), "top": Max("x"), "total": Sum("x", "double precision")})
        )
        nan, inf = float("nan"), float("inf")

        merge(1, {"shop": "a", "low": 1.0, "top": 1.0, "total": inf})
        merge(2, {"shop": "a", "low": nan, "top": nan, "total": 1.0})
        merge(3, {"shop": "a", "low": -inf, "top": 5.0, "total": -inf})

        value = rows(backing)["a",].value
        assert value["low"] == -inf
        assert str(value["top"]) == str(value["total"]) == "nan"

    def test_doubles_come_through_to_the_last_bit(self, state):
        backing, merge = state(replace(SALES, measures={"x": Max("x")}))
        doubles = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, 1e22, 123456789.12345679]

        merge(1, *[{"shop": repr(x), "x": x} for x in doubles])

        assert {key[0]: row.value["x"] for key, row in backing.scan()} == {repr(x): x for x in doubles}

    def test_bigints_are_exact(self, state):
        backing, merge = state(replace(SALES, measures={"n": Sum("n", type="bigint"), "low": Min("n", "bigint")}))

        for txid, n in enumerate([2**62, -1, 2**62, -(2**63), -(2**62), 1], start=1):
            merge(txid, {"shop": "a", "n": n, "low": n})

        assert rows(backing)["a",].value == {"n": -(2**62), "low": -(2**63)}

    @pytest.mark.parametrize(
        ("measure", "stored", "partial", "reason"),
        [
            (Sum("n", type="bigint"), 2**63 - 1, 1, "9223372036854775807 joined with 1 is out of the range of bigint"),
            (
                Sum("n", type="bigint"),
                -(2**63),
                -1,
                "-9223372036854775808 joined with -1 is out of the range of bigint",
            ),
            (
                Sum("x", "double precision"),
                1.7e308,
                1.7e308,
                "1.7e+308 joined with 1.7e+308 is out of the range of double precision",
            ),
            (Count(), 2**63 - 1, 2, "9223372036854775807 joined with 2 is out of the range of bigint"),
        ],
    )
    def test_a_total_that_overflows_is_refused_with_both_numbers(self, state, measure, stored, partial, reason):
        backing, merge = state(replace(SALES, measures={"n": measure, "low": Min("x")}))
        merge(1, {"shop": "a", "n": stored, "low": 2.0}, {"shop": "b", "n": type(stored)(1), "low": 2.0})
        before = rows(backing)

        merged = merge(2, *({"shop": shop, "n": partial, "low": 1.0} for shop in "abc"))

        after = rows(backing)
        assert merged == 2
        assert after["a",] == before["a",]
        assert after["b",].value == {"n": 1 + partial, "low": 1.0}
        assert after["c",].value == {"n": partial, "low": 1.0}
        [letter] = backing.refused
        assert (letter.source, letter.key) == (f"state {backing.spec.name}", ("a",))
        assert letter.reason.startswith(f"measure n: {reason}")
        assert letter.reason.endswith("; the key keeps the value from before the batch")
        assert json.loads(backing.refused[0].line) == {"shop": "a", "n": partial, "low": 1.0}

    def test_a_mean_that_overflows_is_refused(self, state):
        backing, merge = state(SALES)
        merge(1, sale("a", 1, mean_sum=1.7e308, mean_count=1))

        assert merge(2, sale("a", 1, mean_sum=1.7e308, mean_count=1)) == 0

        assert rows(backing)["a",].txid == 1
        assert [letter.reason.split(":")[0] for letter in backing.refused] == ["measure mean"]

    def test_a_replay_folds_into_the_version_before_and_is_not_refused_for_its_own_first_run(self, state):
        backing, merge = state(replace(SALES, measures={"n": Sum("n", type="bigint")}))
        merge(1, {"shop": "a", "n": 1})

        for _ in range(2):
            assert merge(2, {"shop": "a", "n": 2**63 - 2}) == 1

        assert rows(backing)["a",].value == {"n": 2**63 - 1}

    def test_many_refused_keys_among_many_are_found(self, state):
        backing, merge = state(replace(SALES, measures={"n": Sum("n", type="bigint")}))
        merge(1, *({"shop": f"{n}", "n": 2**63 - 1 if n % 3 else 0} for n in range(2_000)))

        assert merge(2, *({"shop": f"{n}", "n": 1} for n in range(2_000))) == 667

        assert {letter.key for letter in backing.refused} == {(f"{n}",) for n in range(2_000) if n % 3}
        assert {row.txid for key, row in backing.scan() if int(key[0]) % 3} == {1}

    @pytest.mark.parametrize("kind", ["opaque", "transactional", "non_transactional"])
    def test_a_key_is_removed_with_its_last_row_and_begins_anew_with_the_next(self, state, kind):
        backing, merge = state(replace(ORDERS, kind=kind))
        merge(1, orders(2, 5), orders(1, 3, "b"))
        merge(2, orders(-1, -4))
        assert rows(backing)["a",].value == {"n": 1, "cents": 1}

        merge(3, orders(-1, -1))
        assert rows(backing)["a",].value is None
        assert rows(backing)["b",].value == {"n": 1, "cents": 3}

        merge(4, orders(3, 9))
        assert rows(backing)["a",].value == {"n": 3, "cents": 9}

    def test_a_key_whose_rows_come_and_go_within_a_batch_is_not_there(self, state):
        backing, merge = state(ORDERS)

        merge(1, orders(0, 0))

        assert rows(backing)["a",].value is None

    def test_a_count_of_rows_that_is_not_fed_removes_nothing(self, state):
        backing, merge = state(ORDERS)

        merge(1, orders(None, 5))
        merge(2, orders(None, 5))

        assert rows(backing)["a",].value["cents"] == 10

    def test_a_global_state_folds_into_its_one_row(self, state):
        backing, merge = state(StateSpec("totals", measures={"top": Max("x")}))

        merge(1, {"top": None})
        merge(2, {"top": 2.0})
        merge(3, {"top": None})

        assert rows(backing) == {(): Versioned({"top": 2.0}, 3, {"top": 2.0}, 2)}

    def test_a_batch_may_be_empty(self, state):
        backing, merge = state(VIEWS)

        assert merge(1) == 0
        assert (
            merge(1, batches=[pa.RecordBatch.from_pylist([], schema=pa.schema({"page": "string", "n": "int64"}))]) == 0
        )
        assert rows(backing) == {}

    def test_columns_are_found_by_name_and_others_left_out(self, state):
        backing, merge = state(VIEWS)

        merge(1, {"extra": 1, "n": 2, "page": "a"})

        assert rows(backing) == {("a",): Versioned({"n": 2}, 1)}

    def test_many_arrow_batches_are_one_task(self, state):
        backing, merge = state(VIEWS)
        batches = [arrow([{"page": f"{n}", "n": n} for n in range(k, 500, 5)])[0] for k in range(5)]

        keys = merge(1, batches=batches)

        assert keys == 500
        assert {key: row.value["n"] for key, row in backing.scan()} == {(f"{n}",): n for n in range(500)}

    def test_a_state_of_json_values_has_nothing_to_merge(self, state):
        _, merge = state(StateSpec("texts", key={"page": "text"}, value="jsonb"))

        with pytest.raises(SpecError, match=r"state 'texts_\d+': has no measures to merge; use a map's multi_update"):
            merge(1, {"page": "a"})


class ReplayContract:
    def test_an_opaque_replay_folds_into_the_previous_version(self, state):
        backing, merge = state(VIEWS)
        merge(1, {"page": "a", "n": 10})
        merge(2, {"page": "a", "n": 5}, {"page": "new", "n": 1})

        merge(2, {"page": "a", "n": 1}, {"page": "new", "n": 7})

        assert rows(backing) == {("a",): Versioned({"n": 11}, 2, {"n": 10}, 1), ("new",): Versioned({"n": 7}, 2)}

    def test_an_opaque_replay_after_revert_is_a_clean_run(self, state):
        backing, merge = state(VIEWS)
        merge(1, {"page": "a", "n": 10}, {"page": "b", "n": 1})
        merge(2, {"page": "a", "n": 5}, {"page": "new", "n": 1})

        assert backing.revert(2) == 2
        merge(2, {"page": "b", "n": 1})

        assert {key: row.value["n"] for key, row in backing.scan()} == {("a",): 10, ("b",): 2}

    def test_a_replay_that_takes_fewer_rows_away_does_not_remove_the_key(self, state):
        backing, merge = state(ORDERS)
        merge(1, orders(2, 5))
        merge(2, orders(-2, -5))

        merge(2, orders(-1, -1))
        assert rows(backing)["a",] == Versioned({"n": 1, "cents": 4}, 2, {"n": 2, "cents": 5}, 1)

        backing.revert(2)
        assert rows(backing)["a",] == Versioned({"n": 2, "cents": 5}, 1)

    def test_a_transactional_replay_is_skipped_and_completes_what_is_missing(self, state):
        backing, merge = state(replace(VIEWS, kind="transactional"))
        merge(1, {"page": "a", "n": 10})

        merge(1, {"page": "a", "n": 10}, {"page": "b", "n": 1})

        assert rows(backing) == {("a",): Versioned({"n": 10}, 1), ("b",): Versioned({"n": 1}, 1)}

    def test_a_non_transactional_replay_counts_twice(self, state):
        backing, merge = state(replace(VIEWS, kind="non_transactional"))
        merge(1, {"page": "a", "n": 10})

        merge(1, {"page": "a", "n": 10})

        assert rows(backing) == {("a",): Versioned({"n": 20}, None)}

    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    def test_a_task_run_twice_changes_nothing(self, state, kind):
        backing, merge = state(replace(VIEWS, kind=kind, ttl=timedelta(days=1)))
        merge(1, {"page": "a", "n": 10}, {"page": "c", "n": 3})
        task = [{"page": "a", "n": 1}, {"page": "b", "n": 2}]
        merge(2, *task)
        before = rows(backing)

        merge(2, *task)
        merge(2, *reversed(task))

        assert rows(backing) == before

    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    def test_a_newer_row_is_refused_by_name_and_nothing_is_written(self, state, kind):
        backing, merge = state(replace(VIEWS, kind=kind))
        merge(8, {"page": "a", "n": 1}, {"page": "z", "n": 1})
        before = rows(backing)

        with pytest.raises(StaleBatchError) as caught:
            merge(7, {"page": "a", "n": 1}, {"page": "b", "n": 1})

        message = str(caught.value)
        assert message.startswith(f"state {backing.spec.name!r}: batch 7 is older than stored batch 8 for key ")
        assert message.endswith("; another runner has moved on, so stop this one")
        assert rows(backing)["a",] == before["a",]
        # A merge of rows of several buckets is all or none in each of them.
        assert backing.spec.partitions > 1 or rows(backing) == before

    def test_a_key_that_comes_twice_is_refused_and_nothing_is_written(self, state):
        backing, merge = state(VIEWS)

        with pytest.raises(DuplicateKeyError) as caught:
            merge(3, {"page": "b", "n": 1}, {"page": "a", "n": 1}, {"page": "a", "n": 2})

        assert str(caught.value) == (
            f"state {backing.spec.name!r}: batch 3 carries a key twice; combine its rows by page first"
        )
        assert rows(backing) == {}

    def test_two_rows_for_a_global_state_are_refused(self, state):
        _, merge = state(StateSpec("totals", measures={"n": Count()}))

        with pytest.raises(DuplicateKeyError, match="combine its rows by nothing first"):
            merge(1, {"n": 1}, {"n": 2})

    def test_a_key_with_a_null_part_is_refused_and_nothing_is_written(self, state):
        backing, merge = state(VIEWS)

        with pytest.raises(KeyShapeError) as caught:
            merge(3, {"page": "a", "n": 1}, {"page": None, "n": 1})

        assert str(caught.value) == (
            f"state {backing.spec.name!r}: batch 3 carries a key whose page is null; leave such rows out first"
        )
        assert rows(backing) == {}


class KeysThroughArrowContract:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            '"',
            '""',
            "a,b",
            "a\nb",
            "a\r\nb",
            "\\",
            "\\.",
            "\\N",
            "NULL",
            "null",
            "\t",
            "'",
            "é🙂",
            "\x01",
            'a"b,\n',
        ],
    )
    def test_any_text_is_a_key(self, state, text):
        backing, merge = state(VIEWS)

        for txid in (1, 2):
            merge(txid, {"page": text, "n": 1}, {"page": text + "x", "n": 10})

        assert {key: row.value["n"] for key, row in backing.scan()} == {(text,): 2, (text + "x",): 20}

    @pytest.mark.parametrize(
        ("kind", "arrow_type", "given", "stored"),
        [
            ("timestamptz", pa.timestamp("us", "UTC"), datetime(2013, 7, 1, 5, 0, 0, 1, UTC), None),
            ("timestamptz", pa.timestamp("us", "America/New_York"), datetime(2013, 7, 1, 5, tzinfo=UTC), None),
            ("timestamptz", pa.timestamp("ns", "UTC"), datetime(1913, 7, 1, 5, tzinfo=UTC), None),
            ("date", pa.date32(), date(2013, 2, 28), None),
            (
                "uuid",
                pa.string(),
                "12345678-1234-5678-1234-567812345678",
                uuid.UUID(int=0x12345678123456781234567812345678),
            ),
            ("boolean", pa.bool_(), False, None),
            ("double precision", pa.float64(), -0.1, None),
            ("double precision", pa.float64(), float("inf"), None),
            ("integer", pa.int32(), -(2**31), None),
            ("bigint", pa.int64(), 2**63 - 1, None),
            ("text", pa.large_string(), "a", None),
        ],
    )
    def test_every_key_type_comes_through(self, state, kind, arrow_type, given, stored):
        backing, merge = state(StateSpec("typed", key={"k": kind}, measures={"n": Count()}))
        schema = pa.schema([("k", arrow_type), ("n", pa.int64())])

        for txid in (1, 2):
            merge(txid, batches=[pa.RecordBatch.from_pylist([{"k": given, "n": 1}], schema=schema)])

        stored = given if stored is None else stored
        assert rows(backing) == {(stored,): Versioned({"n": 2}, 2, {"n": 1}, 1)}
        assert backing.multi_get([(stored,)])[0].value == {"n": 2}

    def test_a_nan_is_one_key(self, state):
        backing, merge = state(StateSpec("typed", key={"k": "double precision"}, measures={"n": Count()}))

        for txid in (1, 2):
            merge(txid, {"k": float("nan"), "n": 1})

        assert backing.multi_get([(float("nan"),)]) == [Versioned({"n": 2}, 2, {"n": 1}, 1)]


class TimeToLiveContract:
    HOUR = timedelta(hours=1)

    @pytest.fixture
    def views(self, state):
        return state(replace(VIEWS, ttl=self.HOUR))

    def test_an_expired_row_counts_as_absent(self, views):
        backing, merge = views
        merge(1, {"page": "a", "n": 10}, {"page": "b", "n": 10}, at=MIDNIGHT)

        merge(2, {"page": "a", "n": 1}, at=MIDNIGHT + self.HOUR - timedelta(microseconds=1))
        merge(3, {"page": "b", "n": 1}, at=MIDNIGHT + self.HOUR)

        assert {key: row.value["n"] for key, row in backing.scan()} == {("a",): 11, ("b",): 1}

    @pytest.mark.parametrize("kind", ["transactional", "non_transactional"])
    def test_an_expired_row_counts_as_absent_where_one_version_is_kept_too(self, state, kind):
        backing, merge = state(replace(VIEWS, kind=kind, ttl=self.HOUR))
        merge(1, {"page": "a", "n": 10}, {"page": "b", "n": 10}, at=MIDNIGHT)

        merge(2, {"page": "a", "n": 1}, at=MIDNIGHT + self.HOUR - timedelta(microseconds=1))
        merge(3, {"page": "b", "n": 1}, at=MIDNIGHT + self.HOUR)

        assert {key: row.value["n"] for key, row in backing.scan()} == {("a",): 11, ("b",): 1}

    def test_an_update_restarts_the_ttl(self, views):
        backing, merge = views
        for step in range(5):
            merge(step + 1, {"page": "a", "n": 1}, at=MIDNIGHT + step * self.HOUR * 0.9)

        assert rows(backing)["a",].value == {"n": 5}

    def test_a_replay_after_expiry_is_exact_with_and_without_revert(self, views):
        backing, merge = views
        merge(1, {"page": "a", "n": 10}, at=MIDNIGHT)
        for revert in (False, True):
            for n in (5, 1):
                merge(2, {"page": "a", "n": n}, at=MIDNIGHT + self.HOUR)
                assert rows(backing)["a",] == Versioned({"n": n}, 2, {"n": 10}, 1)
            if revert:
                backing.revert(2)
                assert rows(backing)["a",] == Versioned({"n": 10}, 1)

    def test_a_removed_row_counts_as_absent(self, views):
        backing, merge = views
        backing.multi_put([("a",)], [Versioned(None, 2, {"n": 10}, 1, MIDNIGHT, MIDNIGHT)])

        merge(3, {"page": "a", "n": 1}, at=MIDNIGHT)

        assert rows(backing)["a",] == Versioned({"n": 1}, 3, None, 2)

    def test_a_put_stores_the_time_of_the_previous_version_for_a_revert(self, views):
        backing, _ = views
        backing.multi_put([("a",)], [Versioned({"n": 2}, 2, {"n": 1}, 1)])

        backing.revert(2)

        assert rows(backing)["a",] == Versioned({"n": 1}, 1)
