"""fold_by_key: what stays the same is not written, and what is gone leaves nothing that never was."""

from pipelines.operators.keyed import fold_by_key
from state_backends import MemoryBackingMap, OpaqueMap, StateSpec, Versioned
from tests.pipelines.operators.updater_harness import START, OneReadOneWrite

TOTALS = StateSpec("totals", key={"name": "text"}, value="jsonb")


def test_only_values_that_change_are_written():
    rows = MemoryBackingMap(TOTALS)
    rows.multi_put([("same",), ("more",), ("gone",)], [Versioned(number, txid=1, at=START) for number in (0, 5, 9)])
    counts = OpaqueMap(rows)
    counts.begin_commit(2, at=START)

    def add(total, tuples):
        total = (total or 0) + sum(row["n"] for row in tuples)
        return None if total > 8 else total

    tuples = [{"name": name, "n": n} for name, n in [("same", 0), ("more", 1), ("more", 2), ("gone", 1), ("never", 9)]]
    fold_by_key(OneReadOneWrite(counts, None), tuples, ["name"], add)

    assert {key[0]: (row.value, row.txid) for key, row in rows.scan()} == {
        "same": (0, 1),
        "more": (8, 2),
        "gone": (None, 2),
    }
