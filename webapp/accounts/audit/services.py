"""Writes to the audit log."""

import logging
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import ProgrammingError
from django.utils import timezone
from structlog.contextvars import get_contextvars

from tidegauge.webapp.accounts.audit.models import AuditEntry

logger = logging.getLogger(__name__)


def record(action: str, target: str, *, by: str, **detail: Any) -> AuditEntry:
    """Write an entry. Call it in the transaction of the action, so that both are stored or neither.

    action: dotted, such as `maintenance.request` or `key.revoke`. target: kind and name. by: the actor.
    detail: further JSON values; never a secret.
    """
    request_id = str(get_contextvars().get("request_id", ""))
    return AuditEntry.objects.create(action=action, target=target, actor=by, detail=detail, request_id=request_id)


def record_command(action: str, target: str, *, by: str, **detail: Any) -> None:
    """Write an entry for what a command has done. If that is not possible, log a warning and continue.

    A project that only runs pipelines does not have Django's tables, and the role of its drivers may not write to the
    audit log.
    """
    try:
        record(action, target, by=by, **detail)
    except ProgrammingError as error:
        logger.warning("not in the audit log: %s of %s: %s", action, target, str(error).partition("\n")[0])


def forget_old_entries() -> int:
    """Delete entries older than TIDEGAUGE_AUDIT_KEEP_DAYS and return their number. Part of the schedule."""
    horizon = timezone.now() - timedelta(days=settings.TIDEGAUGE_AUDIT_KEEP_DAYS)
    return AuditEntry.objects.filter(at__lt=horizon).delete()[0]
