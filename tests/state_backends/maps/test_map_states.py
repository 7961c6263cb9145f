import pytest

from state_backends import Count, NonTransactionalMap, OpaqueMap, StateSpec, TransactionalMap
from state_backends.backends.factory import state_map
from state_backends.maps import MAPS
from tests.contracts.map_state import NonTransactionalMapContract, OpaqueMapContract, TransactionalMapContract


class TestOpaqueMap(OpaqueMapContract):
    """Over every backend."""


class TestTransactionalMap(TransactionalMapContract):
    """Over every backend."""


class TestNonTransactionalMap(NonTransactionalMapContract):
    """Over every backend."""


@pytest.mark.parametrize(
    ("kind", "map_class"),
    [("opaque", OpaqueMap), ("transactional", TransactionalMap), ("non_transactional", NonTransactionalMap)],
)
def test_the_factory_gives_each_kind_its_map(kind, map_class):
    counts = state_map(StateSpec("counts", key={"word": "text"}, measures={"n": Count()}, kind=kind))

    assert type(counts) is map_class is MAPS[kind]


def test_the_factory_keeps_rows_in_memory_where_no_connection_is_given():
    spec = StateSpec("counts", key={"word": "text"}, value="jsonb")
    counts, others = state_map(spec), state_map(spec)
    counts.begin_commit(1)
    counts.multi_put([("a",)], [1])

    assert counts.multi_get([("a",)]) == [1]
    assert others.multi_get([("a",)]) == [None]
