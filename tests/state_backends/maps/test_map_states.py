from datetime import UTC, datetime, timedelta

import pytest

from tests.contracts.map_state import NonTransactionalMapContract, OpaqueMapContract, TransactionalMapContract
from tidegauge.state_backends import (
    Combine,
    MemoryBackingMap,
    NonTransactionalMap,
    OpaqueMap,
    Reduce,
    SnapshottableMap,
    StateSpec,
    TransactionalMap,
)
from tidegauge.state_backends.maps import MAPS


class TestOpaqueMap(OpaqueMapContract):
    """Over every store."""


class TestTransactionalMap(TransactionalMapContract):
    """Over every store."""


class TestNonTransactionalMap(NonTransactionalMapContract):
    """Over every store."""


@pytest.mark.parametrize(
    ("kind", "map_class"),
    [("opaque", OpaqueMap), ("transactional", TransactionalMap), ("non_transactional", NonTransactionalMap)],
)
def test_each_kind_has_its_map(kind, map_class):
    assert MAPS[kind] is map_class


@pytest.mark.parametrize(
    ("updater", "new"),
    [(Combine(min, 5), 0), (Reduce(lambda: 100, max, [-1]), 0)],
    ids=["combine", "reduce"],
)
def test_a_stored_0_is_folded_into_and_not_taken_for_nothing(updater, new):
    assert updater.update(0) == new


def test_a_snapshot_may_be_one_row_among_others():
    rows = OpaqueMap(MemoryBackingMap(StateSpec("counts", key={"word": "text"}, value="jsonb")))
    rows.multi_put([("other",)], [1])
    snapshot = SnapshottableMap(rows, ("all",))

    snapshot.set(5)

    assert snapshot.update(Combine(max, 7)) == snapshot.get() == 7
    assert rows.multi_get([("other",), ("all",)]) == [1, 7]


def test_an_update_outside_a_batch_restarts_the_ttl():
    rows = OpaqueMap(MemoryBackingMap(StateSpec("c", key={"word": "text"}, value="jsonb", ttl=timedelta(days=1))))
    rows.begin_commit(1, at=datetime.now(UTC) - timedelta(hours=23))
    rows.multi_put([("a",)], [1])
    rows.commit(1)
    rows.multi_update([("a",)], [Combine(max, 2)])

    rows.begin_commit(2, at=datetime.now(UTC) + timedelta(hours=23))

    assert rows.multi_get([("a",)]) == [2]
