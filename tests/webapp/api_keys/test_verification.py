import time
from datetime import timedelta

import pytest
from django.utils import timezone

from webapp.api_keys.models import ApiKey
from webapp.api_keys.services import create_api_key
from webapp.api_keys.verification import verified


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
