"""Where a request comes from, for limits and for the audit."""

from ipaddress import IPv6Address, ip_address, ip_network
from typing import cast

from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle


def address_of(request: HttpRequest | Request) -> str:
    """Return the client's address, which a proxy names if there is one (NUM_PROXIES); empty where nobody knows."""
    return (BaseThrottle().get_ident(cast(Request, request)) or "")[:64]


def subscriber_of(request: HttpRequest | Request) -> str:
    """Return what one subscriber has of addresses: one of IPv4, a whole network of IPv6."""
    shown = address_of(request)
    try:
        address = ip_address(shown)
    except ValueError:
        return shown
    return str(ip_network((address, 64), strict=False)) if isinstance(address, IPv6Address) else shown
