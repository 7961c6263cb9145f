import time
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.authentication import is_new, verified
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key, revoke_api_key, rotate_api_key

STATES = "/api/v1/states"


@pytest.fixture
def secret(db) -> str:
    return create_api_key("reader", ["read"])[1]


def get(**headers):
    return Client().get(STATES, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("header", "form"), [("Authorization", "Bearer {}"), ("Authorization", "bearer {}"), ("X-Api-Key", "{}")]
)
def test_a_key_is_accepted_in_either_header(filled, secret, header, form):
    assert Client().get(STATES, headers={header: form.format(secret)}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer tmk_00000000_wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic dXNlcjpwYXNz"},
        {"X_Api_Key": "wrong"},
        {"X_Api_Key": ""},
    ],
)
def test_a_missing_or_wrong_key_is_a_401(secret, headers):
    response = get(**headers)

    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="tidegauge"'
    assert response.headers["Content-Type"] == "application/problem+json"


def test_a_revoked_key_is_a_401(db):
    key, secret = create_api_key("reader", ["read"])
    revoke_api_key(key)

    response = get(X_Api_Key=secret)

    assert (response.status_code, response.json()["detail"]) == (
        401,
        "this API key is unknown, expired or revoked; ask an administrator for another",
    )


def test_a_key_with_the_scope_maintain_alone_may_not_read(db):
    response = get(X_Api_Key=create_api_key("worker", ["maintain"])[1])

    assert response.status_code == 403
    assert "lacks the scope 'read'" in response.json()["detail"]


def test_a_request_with_a_key_needs_no_csrf_token(filled, secret):
    client = Client(enforce_csrf_checks=True, headers={"X-Api-Key": secret})

    response = client.post(f"{STATES}/totals/lookup", {"keys": [[]]}, content_type="application/json")

    assert response.status_code == 200


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock, set by the test."""

    class Clock:
        now = time.monotonic()

    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    return Clock


def test_a_key_is_cached_for_some_seconds(db, clock, settings, django_assert_num_queries):
    settings.TIDEGAUGE_API_KEY_CACHE_SECONDS = 5
    key, secret = create_api_key("feed", ["read"])
    verified(secret)

    with django_assert_num_queries(0):
        assert verified(secret) == key


def test_a_key_revoked_by_another_process_is_refused_when_the_cache_expires(db, clock, settings):
    settings.TIDEGAUGE_API_KEY_CACHE_SECONDS = 5
    _, secret = create_api_key("feed", ["read"])
    verified(secret)
    ApiKey.objects.update(revoked_at=timezone.now())

    assert verified(secret) is not None
    clock.now += 6
    assert verified(secret) is None


@pytest.mark.parametrize("change", [str.upper, lambda key: key[:-1], lambda key: key + "x", lambda key: key[4:]])
def test_a_slightly_different_key_is_invalid(db, change):
    _, secret = create_api_key("feed", ["read"])

    assert verified(change(secret)) is None


@pytest.mark.parametrize("token", ["", "tmk", "tmk__", "tmk_\xe9_x", "a_b_c", "tmk_00000000_", "tmk_a\0b_c"])
def test_a_malformed_token_is_invalid(db, token):
    create_api_key("feed", ["read"])

    assert verified(token) is None


def test_the_last_use_is_stored_at_most_once_a_minute(db, clock):
    _, secret = create_api_key("feed", ["read"])

    def used_at_after(seconds):
        clock.now += seconds
        verified(secret)
        return ApiKey.objects.get().last_used_at

    first = used_at_after(0)
    assert first is not None
    assert used_at_after(10) == first
    ApiKey.objects.update(last_used_at=first - timedelta(seconds=61))
    assert used_at_after(10) > first


class TestExpiry:
    @pytest.fixture
    def now(self, monkeypatch):
        """The wall clock, set by the test."""

        class Clock:
            now = timezone.now()

        monkeypatch.setattr(timezone, "now", lambda: Clock.now)
        return Clock

    def test_a_key_expires_at_its_time_even_if_cached(self, db, clock, now, settings):
        settings.TIDEGAUGE_API_KEY_CACHE_SECONDS = 3_600
        key, secret = create_api_key("feed", ["read"], expires_at=now.now + timedelta(seconds=10))
        assert verified(secret) == key

        now.now += timedelta(seconds=10)

        assert verified(secret) is None

    def test_an_old_secret_expires_at_its_time_even_if_cached(self, db, clock, now, settings):
        settings.TIDEGAUGE_API_KEY_CACHE_SECONDS = 3_600
        key, old = create_api_key("feed", ["read"])
        rotate_api_key(key, timedelta(seconds=10))
        assert verified(old) == key

        now.now += timedelta(seconds=10)

        assert verified(old) is None

    def test_a_grace_does_not_outlive_the_key(self, db, now):
        key, old = create_api_key("feed", ["read"], expires_at=now.now + timedelta(seconds=10))
        new = rotate_api_key(key, timedelta(days=1))

        now.now += timedelta(seconds=10)

        assert verified(old) is verified(new) is None

    def test_a_refused_use_is_not_stored(self, db, now):
        _, secret = create_api_key("feed", ["read"], expires_at=now.now + timedelta(seconds=10))
        now.now += timedelta(seconds=10)

        verified(secret)

        assert ApiKey.objects.get().last_used_at is None


class TestWrongKeys:
    def test_a_wrong_key_is_cached_for_some_seconds(self, db, clock, django_assert_num_queries):
        with django_assert_num_queries(1):
            assert [verified("tmk_00000000_wrong") for _ in range(3)] == [None] * 3

        clock.now += 6
        with django_assert_num_queries(1):
            verified("tmk_00000000_wrong")

    def test_a_revoked_key_is_cached_as_wrong(self, db, clock, django_assert_num_queries):
        _, secret = create_api_key("feed", ["read"])
        ApiKey.objects.update(revoked_at=timezone.now())

        with django_assert_num_queries(1):
            assert [verified(secret), verified(secret)] == [None, None]

    def test_the_number_of_cached_wrong_keys_is_limited(self, db, clock, monkeypatch):
        monkeypatch.setattr(authentication, "MAX_CACHED_INVALID", 3)

        for n in range(5):
            verified(f"tmk_0000000{n}_wrong")

        assert [is_new(f"tmk_0000000{n}_wrong") for n in range(5)] == [True, True, False, False, False]

    def test_a_key_is_new_until_it_was_checked(self, db, clock):
        _, secret = create_api_key("feed", ["read"])
        assert is_new(secret)

        verified(secret)

        assert not is_new(secret)

    def test_a_key_that_was_checked_is_not_new_again(self, db, clock):
        _, secret = create_api_key("feed", ["read"])
        verified(secret)

        clock.now += 3_600

        assert not is_new(secret)


def test_a_key_in_use_costs_one_query_when_the_cache_expires(db, clock, django_assert_num_queries):
    _, secret = create_api_key("feed", ["read"])
    verified(secret)
    clock.now += 6
    verified(secret)
    clock.now += 6

    with django_assert_num_queries(1):
        verified(secret)
