"""Where webhooks may be sent: to public addresses, whatever a name, a notation or a tunnel makes of others."""

from ipaddress import ip_address, ip_network

import httpx
import pytest
from django.core.exceptions import ImproperlyConfigured

from tidegauge.webapp.core.installation import networks
from tidegauge.webapp.notify.webhooks.addresses import AddressError, check_address, check_url, resolve

HTTPS = httpx.URL("https://hook.example/")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",  # noqa: S104
        "100.64.0.1", "168.63.129.16", "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1",
        "::1", "::", "fe80::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::",
        "192.0.0.192", "64:ff9b:1::808:808", "::808:808", "::ffff:0:808:808", "fec0::1",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused(address):
    with pytest.raises(AddressError, match="is not public"):
        check_address(HTTPS, ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_a_public_address_is_allowed(address):
    check_address(HTTPS, ip_address(address))


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203"])
def test_an_address_of_a_network_in_the_settings_is_allowed(address, settings):
    settings.TIDEGAUGE_WEBHOOK_NETWORKS = [ip_network("10.1.0.0/16")]

    check_address(HTTPS, ip_address(address))
    check_address(httpx.URL("http://hook.example"), ip_address(address))
    with pytest.raises(AddressError):
        check_address(HTTPS, ip_address("10.2.0.1"))


def test_a_public_address_is_not_sent_to_in_clear_text(settings):
    settings.TIDEGAUGE_WEBHOOK_NETWORKS = [ip_network("10.1.0.0/16")]

    with pytest.raises(AddressError, match="http://"):
        check_address(httpx.URL("http://hook.example"), ip_address("8.8.8.8"))


@pytest.mark.parametrize(
    "url",
    [
        "http://hook.example/", "ftp://hook.example/", "file:///etc/passwd", "https:///x", "hook.example", "", "https://",
        "https://ann:secret@hook.example/", "https://ann@hook.example/", "https://127.0.0.1/", "https://[::1]/",
        "https://[::ffff:10.0.0.1]/", "https://hook.example:99999/", "https://a..b.example/",
        f"https://{'a' * 64}.example/",
        "https://169.254.169.254/latest/meta-data",
    ],
)  # fmt: skip
def test_a_url_is_refused_where_it_is_declared(url):
    with pytest.raises(AddressError) as refused:
        check_url(url)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1."])
def test_a_name_or_notation_of_loopback_is_refused_when_it_is_resolved(host):
    with pytest.raises((AddressError, OSError)):
        resolve(check_url(f"https://{host}/"))


def test_one_address_that_is_not_public_refuses_the_name(monkeypatch):
    answers = [(2, 1, 6, "", ("8.8.8.8", 443)), (2, 1, 6, "", ("10.0.0.1", 443))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: answers)

    with pytest.raises(AddressError, match=r"10\.0\.0\.1"):
        resolve(HTTPS)


def test_a_network_that_is_none_is_named():
    assert networks("N", ["10.1.0.0/16", " fd00::/8", ""]) == [ip_network("10.1.0.0/16"), ip_network("fd00::/8")]
    with pytest.raises(ImproperlyConfigured, match=r"N: .*10\.1\.0\.1/16"):
        networks("N", ["10.1.0.1/16"])
