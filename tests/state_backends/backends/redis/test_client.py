from urllib.parse import urlsplit

import pytest
import redis

from tidegauge.state_backends.backends.redis.client import Servers, client
from tidegauge.state_backends.errors import BackendSetupError, BackendUnavailable


def test_an_unset_address_is_refused_by_name(monkeypatch):
    monkeypatch.delenv("REDIS_URL")

    with pytest.raises(BackendSetupError, match="a state lives in redis, but REDIS_URL is not set here"):
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


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis+cluster://user:p%40ss@one:7000,two:7001", ("cluster", "user", "p@ss", [("one", 7000), ("two", 7001)])),
        ("redis+sentinel://:pass@[::1]:26379/states/2", ("sentinel", "", "pass", [("::1", 26379)])),
    ],
)
def test_an_address_of_several_hosts_is_read(url, expected):
    parts = urlsplit(url)
    servers = Servers.of(parts, parts.scheme.partition("+")[2])

    login = servers.login.get("username", ""), servers.login.get("password", "")
    assert (servers.kind, *login, servers.hosts) == expected


@pytest.mark.parametrize(
    "url", ["redis+cluster://host", "redis+sentinel://:secret@host:1", "redis+other://host:1", "redis+cluster://h:port"]
)
def test_a_wrong_address_of_several_hosts_is_refused_without_quoting_it(monkeypatch, url):
    monkeypatch.setenv("TIDEGAUGE_REDIS_URL", url)

    with pytest.raises(
        BackendSetupError, match="TIDEGAUGE_REDIS_URL is not a valid Redis URL; write it as redis://"
    ) as caught:
        client(1.0)

    assert "secret" not in str(caught.value)


def test_the_states_address_goes_before_the_brokers(monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_REDIS_URL", "redis://elsewhere:1234/0")

    assert client(1.0).connection_pool.connection_kwargs["host"] == "elsewhere"


def test_a_cluster_that_does_not_answer_is_an_unavailable_backend(monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_REDIS_URL", "redis+cluster://127.0.0.1:1")

    with pytest.raises(BackendUnavailable, match="redis: "):
        client(1.0).get("key")
