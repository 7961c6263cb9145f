"""What the upkeep of states does to webhooks: old messages are deleted, and a renamed state is followed on."""

from datetime import timedelta

import psycopg
from django.conf import settings
from django.utils import timezone
from psycopg import sql

from webapp.webhooks.models import Cursor, Delivery, Webhook


def commits_topic(state: str) -> str:
    return f"commits of {state}"


def forget_old() -> int:
    """Delete messages that were delivered or given up longer ago than TIDEGAUGE_WEBHOOK_KEEP_DAYS."""
    oldest = timezone.now() - timedelta(days=settings.TIDEGAUGE_WEBHOOK_KEEP_DAYS)
    return Delivery.objects.filter(finished_at__lt=oldest).delete()[0]


def rename_in_webhooks(conn: psycopg.Connection, *, old: str, new: str) -> None:
    """Let webhooks follow a state on under its new name, in the caller's transaction."""
    webhooks, cursors = (sql.Identifier(model._meta.db_table) for model in (Webhook, Cursor))
    conn.execute(
        sql.SQL("UPDATE {} SET states = array_replace(states, %s, %s) WHERE %s = ANY(states)").format(webhooks),
        [old, new, old],
    )
    conn.execute(
        sql.SQL("UPDATE {} SET topic = %s WHERE topic = %s").format(cursors), [commits_topic(new), commits_topic(old)]
    )
