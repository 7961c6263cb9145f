import pytest
import redis

from state_backends.backends.redis.client import client
from state_backends.errors import BackendSetupError, BackendUnavailable


def test_an_unset_address_is_refused_by_name(monkeypatch):
    monkeypatch.delenv("REDIS_URL")

    with pytest.raises(BackendSetupError, match="a state lives in redis, and REDIS_URL is not set here"):
        client(1.0)


def test_an_address_that_is_not_a_url_is_refused_without_quoting_it(monkeypatch):
    monkeypatch.setenv("REDIS_URL", "redis://:sec/ret@localhost:1/0")

    with pytest.raises(BackendSetupError) as caught:
        client(1.0)

    assert "sec" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "call",
    [lambda server: server.get("key"), lambda server: server.pipeline().get("key").execute()],
    ids=["command", "pipeline"],
)
def test_a_server_that_does_not_answer_is_an_unavailable_backend(monkeypatch, call):
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")

    with pytest.raises(BackendUnavailable, match="redis: ConnectionError: ") as caught:
        call(client(1.0))

    assert isinstance(caught.value.__cause__, redis.ConnectionError)
    assert caught.value.retryable


def test_a_wrong_value_is_the_callers_error_still():
    with pytest.raises(redis.DataError):
        client(60.0).set("key", {})
