"""Signatures as the Standard Webhooks specification has them, and secrets that the table alone does not give away."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from tidegauge.webapp.notify.webhooks import services, signing
from tidegauge.webapp.notify.webhooks.models import Webhook
from tidegauge.webapp.notify.webhooks.signing import SecretKeyChangedError, headers, new_seed, secret_of

AT = datetime(2026, 11, 23, 10, tzinfo=UTC)


@pytest.fixture
def hook(db):
    made = Webhook(name="hook", url="https://example.com", kinds=["maintenance"])
    made.shown_once = services.create(made)
    return made


def test_a_signature_is_the_hmac_of_id_time_and_body(hook):
    signed = headers(hook, "msg_1", '{"a":1}', AT)

    secret = base64.b64decode(hook.shown_once.removeprefix("whsec_"))
    digest = hmac.new(secret, f'msg_1.{int(AT.timestamp())}.{{"a":1}}'.encode(), hashlib.sha256).digest()
    assert signed == {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(AT.timestamp())),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def test_another_secret_body_or_id_is_refused(hook):
    signed = headers(hook, "msg_1", "{}", timezone.now())

    assert Verifier(hook.shown_once).verify("{}", signed) == {}
    for verifier, body, sent in [
        (Verifier(secret_of(new_seed())), "{}", signed),
        (Verifier(hook.shown_once), "[]", signed),
        (Verifier(hook.shown_once), "{}", signed | {"webhook-id": "msg_2"}),
    ]:
        with pytest.raises(WebhookVerificationError):
            verifier.verify(body, sent)


def test_during_a_rotation_both_secrets_verify_and_afterwards_the_new_one_alone(hook):
    old, new = hook.shown_once, services.rotate(hook, timedelta(days=1), by="ann")

    both = headers(hook, "msg_1", "{}", timezone.now())
    hook.previous_until = timezone.now()
    after = headers(hook, "msg_1", "{}", timezone.now())

    assert Verifier(old).verify("{}", both) == Verifier(new).verify("{}", both) == Verifier(new).verify("{}", after)
    with pytest.raises(WebhookVerificationError):
        Verifier(old).verify("{}", after)


def test_no_row_has_a_secret(hook):
    raw = base64.b64decode(hook.shown_once.removeprefix("whsec_"))
    services.rotate(hook, timedelta(days=1), by="ann")

    with connection.cursor() as cursor:
        for table in ("webhooks_webhook", "audit_auditentry"):
            cursor.execute(f"SELECT * FROM {table}")
            text = repr(cursor.fetchall())
            assert hook.shown_once not in text
            assert raw.hex() not in text
            assert hashlib.sha256(raw).hexdigest() not in text


def test_with_another_secret_key_nothing_is_signed(hook, settings):
    settings.SECRET_KEY = "another-secret-key-0123456789abcdef"

    with pytest.raises(SecretKeyChangedError, match="rotate the secret"):
        headers(hook, "msg_1", "{}", AT)

    services.rotate(hook, timedelta(), by="ann")
    assert headers(hook, "msg_1", "{}", AT)


def test_secrets_differ():
    assert len({secret_of(new_seed()) for _ in range(10)}) == 10
    assert len(base64.b64decode(secret_of(new_seed()).removeprefix(signing.PREFIX))) == 32
