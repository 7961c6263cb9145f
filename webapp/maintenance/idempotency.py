"""Idempotency keys: a request that is sent again, such as after a lost answer, is not carried out a second time."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.webapp.catalog.models import IdempotencyKey, MaintenanceRun

KEEP = timedelta(hours=24)


class IdempotencyKeyReusedError(TidegaugeError):
    """The idempotency key was sent with another request: send this one with another key."""


@dataclass(frozen=True)
class IdempotentRequest:
    """caller: the API key or user that sent it; only its own keys are compared. digest: of the whole request."""

    caller: str
    key: str
    digest: str


def carry_out_once(request: IdempotentRequest | None, act: Callable[[], object]) -> bool:
    """Carry out an act, unless the same request has already done so. Returns whether it has.

    request: None if the client has sent no key. Raises IdempotencyKeyReusedError, and what the act does; a request that
    failed may be sent again.
    """
    if request is None:
        act()
        return False
    with transaction.atomic():
        row = claim(request)
        if was_sent(row, request):
            return True
        act()
        keep(row, request)
    return False


def claim(request: IdempotentRequest) -> IdempotencyKey:
    """Return the row of the idempotency key, locked until the end of the transaction; a new one has no digest.

    A request with the same key waits here until the first one has committed, and then finds what it has kept.
    """
    row, _ = IdempotencyKey.objects.select_for_update().get_or_create(caller=request.caller, key=request.key)
    return row


def was_sent(row: IdempotencyKey, request: IdempotentRequest) -> bool:
    """Return whether a request with the key was carried out in the last 24 hours. Raises IdempotencyKeyReusedError."""
    if not row.digest or row.at < timezone.now() - KEEP:
        return False
    if row.digest != request.digest:
        raise IdempotencyKeyReusedError(
            f"Idempotency-Key {request.key!r} was sent with another request; send another key with this one"
        )
    return True


def run_of(row: IdempotencyKey) -> MaintenanceRun | None:
    """Return the run that the key has requested; None if it was forgotten."""
    return None if row.run_id is None else MaintenanceRun.objects.filter(pk=row.run_id).first()


def keep(row: IdempotencyKey, request: IdempotentRequest, run: MaintenanceRun | None = None) -> None:
    row.run_id = None if run is None else run.id
    row.digest, row.at = request.digest, timezone.now()
    row.save()


def forget(row: IdempotencyKey) -> None:
    """Forget the key, so that the next request with it is a new one."""
    IdempotencyKey.objects.filter(pk=row.pk).delete()


def forget_old() -> None:
    IdempotencyKey.objects.filter(at__lt=timezone.now() - KEEP).delete()
