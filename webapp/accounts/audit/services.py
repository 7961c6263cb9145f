"""Writes to the audit log."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from structlog.contextvars import get_contextvars

from webapp.accounts.audit.models import AuditEntry


def record(action: str, target: str, *, by: str, **detail: Any) -> AuditEntry:
    """Write an entry. Call it in the transaction of the action, so that both are stored or neither.

    action: dotted, such as `maintenance.request` or `key.revoke`. target: kind and name. by: the actor.
    detail: further JSON values; never a secret.
    """
    request_id = str(get_contextvars().get("request_id", ""))
    return AuditEntry.objects.create(action=action, target=target, actor=by, detail=detail, request_id=request_id)


def forget_old_entries() -> int:
    """Delete entries older than TIDEMARK_AUDIT_KEEP_DAYS and return their number. Part of the schedule."""
    horizon = timezone.now() - timedelta(days=settings.TIDEMARK_AUDIT_KEEP_DAYS)
    return AuditEntry.objects.filter(at__lt=horizon).delete()[0]
