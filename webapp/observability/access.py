"""Who may see how the system is doing: metrics, and the names of what is stale.

A token opens it from everywhere. Without one, only the machine itself may look, and nobody whom a proxy on that
machine speaks for.
"""

import hmac
from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest

FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP")


def may_observe(request: HttpRequest) -> bool:
    token = settings.TIDEMARK_METRICS_TOKEN
    return has_token(request.META.get("HTTP_AUTHORIZATION", ""), token) if token else _is_local(request)


def has_token(authorization: str, token: str) -> bool:
    """Tell whether an `Authorization` header is `Bearer` and the token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _is_local(request: HttpRequest) -> bool:
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False  # a socket file, behind which there is a proxy
    return address.is_loopback and not any(header in request.META for header in FORWARDED)
