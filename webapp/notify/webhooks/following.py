"""Follows commits and runs for the webhooks: stores what is new as messages, with the new positions.

Messages and position are stored in one transaction, and only if the position is still the one that was read from. So
nothing is lost or stored twice, even after a crash or beside another worker. A topic that cannot be read, such as a
dropped state, does not stop the others.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction

from tidegauge.webapp.notify.webhooks import outbox
from tidegauge.webapp.notify.webhooks.commits import find_commits
from tidegauge.webapp.notify.webhooks.models import Cursor, Kind, Webhook
from tidegauge.webapp.notify.webhooks.outbox import News
from tidegauge.webapp.notify.webhooks.runs import find_runs
from tidegauge.webapp.notify.webhooks.upkeep import commits_topic

logger = logging.getLogger(__name__)

# (webhook, position, room) -> News. position: None at first. room: how many messages may be found, at least one.
Find = Callable[[Webhook, Any, int], News]

# Pages of one topic of a webhook per run of the task; the next run continues from there.
MOST_PAGES = 10


def follow_all() -> None:
    """Store what is new for each webhook that is enabled."""
    for webhook in Webhook.objects.filter(enabled=True):
        follow(webhook)


def follow(webhook: Webhook) -> None:
    problems = [problem for topic, find in topics(webhook).items() if (problem := _follow(webhook, topic, find))]
    if webhook.problem != "\n".join(problems):
        webhook.problem = "\n".join(problems)
        # Only while enabled, so that it does not replace the reason why the sender has disabled the webhook.
        Webhook.objects.filter(pk=webhook.pk, enabled=True).update(problem=webhook.problem)


def topics(webhook: Webhook) -> dict[str, Find]:
    """Return what a webhook follows, by the topics of its cursors."""
    found: dict[str, Find] = {}
    if Kind.COMMIT in webhook.kinds:
        found |= {commits_topic(state): partial(find_commits, state=state) for state in webhook.states}
    if Kind.MAINTENANCE in webhook.kinds:
        found["maintenance"] = find_runs
    return found


def _follow(webhook: Webhook, topic: str, find: Find) -> str:
    """Follow a topic. Returns why that failed; empty if it did not."""
    try:
        for _ in range(MOST_PAGES):
            if not _one_page(webhook, topic, find):
                break
    except Exception as error:  # any, because one topic must not stop the others
        logger.exception("webhook %s cannot follow %s", webhook, topic)
        return f"{topic}: {error}"
    return ""


def _one_page(webhook: Webhook, topic: str, find: Find) -> bool:
    """Return whether to look again immediately."""
    room = outbox.room(webhook)
    if not room:
        return False
    cursor = Cursor.objects.filter(webhook=webhook, topic=topic).first()
    news = find(webhook, cursor and cursor.position, room)
    with transaction.atomic():
        if not _advance(webhook, topic, cursor, news.position):
            return False
        outbox.add(webhook, news.messages)
    return news.more


def _advance(webhook: Webhook, topic: str, cursor: Cursor | None, position: Any) -> bool:
    """Move a cursor if nobody else has moved it meanwhile. Returns whether it was moved."""
    if cursor is None:
        return Cursor.objects.get_or_create(webhook=webhook, topic=topic, defaults={"position": position})[1]
    return bool(Cursor.objects.filter(pk=cursor.pk, position=cursor.position).update(position=position))
