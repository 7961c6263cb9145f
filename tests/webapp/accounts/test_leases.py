"""Leases count what a client has under way in all processes, and end when their process has died."""

import socket
from contextlib import ExitStack, closing
from uuid import uuid4

import pytest
import redis
from django.conf import settings
from django.test import override_settings

from tests.harness.waiting import eventually
from tidegauge.webapp.accounts import leases, rate_limits
from tidegauge.webapp.accounts.concurrency import Concurrency, TooManyAtOnceError
from tidegauge.webapp.accounts.leases import FullError, held

pytestmark = pytest.mark.usefixtures("own_connections")


@pytest.fixture
def client() -> str:
    return f"test {uuid4().hex}"


@pytest.fixture
def stored(client):
    """Return how many leases the client has in Redis."""
    with redis.Redis.from_url(settings.REDIS_URL) as connection:
        yield lambda: connection.zcard(f"tidegauge:held:exports:{client}")


def test_a_client_has_so_many_of_a_kind_at_most(client):
    with held("exports", client, 2), held("exports", client, 2):
        with pytest.raises(FullError), held("exports", client, 2):
            pass
        with held("searches", client, 2), held("exports", f"{client} too", 2):
            pass
    with held("exports", client, 1):
        pass


def test_it_ends_with_its_work_also_by_an_error(client, stored):
    def fail() -> None:
        with held("exports", client, 1):
            assert stored() == 1
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()

    assert stored() == 0


def test_one_of_a_living_process_is_renewed_and_another_ends(client, stored, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 3)
    with held("exports", client, 3):
        rate_limits.run(leases.TAKE, [f"tidegauge:held:exports:{client}"], ["of a dead process", 3_000, 3])
        assert stored() == 2

        eventually(lambda: _others(client) == 2)
        assert stored() == 1


def _others(client: str) -> int:
    """Return how many more leases the client gets."""
    with ExitStack() as stack:
        for count in range(3):
            try:
                stack.enter_context(held("exports", client, 3))
            except FullError:
                return count
    return 3


def test_one_that_redis_has_lost_is_taken_again(client, stored):
    with held("exports", client, 1), redis.Redis.from_url(settings.REDIS_URL) as connection:
        connection.delete(f"tidegauge:held:exports:{client}")

        eventually(lambda: stored() == 1)


def test_without_redis_the_limit_of_the_process_holds(client, settings):
    settings.TIDEGAUGE_SHARED_LIMITS, settings.TIDEGAUGE_EXPORTS_EACH = True, 1
    exports = Concurrency("exports", may_share=True)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        with override_settings(REDIS_URL=f"redis://127.0.0.1:{free.getsockname()[1]}/0"), exports.held(client):
            with pytest.raises(TooManyAtOnceError), exports.held(client):
                pass
            with exports.held(f"{client} too"):
                pass


@pytest.mark.parametrize("shared", [True, False])
def test_the_limit_of_a_client_holds_over_processes_where_it_is_shared(client, settings, shared):
    settings.TIDEGAUGE_SHARED_LIMITS, settings.TIDEGAUGE_EXPORTS_EACH = shared, 1
    here, elsewhere = Concurrency("exports", may_share=True), Concurrency("exports", may_share=True)

    with here.held(client), ExitStack() as stack:
        if shared:
            with pytest.raises(TooManyAtOnceError, match="you have 1 exports running"):
                stack.enter_context(elsewhere.held(client))
        else:
            stack.enter_context(elsewhere.held(client))
    with elsewhere.held(client):
        pass
