from types import SimpleNamespace

import pytest
from rest_framework.settings import api_settings

from webapp.accounts.throttling import subscriber_of


@pytest.mark.parametrize(
    ("meta", "address"),
    [
        ({"REMOTE_ADDR": "192.0.2.7"}, "192.0.2.7"),
        ({"REMOTE_ADDR": "2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::/64"),
        ({"REMOTE_ADDR": "192.0.2.7", "HTTP_X_FORWARDED_FOR": "198.51.100.1"}, "192.0.2.7"),
        ({}, ""),
    ],
)
def test_an_address_is_the_peers_and_of_ipv6_its_network(meta, address):
    headers = {"x-forwarded-for": meta["HTTP_X_FORWARDED_FOR"]} if "HTTP_X_FORWARDED_FOR" in meta else {}

    assert subscriber_of(SimpleNamespace(META=meta, headers=headers)) == address


def test_behind_a_proxy_the_address_is_the_one_that_it_saw(monkeypatch):
    monkeypatch.setattr(api_settings, "NUM_PROXIES", 1)
    claimed = SimpleNamespace(META={"REMOTE_ADDR": "10.0.0.1"}, headers={"x-forwarded-for": "1.2.3.4, 198.51.100.1"})

    assert subscriber_of(claimed) == "198.51.100.1"
