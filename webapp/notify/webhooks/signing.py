"""Signatures of the Standard Webhooks specification (v1: HMAC-SHA256), and the secrets for them.

A secret is not stored: it is the HMAC-SHA256 of SECRET_KEY and a stored random seed, so that nobody can sign with a
copy of the table. A digest of the secret is stored beside the seed, so that another SECRET_KEY is detected.
"""

import base64
import hashlib
import secrets
from datetime import datetime

from django.utils import timezone
from django.utils.crypto import salted_hmac
from standardwebhooks import Webhook as Signer

from tidegauge.webapp.notify.webhooks.models import Webhook

SALT = "tidegauge.webhook"
PREFIX = "whsec_"
CHECK_LENGTH = 16


class SecretKeyChangedError(Exception):
    """SECRET_KEY differs from the one that the secret was made with: restore it, or rotate the secret."""


def new_seed() -> str:
    """Return what is stored for a new secret: its seed and a digest."""
    seed = secrets.token_hex(24)
    return f"{seed}.{_check(_derived(seed))}"


def secret_of(stored: str) -> str:
    """Return the secret as its receiver gets it. Raises SecretKeyChangedError."""
    seed, _, check = stored.partition(".")
    secret = _derived(seed)
    if _check(secret) != check:
        raise SecretKeyChangedError(
            "SECRET_KEY differs from the one that this secret was made with; use the same one in web and worker, "
            "restore the former one, or rotate the secret of the webhook"
        )
    return f"{PREFIX}{base64.b64encode(secret).decode()}"


def headers(webhook: Webhook, message_id: str, body: str, at: datetime) -> dict[str, str]:
    """Return the headers that sign a message. During a rotation, it is signed with each secret, the new one first.

    Raises SecretKeyChangedError.
    """
    stored = [webhook.secret]
    if webhook.previous_until is not None and webhook.previous_until > timezone.now():
        stored.append(webhook.previous_secret)
    signatures = [Signer(secret_of(each)).sign(message_id, at, body) for each in stored]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def _derived(seed: str) -> bytes:
    return salted_hmac(SALT, seed, algorithm="sha256").digest()


def _check(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()[:CHECK_LENGTH]
