"""Idempotency keys: a request that is sent again, such as after a lost answer, gets the run of the first request."""

from dataclasses import dataclass
from datetime import timedelta

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


def claim(request: IdempotentRequest) -> IdempotencyKey:
    """Return the row of the idempotency key, locked until the end of the transaction; a new one has no run.

    A request with the same key waits here until the first one has committed, and then finds its run.
    """
    wanted = {"caller": request.caller, "key": request.key}
    row, _ = IdempotencyKey.objects.select_for_update().get_or_create(**wanted, defaults={"digest": request.digest})
    return row


def run_of(row: IdempotencyKey, request: IdempotentRequest) -> MaintenanceRun | None:
    """Return the run that the key has requested in the last 24 hours. Raises IdempotencyKeyReusedError."""
    if row.run_id is None or row.at < timezone.now() - KEEP:
        return None
    run = MaintenanceRun.objects.filter(pk=row.run_id).first()
    if run is not None and row.digest != request.digest:
        raise IdempotencyKeyReusedError(
            f"Idempotency-Key {request.key!r} was sent with another request, of {run}; send another key"
        )
    return run


def keep(row: IdempotencyKey, request: IdempotentRequest, run: MaintenanceRun) -> None:
    row.run_id, row.digest, row.at = run.id, request.digest, timezone.now()
    row.save()


def forget(row: IdempotencyKey) -> None:
    """Forget the key, so that the next request with it is a new one."""
    IdempotencyKey.objects.filter(pk=row.pk).delete()


def forget_old() -> None:
    IdempotencyKey.objects.filter(at__lt=timezone.now() - KEEP).delete()
