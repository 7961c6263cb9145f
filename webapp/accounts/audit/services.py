"""The one door to the audit table."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from structlog.contextvars import get_contextvars

from webapp.accounts.audit.models import AuditEntry


def record(action: str, target: str, *, by: str, **detail: Any) -> AuditEntry:
    """Note that somebody did something; in the transaction of the deed, so that both are there or neither.

    action: what was done, dotted, such as `maintenance.request` or `key.revoke`. target: kind and name. by: the actor.
    detail: what else somebody will want to know, as JSON; never a secret.
    """
    request_id = str(get_contextvars().get("request_id", ""))
    return AuditEntry.objects.create(action=action, target=target, actor=by, detail=detail, request_id=request_id)


def forget_old_entries() -> int:
    """Delete what is older than the setting says, and return the number of entries. Part of the schedule."""
    horizon = timezone.now() - timedelta(days=settings.TIDEMARK_AUDIT_KEEP_DAYS)
    return AuditEntry.objects.filter(at__lt=horizon).delete()[0]
