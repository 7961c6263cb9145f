"""Deletes old messages of webhooks, and updates webhooks when a state is renamed. Signals call it."""

from datetime import timedelta
from typing import Any

import psycopg
from django.conf import settings
from django.utils import timezone
from psycopg import sql

from tidegauge.webapp.notify.webhooks.models import Cursor, Delivery, Webhook


def commits_topic(state: str) -> str:
    return f"commits of {state}"


def forget_old(**_: Any) -> int:
    """Delete messages that were delivered or given up longer ago than TIDEGAUGE_WEBHOOK_KEEP_DAYS."""
    oldest = timezone.now() - timedelta(days=settings.TIDEGAUGE_WEBHOOK_KEEP_DAYS)
    return Delivery.objects.filter(finished_at__lt=oldest).delete()[0]


def rename_in_webhooks(*, conn: psycopg.Connection, old: str, new: str, **_: Any) -> None:
    """Update webhooks when a state is renamed, in the caller's transaction."""
    webhooks, cursors = (sql.Identifier(model._meta.db_table) for model in (Webhook, Cursor))
    conn.execute(
        sql.SQL("UPDATE {} SET states = array_replace(states, %s, %s) WHERE %s = ANY(states)").format(webhooks),
        [old, new, old],
    )
    conn.execute(
        sql.SQL("UPDATE {} SET topic = %s WHERE topic = %s").format(cursors), [commits_topic(new), commits_topic(old)]
    )
