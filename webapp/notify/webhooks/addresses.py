"""Which addresses webhooks may be sent to: public ones, and the networks of TIDEGAUGE_WEBHOOK_NETWORKS.

A worker can reach what outsiders must not: itself, its network, the metadata service of a cloud. So the addresses that
a name resolves to are checked, and the connection goes to one of them, because the name may resolve to others later.
"""

import ipaddress
import socket
from ipaddress import IPv4Address, IPv6Address

import httpx
from django.conf import settings

Address = IPv4Address | IPv6Address

PORTS = {"https": 443, "http": 80}
LARGEST_PORT = 65_535

# NAT64 (RFC 6052): the last 32 bits are the IPv4 address that the packets go to.
NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Blocked although `is_global` allows them, because they lead elsewhere than their number says, or into a network.
NOT_PUBLIC = [
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16/32",  # Azure's platform service inside each virtual network
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is Oracle Cloud's metadata service
        "64:ff9b:1::/48",  # NAT64 of a local network (RFC 8215)
        "::/96",  # IPv4 addresses in the deprecated notation
        "::ffff:0:0:0/96",  # IPv4 addresses, translated (RFC 2765)
        "fec0::/10",  # deprecated site-local addresses
    )
]
LONGEST_LABEL = 63


class AddressError(ValueError):
    """Messages must not be sent to this address: correct the URL, or allow its network."""


def check_url(text: str) -> httpx.URL:
    """Return a URL that may be sent to, as far as is known without resolving its name. Raises AddressError."""
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        raise AddressError("the URL is malformed; write it as https://host/path") from None
    if url.scheme not in PORTS or not url.host or not 0 < (url.port or 1) <= LARGEST_PORT:
        raise AddressError("the URL must begin with https:// and a host, optionally with a port")
    if not all(0 < len(label) <= LONGEST_LABEL for label in url.raw_host.removesuffix(b".").split(b".")):
        raise AddressError(f"the host name {url.host!r} is malformed; each part has 1 to {LONGEST_LABEL} characters")
    if url.userinfo:
        raise AddressError("the URL has a user name or password; remove it, because receivers check the signature")
    if url.scheme == "http" and not settings.TIDEGAUGE_WEBHOOK_NETWORKS:
        raise AddressError("the URL must begin with https://; http:// is only for TIDEGAUGE_WEBHOOK_NETWORKS")
    if literal := _literal(url.host):
        check_address(url, literal)
    return url


def resolve(url: httpx.URL) -> list[Address]:
    """Return the addresses of a URL's host, all of them allowed. Raises AddressError, OSError."""
    port = url.port or PORTS[url.scheme]
    found = socket.getaddrinfo(url.raw_host.decode("ascii"), port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(ipaddress.ip_address(str(place[0])) for *_, place in found))
    for address in addresses:
        check_address(url, address)
    return addresses


def check_address(url: httpx.URL, address: Address) -> None:
    """Raises AddressError for an address that is in no allowed network, unless it is public and the URL has https."""
    reached = _reached(address)
    if any(each in network for each in (address, reached) for network in settings.TIDEGAUGE_WEBHOOK_NETWORKS):
        return
    if url.scheme == "http":
        raise AddressError(
            f"{url.host} is {address}, which http:// may not reach; use https://, or TIDEGAUGE_WEBHOOK_NETWORKS"
        )
    if not reached.is_global or reached.is_multicast or any(reached in network for network in NOT_PUBLIC):
        raise AddressError(f"{url.host} is {address}, which is not public; allow it in TIDEGAUGE_WEBHOOK_NETWORKS")


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _reached(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for; otherwise the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
