import pytest

from tests.contracts.backends import BACKENDS
from tests.contracts.backing_map import BackingMapContract
from tidegauge.state_backends import BACKENDS as REGISTERED


class TestEveryBackingMap(BackingMapContract):
    """Stores, and wrappers over memory and over a store."""

    @pytest.fixture(params=BACKENDS)
    def backend(self, request):
        return request.param


def test_the_list_of_backends_leaves_none_out():
    assert set(BACKENDS) >= set(REGISTERED)
