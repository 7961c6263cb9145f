import pytest

from state_backends import NonTransactionalMap, OpaqueMap, TransactionalMap
from state_backends.maps import MAPS
from tests.contracts.map_state import NonTransactionalMapContract, OpaqueMapContract, TransactionalMapContract


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
