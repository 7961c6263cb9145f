from state_backends import BACKENDS as REGISTERED
from tests.contracts.backends import BACKENDS
from tests.contracts.backing_map import BackingMapContract


class TestEveryBackingMap(BackingMapContract):
    """`new_backing` goes through the list of backends."""


def test_the_list_of_backends_leaves_none_out():
    assert set(BACKENDS) >= set(REGISTERED)
