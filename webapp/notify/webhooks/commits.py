"""Finds what a webhook is told about a state: each committed batch that changed its keys, as in event streams.

The position is that of an event stream's cursor: txid, attempt and epoch of the last batch, and the catalog's version.
If what is stored now does not continue from there, the message is `commit.reset` with the reason.
"""

from typing import Any
from urllib.parse import urlencode

import orjson
import psycopg
from django.urls import reverse

from tidegauge.state_backends.reader.changes import ChangedBatch, Changes
from tidegauge.webapp.accounts.permissions import UNRESTRICTED
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.events.deltas import PAGE_BATCHES, Cursor, EventId, StateReads, gap
from tidegauge.webapp.events.subscriptions import StateSubscription, state_subscription
from tidegauge.webapp.notify.webhooks.models import Webhook
from tidegauge.webapp.notify.webhooks.outbox import Message, News

COMMITTED_AT = "SELECT txid, committed_at FROM tidegauge.batch WHERE pipeline = %s AND txid = ANY(%s)"

# Larger changes are left out, because a receiver should not have to accept more.
MOST_BYTES = 256 * 1024


def subscription(webhook: Webhook, state: str) -> StateSubscription:
    """Return which changes of a state a webhook follows. Raises UnknownStateError, ParseError, KeyShapeError."""
    parameters = {"keys": webhook.keys} if webhook.keys else {"prefix": webhook.key_prefix}
    texts = {name: [orjson.dumps(value).decode()] for name, value in parameters.items()}
    return state_subscription(state, texts, UNRESTRICTED)


def find_commits(webhook: Webhook, position: dict[str, Any] | None, room: int, *, state: str) -> News:
    """Return the batches of a state after a position: at most a page of them, and no more than there is room for."""
    wanted = subscription(webhook, state)
    return readers.retry_if_redeclared(
        lambda: readers.read(lambda conn: _find(_Commits(conn, wanted), position, min(room, PAGE_BATCHES)))
    )


def _find(commits: "_Commits", position: dict[str, Any] | None, room: int) -> News:
    if position is None:
        now = commits.now()
        return News([], _position(now, now))
    seen = Cursor(EventId(position["txid"], position["epoch"]), position["attempt"], position["catalog_version"])
    found = commits.reads.changes(seen.txid, room)
    reason = gap(found, seen)
    if reason is not None:
        return commits.reset(reason)
    told = [batch for batch in found.batches if commits.is_told(batch)]
    return News(commits.messages(found, told), _position(found, found.batches[-1] if found.more else found), found.more)


class _Commits:
    """The messages of one state, read over one connection."""

    def __init__(self, conn: psycopg.Connection, wanted: StateSubscription) -> None:
        self.reads = StateReads(conn, wanted)
        self.wanted = wanted

    def now(self) -> Changes:
        return self.reads.changes(0, batches=0)

    def is_told(self, batch: ChangedBatch) -> bool:
        # An incomplete batch is told in any case, because nobody knows whether it changed the selected keys.
        is_selective = self.wanted.keys is not None or self.wanted.prefix
        return not is_selective or not batch.complete or batch.changes != b"[]"

    def messages(self, found: Changes, told: list[ChangedBatch]) -> list[Message]:
        rows = self.reads.conn.execute(COMMITTED_AT, [self.wanted.pipeline, [batch.txid for batch in told]])
        committed_at: dict[int, Any] = dict(rows.fetchall())
        return [self._batch(found.epoch, batch, committed_at.get(batch.txid)) for batch in told]

    def reset(self, reason: str) -> News:
        now = self.now()
        data = self._data(now.epoch, now) | {"reason": reason, "lookup": self._lookup()}
        return News([Message("commit.reset", data)], _position(now, now))

    def _batch(self, epoch: str, batch: ChangedBatch, committed_at: Any) -> Message:
        is_complete = batch.complete and len(batch.changes) <= MOST_BYTES
        changes = orjson.Fragment(batch.changes) if is_complete else []
        data = self._data(epoch, batch) | {"committed_at": committed_at, "changes": changes, "complete": is_complete}
        return Message("commit.batch", data if is_complete else data | {"lookup": self._lookup()})

    def _data(self, epoch: str, at: Changes | ChangedBatch) -> dict[str, Any]:
        named = {"state": self.wanted.state, "pipeline": self.wanted.pipeline}
        return named | {"epoch": epoch, "txid": at.txid, "batch_time": at.batch_time}

    def _lookup(self) -> str:
        """Return the path at which a receiver can read the keys again: of a lookup, or of entries."""
        if self.wanted.keys is not None:
            return reverse("lookup:lookup", args=[self.wanted.state])
        entries = reverse("lookup:entries", args=[self.wanted.state])
        if not self.wanted.prefix:
            return entries
        return f"{entries}?{urlencode({'prefix': orjson.dumps(self.wanted.prefix, default=str).decode()})}"


def _position(found: Changes, last: Changes | ChangedBatch) -> dict[str, Any]:
    at = {"txid": last.txid, "attempt": last.attempt}
    return at | {"epoch": found.epoch, "catalog_version": found.catalog_version}
