import time
from datetime import timedelta

import pytest
from django.utils import timezone

from webapp.accounts import authentication
from webapp.accounts.authentication import is_new, verified
from webapp.accounts.models import ApiKey
from webapp.accounts.services import create_api_key, rotate_api_key


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock, moved by hand."""

    class Clock:
        now = time.monotonic()

    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    return Clock


def test_a_key_is_remembered_for_some_seconds(db, clock, settings, django_assert_num_queries):
    settings.TIDEMARK_API_KEY_CACHE_SECONDS = 5
    key, secret = create_api_key("feed", ["read"])
    verified(secret)

    with django_assert_num_queries(0):
        assert verified(secret) == key


def test_a_key_that_another_process_revoked_is_refused_when_the_memory_ends(db, clock, settings):
    settings.TIDEMARK_API_KEY_CACHE_SECONDS = 5
    _, secret = create_api_key("feed", ["read"])
    verified(secret)
    ApiKey.objects.update(revoked_at=timezone.now())

    assert verified(secret) is not None
    clock.now += 6
    assert verified(secret) is None


@pytest.mark.parametrize("spoil", [str.upper, lambda key: key[:-1], lambda key: key + "x", lambda key: key[4:]])
def test_a_key_that_is_nearly_right_is_wrong(db, spoil):
    _, secret = create_api_key("feed", ["read"])

    assert verified(spoil(secret)) is None


@pytest.mark.parametrize("token", ["", "tmk", "tmk__", "tmk_\xe9_x", "a_b_c", "tmk_00000000_", "tmk_a\0b_c"])
def test_nonsense_is_no_key(db, token):
    create_api_key("feed", ["read"])

    assert verified(token) is None


def test_the_last_use_is_noted_at_most_once_a_minute(db, clock):
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
        """The wall clock, moved by hand."""

        class Clock:
            now = timezone.now()

        monkeypatch.setattr(timezone, "now", lambda: Clock.now)
        return Clock

    def test_a_key_expires_on_the_moment_and_not_when_the_memory_ends(self, db, clock, now, settings):
        settings.TIDEMARK_API_KEY_CACHE_SECONDS = 3_600
        key, secret = create_api_key("feed", ["read"], expires_at=now.now + timedelta(seconds=10))
        assert verified(secret) == key

        now.now += timedelta(seconds=10)

        assert verified(secret) is None

    def test_an_old_secret_dies_on_the_moment_too(self, db, clock, now, settings):
        settings.TIDEMARK_API_KEY_CACHE_SECONDS = 3_600
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

    def test_a_use_that_was_refused_is_none(self, db, now):
        _, secret = create_api_key("feed", ["read"], expires_at=now.now + timedelta(seconds=10))
        now.now += timedelta(seconds=10)

        verified(secret)

        assert ApiKey.objects.get().last_used_at is None


class TestWrongKeys:
    def test_a_wrong_key_is_remembered_for_some_seconds(self, db, clock, django_assert_num_queries):
        with django_assert_num_queries(1):
            assert [verified("tmk_00000000_wrong") for _ in range(3)] == [None] * 3

        clock.now += 6
        with django_assert_num_queries(1):
            verified("tmk_00000000_wrong")

    def test_so_is_a_revoked_one(self, db, clock, django_assert_num_queries):
        _, secret = create_api_key("feed", ["read"])
        ApiKey.objects.update(revoked_at=timezone.now())

        with django_assert_num_queries(1):
            assert [verified(secret), verified(secret)] == [None, None]

    def test_no_more_than_some_are_remembered(self, db, clock, monkeypatch):
        monkeypatch.setattr(authentication, "WRONG_KEYS_HELD", 3)

        for n in range(5):
            verified(f"tmk_0000000{n}_wrong")

        assert [is_new(f"tmk_0000000{n}_wrong") for n in range(5)] == [True, True, False, False, False]

    def test_a_key_is_new_until_it_was_seen(self, db, clock):
        _, secret = create_api_key("feed", ["read"])
        assert is_new(secret)

        verified(secret)

        assert not is_new(secret)

    def test_a_key_that_was_seen_stays_no_stranger(self, db, clock):
        _, secret = create_api_key("feed", ["read"])
        verified(secret)

        clock.now += 3_600

        assert not is_new(secret)


def test_a_key_in_use_costs_one_query_a_time(db, clock, django_assert_num_queries):
    _, secret = create_api_key("feed", ["read"])
    verified(secret)
    clock.now += 6
    verified(secret)
    clock.now += 6

    with django_assert_num_queries(1):
        verified(secret)
