"""A pipeline that may replay, and a client that follows it: it applies events, and reads the state when it must."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg

from tests.state_backends.feed import Feed, views
from tests.webapp.events.events_server import Event
from tidegauge.state_backends import Count, StateReader, StateSpec
from tidegauge.webapp.catalog import readers


def spec(**declared: Any) -> StateSpec:
    """Return the declaration of a state of views per page, with a unique name."""
    name = f"views_{uuid4().hex[:8]}"
    return StateSpec(name, key={"page": "text"}, measures={"n": Count()}, **({"changelog": True} | declared))


@contextmanager
def views_feed(*specs: StateSpec) -> Iterator[Feed]:
    """Feed states of an opaque pipeline; its commits persist until the database is restored after the test."""
    declared = specs or (spec(),)
    with readers.own_connection() as conn:
        yield Feed(conn, declared, pipeline=f"pipeline_of_{declared[0].name}")


def commit(feed: Feed, **pages: int) -> int:
    """Count so many views of each page in one batch. Returns its txid."""
    return feed.run(views(*pages.items())).txid


class Follower:
    """values: page to views, as the events give them. reads: how often it had to read the state."""

    def __init__(self, conn: psycopg.Connection, followed: StateSpec) -> None:
        self.values: dict[str, int] = {}
        self.txid = 0
        self.reads = 0
        self._reader = StateReader(conn, followed)

    def take(self, event: Event) -> None:
        data = event.data
        if event.event in ("snapshot", "reset") and "results" in data:
            self.values = {}
            self._apply(data["results"])
        elif event.event == "reset" or (event.event == "ready" and "resumed" not in data):
            self._read_state()
        elif event.event == "batch":
            # Batches come once and in order.
            assert data["txid"] > self.txid, (data["txid"], self.txid)
            self._apply(data["changes"]) if data["complete"] else self._read_state()
        self.txid = data["txid"]

    def looked_up(self) -> dict[str, int]:
        entries = self._reader.page(limit=1_000).parsed()
        return {entry["key"][0]: entry["value"]["n"] for entry in entries}

    def _read_state(self) -> None:
        self.reads += 1
        self.values = self.looked_up()

    def _apply(self, changes: list[dict[str, Any]]) -> None:
        for change in changes:
            [page] = change["key"]
            self.values.pop(page, None)
            if change["status"] == "found":
                self.values[page] = change["value"]["n"]
