"""Follows commits and runs for the webhooks: what is new is stored as messages, with the new positions.

Messages and position are stored in one transaction, and only if the position is still the one that was read from: so
nothing is lost or told twice, whatever fails or runs beside it. What cannot be read, such as a state that was dropped,
does not stop the rest.
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

# (webhook, position, room) -> News. position: None at first. room: how many messages there may be, one or more.
Find = Callable[[Webhook, Any, int], News]

# Of one topic of a webhook at a time; the next look goes on from there.
MOST_PAGES = 10


def follow_all() -> None:
    """Store what is new for each webhook that is enabled."""
    for webhook in Webhook.objects.filter(enabled=True):
        follow(webhook)


def follow(webhook: Webhook) -> None:
    problems = [problem for topic, find in topics(webhook).items() if (problem := _follow(webhook, topic, find))]
    if webhook.problem != "\n".join(problems):
        webhook.problem = "\n".join(problems)
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
    """Return what keeps a topic from being followed; empty if nothing does."""
    try:
        for _ in range(MOST_PAGES):
            if not _one_page(webhook, topic, find):
                break
    except Exception as error:
        logger.exception("webhook %s cannot follow %s", webhook, topic)
        return f"{topic}: {error}"
    return ""


def _one_page(webhook: Webhook, topic: str, find: Find) -> bool:
    """Return whether to look again at once."""
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
    """Move a cursor that is still where it was. Returns whether it was."""
    if cursor is None:
        return Cursor.objects.get_or_create(webhook=webhook, topic=topic, defaults={"position": position})[1]
    return bool(Cursor.objects.filter(pk=cursor.pk, position=cursor.position).update(position=position))
