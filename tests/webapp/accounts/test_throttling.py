from uuid import uuid4

import pytest
from django.test import Client

from webapp.accounts.services import create_api_key, rotate_api_key

STATES = "/api/v1/states"


def holder(**options) -> Client:
    return Client(headers={"X-Api-Key": create_api_key("feed", ["read"], **options)[1]})


@pytest.fixture
def address() -> str:
    """One that no other test comes from."""
    part = uuid4().hex
    return f"2001:db8:{part[:4]}:{part[4:8]}::1"


def test_a_key_gets_its_rate_and_then_a_429_that_says_when_to_come_back(filled):
    client = holder(rate=6, burst=2)

    answers = [client.get(STATES) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    refused = answers[-1]
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.headers["Retry-After"] == "10"
    assert refused.json()["detail"] == "this API key has asked too often; ask again in 10 seconds"


def test_every_answer_says_how_much_is_left(filled):
    answers = [client.get(STATES) for client in [holder(rate=6, burst=2)] for _ in range(3)]

    assert [answer.headers["RateLimit-Remaining"] for answer in answers] == ["1", "0", "0"]
    assert {answer.headers["RateLimit-Limit"] for answer in answers} == {"2"}
    assert answers[0].headers["RateLimit-Reset"] == "10"


def test_a_key_that_names_no_rate_has_the_settings(filled, settings):
    settings.TIDEMARK_API_RATE_PER_MINUTE = 1
    client = holder()

    assert [client.get(STATES).status_code for _ in range(2)] == [200, 429]


def test_a_rate_of_nothing_is_no_limit(filled, settings):
    settings.TIDEMARK_API_RATE_PER_MINUTE = 1

    answer = [client.get(STATES) for client in [holder(rate=0)] for _ in range(3)][-1]

    assert answer.status_code == 200
    assert "RateLimit-Limit" not in answer.headers


def test_a_key_keeps_its_limit_when_it_is_rotated(filled):
    key, old = create_api_key("feed", ["read"], rate=6, burst=2)
    new = rotate_api_key(key)

    statuses = [Client().get(STATES, headers={"X-Api-Key": secret}).status_code for secret in (old, new, old, new)]

    assert statuses == [200, 200, 429, 429]


def test_a_user_has_a_limit_of_its_own(filled, reader, settings):
    settings.TIDEMARK_SESSION_RATE_PER_MINUTE = 2

    assert [reader.get(STATES).status_code for _ in range(3)] == [200, 200, 429]


def test_what_is_open_to_all_is_limited_by_address(db, address, settings):
    settings.TIDEMARK_ANONYMOUS_RATE_PER_MINUTE = 1

    statuses = [Client(REMOTE_ADDR=address).get("/api/schema").status_code for _ in range(2)]

    assert statuses == [200, 429]


class TestWrongKeys:
    @pytest.fixture(autouse=True)
    def one_a_minute(self, settings):
        settings.TIDEMARK_WRONG_KEY_RATE_PER_MINUTE = 1

    def get(self, address, key):
        return Client(REMOTE_ADDR=address).get(STATES, headers={"X-Api-Key": key})

    def test_one_address_may_show_only_so_many(self, db, address):
        answers = [self.get(address, f"tmk_0000000{n}_wrong") for n in range(3)]

        assert [answer.status_code for answer in answers] == [401, 429, 429]
        assert 0 < int(answers[-1].headers["Retry-After"]) <= 60

    def test_the_same_one_again_counts_too(self, db, address):
        assert [self.get(address, "tmk_00000000_wrong").status_code for _ in range(2)] == [401, 429]

    def test_beyond_that_they_do_not_reach_the_database(self, db, address, django_assert_num_queries):
        self.get(address, "tmk_00000000_wrong")

        with django_assert_num_queries(0):
            self.get(address, "tmk_00000001_wrong")

    def test_another_address_is_not_held_up(self, db, address):
        self.get(address, "tmk_00000000_wrong")

        assert self.get("192.0.2.1", "tmk_00000000_wrong").status_code in (401, 429)
        assert self.get(f"2001:db8:ffff:{uuid4().hex[:4]}::1", "tmk_00000000_wrong").status_code == 401

    def test_a_key_in_use_is_not_held_up_by_its_neighbours_wrong_ones(self, filled, address):
        _, secret = create_api_key("feed", ["read"])
        self.get(address, secret)
        for n in range(3):
            self.get(address, f"tmk_0000000{n}_wrong")

        assert self.get(address, secret).status_code == 200
