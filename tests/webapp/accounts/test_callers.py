"""Who a request is charged to: an API key that was verified, else an address, whatever credentials it sends."""

import pytest

from tidegauge.webapp.accounts.authentication import verified, verify
from tidegauge.webapp.accounts.callers import caller_of
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.services import create_api_key

ADDRESS = {"REMOTE_ADDR": "192.0.2.7"}
STRANGER = ("address 192.0.2.7", False)


@pytest.fixture
def key(db):
    return create_api_key("reader", ["read", "issue_tokens"])


def bearer(text):
    return ADDRESS | {"HTTP_AUTHORIZATION": f"Bearer {text}"}


@pytest.mark.parametrize("sent", [{}, {"HTTP_COOKIE": "sessionid=1"}, {"HTTP_X_API_KEY": "tmk_12345678_x"}])
def test_whatever_was_not_verified_is_an_address(db, sent):
    assert caller_of(ADDRESS | sent) == STRANGER


def test_a_key_is_a_caller_once_it_was_verified(key, django_assert_num_queries):
    made, secret = key
    assert caller_of(bearer(secret)) == STRANGER

    verify(bearer(secret))

    with django_assert_num_queries(0):
        assert caller_of(bearer(secret)) == (f"key {made.pk}", True)


def test_a_token_is_its_key_even_when_that_would_be_read_again(key, settings, django_assert_num_queries):
    settings.TIDEGAUGE_API_KEY_CACHE_SECONDS = 0
    made, _ = key
    text = issue(made).text
    assert caller_of(bearer(text)) == STRANGER

    verified(text)

    with django_assert_num_queries(0):
        assert caller_of(bearer(text)) == (f"key {made.pk}", True)


def test_keys_that_cannot_exist_are_verified_without_a_query_for_each(key, django_assert_max_num_queries):
    with django_assert_max_num_queries(1):
        for number in range(50):
            verify(bearer(f"tmk_{number:08x}_secret"))


def test_a_forwarded_address_counts_behind_a_proxy_only(db, settings):
    forwarded = ADDRESS | {"HTTP_X_FORWARDED_FOR": "198.51.100.1"}

    assert caller_of(forwarded) == STRANGER
