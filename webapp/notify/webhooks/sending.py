"""One attempt at a delivery: a signed POST to a checked address. It does not use the database.

It has a time limit once the name is resolved; the system's resolver has its own limit. Proxies and credentials of the
environment are not used, redirects are not followed, and the body of an answer is not read.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext
from typing import Any

import httpx
from django.conf import settings
from django.utils import timezone

from tidegauge.webapp.notify.webhooks.addresses import Address, AddressError, check_url, resolve
from tidegauge.webapp.notify.webhooks.models import Delivery
from tidegauge.webapp.notify.webhooks.signing import SecretKeyChangedError, headers

GONE = 410


@dataclass(frozen=True)
class SendAttempt:
    """at: ISO 8601. status: of the answer, None without one. error: why it does not count as delivered; else empty."""

    at: str
    seconds: float
    status: int | None
    error: str

    @property
    def is_delivered(self) -> bool:
        return not self.error


def attempt(delivery: Delivery) -> SendAttempt:
    """Send a message once, to the first address of its webhook that can be connected to. It raises nothing."""
    began, at = time.monotonic(), timezone.now()
    status, error = None, ""
    webhook = delivery.webhook
    assert webhook is not None
    try:
        url = check_url(webhook.url)
        signed = headers(webhook, delivery.message_id, delivery.body, at)
        status = asyncio.run(_within(settings.TIDEGAUGE_WEBHOOK_SECONDS, url, resolve(url), signed, delivery.body))
        error = _refusal(status)
    except (AddressError, SecretKeyChangedError) as refused:
        error = str(refused)
    except TimeoutError:
        error = f"no answer within {settings.TIDEGAUGE_WEBHOOK_SECONDS:g} s"
    except (httpx.HTTPError, OSError) as failed:
        error = f"{type(failed).__name__}: {failed}"
    return SendAttempt(at.isoformat(), round(time.monotonic() - began, 3), status, error)


def _refusal(status: int) -> str:
    if httpx.codes.is_success(status):
        return ""
    if httpx.codes.is_redirect(status):
        return f"answered {status}, and redirects are not followed; correct the URL"
    return f"answered {status}"


async def _within(seconds: float, *arguments: Any) -> int:
    # One limit for all of it, because the timeouts of httpx apply to each read and write, so a receiver that sends a
    # byte now and then never reaches them.
    async with asyncio.timeout(seconds):
        return await _post(*arguments)


async def _post(url: httpx.URL, addresses: Sequence[Address], signed: dict[str, str], body: str) -> int:
    sent = signed | {"host": url.netloc.decode("ascii"), "content-type": "application/json", "user-agent": "tidegauge"}
    # By address, so that the name is not resolved again; the certificate is still checked for the name.
    extensions = {"sni_hostname": url.raw_host.decode("ascii")}
    timeout = settings.TIDEGAUGE_WEBHOOK_SECONDS
    async with httpx.AsyncClient(trust_env=False, verify=_tls(), timeout=timeout, follow_redirects=False) as client:
        for place, address in enumerate(addresses, 1):
            at = url.copy_with(host=str(address))
            try:
                async with client.stream("POST", at, content=body, headers=sent, extensions=extensions) as answer:
                    return answer.status_code
            except httpx.ConnectError:
                if place == len(addresses):
                    raise
    raise httpx.ConnectError("the name has no address")


@cache
def _tls() -> SSLContext:
    return httpx.create_ssl_context()
