import asyncio
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.http import HttpResponse
from django.test import Client
from rest_framework.settings import api_settings

from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.services import create_api_key, revoke_api_key, rotate_api_key
from tidegauge.webapp.accounts.throttling import client_network
from tidegauge.webapp.serving.front import Front

STATES = "/api/v1/states"


def client_with_key(**options) -> Client:
    return Client(headers={"X-Api-Key": create_api_key("feed", ["read"], **options)[1]})


@pytest.fixture
def address() -> str:
    """An address that no other test uses."""
    part = uuid4().hex
    return f"2001:db8:{part[:4]}:{part[4:8]}::1"


def test_a_key_beyond_its_rate_gets_a_429_with_retry_after(filled):
    client = client_with_key(rate=6, burst=2)

    answers = [client.get(STATES) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    refused = answers[-1]
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.headers["Retry-After"] == "10"
    assert refused.json()["detail"] == "this API key has sent too many requests; try again in 10 seconds"


def test_every_answer_has_what_is_left_of_the_limit(filled):
    answers = [client.get(STATES) for client in [client_with_key(rate=6, burst=2)] for _ in range(3)]

    assert answers[0].headers["RateLimit"] == '"requests";r=1;t=10'
    assert [answer.headers["RateLimit"].split(";")[1] for answer in answers] == ["r=1", "r=0", "r=0"]
    assert {answer.headers["RateLimit-Policy"] for answer in answers} == {'"requests";q=2;w=20'}


def test_a_key_without_a_rate_has_that_of_the_settings(filled, settings):
    settings.TIDEGAUGE_API_RATE_PER_MINUTE = 1
    client = client_with_key()

    assert [client.get(STATES).status_code for _ in range(2)] == [200, 429]


def test_a_rate_of_0_is_no_limit(filled, settings):
    settings.TIDEGAUGE_API_RATE_PER_MINUTE = 1

    answer = [client.get(STATES) for client in [client_with_key(rate=0)] for _ in range(3)][-1]

    assert answer.status_code == 200
    assert "RateLimit" not in answer.headers


def test_a_key_keeps_its_limit_when_it_is_rotated(filled):
    key, old = create_api_key("feed", ["read"], rate=6, burst=2)
    new = rotate_api_key(key)

    statuses = [Client().get(STATES, headers={"X-Api-Key": secret}).status_code for secret in (old, new, old, new)]

    assert statuses == [200, 200, 429, 429]


def test_a_user_has_a_limit_of_its_own(filled, reader, settings):
    settings.TIDEGAUGE_SESSION_RATE_PER_MINUTE = 2

    assert [reader.get(STATES).status_code for _ in range(3)] == [200, 200, 429]


def test_public_routes_are_limited_by_address(db, address, settings):
    settings.TIDEGAUGE_ANONYMOUS_RATE_PER_MINUTE = 1

    statuses = [Client(REMOTE_ADDR=address).get("/api/schema").status_code for _ in range(2)]

    assert statuses == [200, 429]


class TestWrongKeys:
    @pytest.fixture(autouse=True)
    def one_a_minute(self, settings):
        settings.TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE = 1

    def get(self, address, key):
        return Client(REMOTE_ADDR=address).get(STATES, headers={"X-Api-Key": key})

    def test_an_address_may_send_a_limited_number(self, db, address):
        answers = [self.get(address, f"tmk_0000000{n}_wrong") for n in range(3)]

        assert [answer.status_code for answer in answers] == [401, 429, 429]
        assert 0 < int(answers[-1].headers["Retry-After"]) <= 60

    def test_the_same_wrong_key_counts_again(self, db, address):
        assert [self.get(address, "tmk_00000000_wrong").status_code for _ in range(2)] == [401, 429]

    def test_beyond_the_limit_they_cost_no_query(self, db, address, django_assert_num_queries, monkeypatch):
        monkeypatch.setattr(authentication, "PREFIXES_SECONDS", 60.0)
        self.get(address, "tmk_00000000_wrong")

        with django_assert_num_queries(0):
            self.get(address, "tmk_00000001_wrong")

    def test_another_address_is_not_limited(self, db, address):
        self.get(address, "tmk_00000000_wrong")

        assert self.get("192.0.2.1", "tmk_00000000_wrong").status_code in (401, 429)
        assert self.get(f"2001:db8:ffff:{uuid4().hex[:4]}::1", "tmk_00000000_wrong").status_code == 401

    def test_a_key_in_use_is_not_limited_by_wrong_ones_of_its_address(self, filled, address):
        _, secret = create_api_key("feed", ["read"])
        self.get(address, secret)
        for n in range(3):
            self.get(address, f"tmk_0000000{n}_wrong")

        assert self.get(address, secret).status_code == 200

    def test_a_key_that_was_never_used_is_not_limited_by_wrong_ones_of_its_address(self, filled, address):
        _, secret = create_api_key("feed", ["read"])
        assert [self.get(address, f"tmk_0000000{n}_wrong").status_code for n in range(3)] == [401, 429, 429]

        assert self.get(address, secret).status_code == 200

    def test_a_revoked_key_is_a_401_whatever_else_its_address_sends(self, filled, address):
        key, secret = create_api_key("feed", ["read"])
        revoke_api_key(key)
        assert [self.get(address, f"tmk_0000000{n}_wrong").status_code for n in range(2)] == [401, 429]

        assert [self.get(address, secret).status_code for _ in range(2)] == [401, 401]

    def test_the_front_refuses_what_a_thread_has_refused(self, filled, address):
        """Without a thread, until the time is up; a key that exists is looked up."""
        _, secret = create_api_key("feed", ["read"])
        asked = []

        def handler(environ, start):
            asked.append(environ["HTTP_X_API_KEY"])
            start("200 OK", [])
            return HttpResponse()

        front = Front(handler)
        assert self.through(front, address, "tmk_00000000_wrong") == 200
        assert [self.get(address, f"tmk_0000000{n}_wrong").status_code for n in range(2)] == [401, 429]

        assert self.through(front, address, "tmk_00000009_wrong") == 429
        assert self.through(front, address, secret) == 200
        assert self.through(front, f"2001:db8:fffe:{uuid4().hex[:4]}::1", "tmk_00000009_wrong") == 200
        assert asked == ["tmk_00000000_wrong", secret, "tmk_00000009_wrong"]

    def through(self, front, address, key):
        sent = []
        scope = {
            "method": "GET", "raw_path": STATES.encode(), "query_string": b"", "http_version": "1.1", "scheme": "http",
            "server": ("127.0.0.1", 80), "client": (address, 9), "headers": [(b"x-api-key", key.encode())],
        }  # fmt: skip

        async def receive():
            return {"type": "http.request"}

        class Sent:
            def __await__(self):
                return iter(())

        def send(message):
            sent.append(message)
            return Sent()

        asyncio.run(front(scope, receive, send))
        return sent[0]["status"]

    def test_a_token_is_not_limited_by_wrong_keys_of_its_address(self, filled, address):
        key, _ = create_api_key("feed", ["read", "issue_tokens"])
        token = issue(key).text
        authentication.clear_cache()
        for n in range(3):
            self.get(address, f"tmk_0000000{n}_wrong")

        answer = Client(REMOTE_ADDR=address).get(STATES, headers={"Authorization": f"Bearer {token}"})

        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("meta", "address"),
    [
        ({"REMOTE_ADDR": "192.0.2.7"}, "192.0.2.7"),
        ({"REMOTE_ADDR": "2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::/64"),
        ({"REMOTE_ADDR": "::ffff:192.0.2.7"}, "192.0.2.7"),
        ({"REMOTE_ADDR": "192.0.2.7", "HTTP_X_FORWARDED_FOR": "198.51.100.1"}, "192.0.2.7"),
        ({}, ""),
    ],
)
def test_the_address_is_that_of_the_peer_and_for_ipv6_its_network(meta, address):
    headers = {"x-forwarded-for": meta["HTTP_X_FORWARDED_FOR"]} if "HTTP_X_FORWARDED_FOR" in meta else {}

    assert client_network(SimpleNamespace(META=meta, headers=headers)) == address


def test_behind_a_proxy_the_address_is_the_forwarded_one(monkeypatch):
    monkeypatch.setattr(api_settings, "NUM_PROXIES", 1)
    request = SimpleNamespace(META={"REMOTE_ADDR": "10.0.0.1"}, headers={"x-forwarded-for": "1.2.3.4, 198.51.100.1"})

    assert client_network(request) == "198.51.100.1"
