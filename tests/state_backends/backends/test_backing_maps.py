from state_backends.backends.factory import BACKENDS as FACTORY_BACKENDS
from tests.contracts.backends import BACKENDS
from tests.contracts.backing_map import BackingMapContract


class TestEveryBackingMap(BackingMapContract):
    """`new_backing` goes through the list of backends."""


def test_the_list_of_backends_leaves_none_out():
    assert set(BACKENDS) >= set(FACTORY_BACKENDS)
