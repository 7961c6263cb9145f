"""Shared by both transports: addresses, the API key, and the conversion between steps and httpx requests and errors."""

import os
import ssl
from collections.abc import Callable
from typing import Any

import httpx

from tidegauge import __version__
from tidegauge.client.calls import Failure, Opened, Request, Send
from tidegauge.client.errors import InvalidArgumentError, Response

CONNECT_SECONDS = 5.0
LARGEST_PORT = 65_535
EVENTS = "/events/"

# What httpx raises if a stream breaks off.
BROKEN_OFF = (httpx.RequestError, httpx.StreamError)

# Raised before any byte of the request was sent.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)

ApiKey = str | Callable[[], str]


class Connection:
    """The server's addresses and the API key. The key is neither in its repr nor in any error message."""

    def __init__(self, url: str, key: ApiKey | None, events_url: str | None) -> None:
        self.url = _checked(url)
        self.events_url = self.url if events_url is None else _checked(events_url)
        self._key: ApiKey = os.environ.get("TIDEGAUGE_API_KEY", "") if key is None else key
        if isinstance(self._key, str):
            _check_key(self._key)

    def __repr__(self) -> str:
        return repr(self.url)

    def arguments(self, send: Send) -> dict[str, Any]:
        """Return the arguments of httpx's `build_request`."""
        request, seconds = send.request, max(0.001, send.seconds)
        origin = self.events_url if request.path.startswith(EVENTS) else self.url
        timeout = httpx.Timeout(seconds if send.silence is None else send.silence)
        timeout.connect = timeout.pool = min(CONNECT_SECONDS, seconds)
        return {
            "method": request.method,
            "url": origin + request.path,
            "params": dict(request.params),
            "content": request.content,
            "headers": self._headers(request),
            "timeout": timeout,
        }

    def _headers(self, request: Request) -> dict[str, str]:
        key = self._key() if callable(self._key) else self._key
        _check_key(key)
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        content_type = {} if request.body is None else {"Content-Type": "application/json"}
        return {**authorization, **content_type, **request.headers}


def http_options(connections: int, verify: ssl.SSLContext | bool, proxy: str | None) -> dict[str, Any]:
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    headers = {"User-Agent": f"tidegauge-client/{__version__}"}
    return {"limits": limits, "verify": verify, "headers": headers, "proxy": proxy}


def response_of(answer: httpx.Response, content: bytes) -> Response:
    return Response(answer.status_code, headers_of(answer), content)


def opened(answer: httpx.Response) -> Opened:
    return Opened(headers_of(answer), answer)


def headers_of(answer: httpx.Response) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def failure(error: Exception) -> Failure:
    return Failure(error, was_sent=not isinstance(error, NOT_SENT))


def unsent(send: Send, error: httpx.InvalidURL) -> InvalidArgumentError:
    request = send.request
    return InvalidArgumentError(f"{request.method} {request.path}: {error}; send fewer keys or conditions at a time")


def _checked(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    is_complete = parsed.scheme in ("http", "https") and parsed.host and (parsed.port or 0) <= LARGEST_PORT
    if not is_complete or parsed.userinfo:
        # The message leaves out the address, because it may have a password.
        raise InvalidArgumentError(
            "the server's url must be like 'https://tidegauge.example.com', without user and password"
        )
    return url.rstrip("/")


def _check_key(key: str) -> None:
    if not (key.isascii() and key.isprintable() and " " not in key):
        # Refused here, because httpx's own error would show the key.
        raise InvalidArgumentError(
            "the API key has characters that are not allowed; look for a line break or a blank in it"
        )
