"""docs/recovery.md about stores: each section's message is what its fault brings, and each of its commands is run."""

import re
from io import StringIO
from uuid import uuid4

import pytest
from django.core.management import call_command

from tests.recovery_page import arguments, commands, message_of
from tests.state_backends.backends.own_redis import servers
from tests.state_backends.feed import views
from tests.state_backends.store_feed import StoreFeed, copy_of, keys_of, put_back
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.errors import BackendSetupError, BackendUnavailable, FindingError, LostWritesError
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.maintenance.operations import rebuild_state

MANY = views(*((f"{number:04}", 1) for number in range(2_000)))
EXPECTED = ["missing", 3, 1]


@pytest.fixture
def server(tmp_path):
    with servers(tmp_path) as start:
        yield start(appendonly="yes", appendfsync="always")


@pytest.fixture
def feed(transactional_db, server, monkeypatch):
    """A state with a changelog in a Redis of its own; page `a` was counted in batches 1 and 2."""
    monkeypatch.setenv("TIDEGAUGE_REDIS_URL", server.url)
    readers.clear_cache()
    name = f"views_{uuid4().hex[:8]}"
    spec = StateSpec(name, key={"page": "text"}, measures={"n": Count()}, backend="redis", changelog=True)
    feed = StoreFeed(readers.connection(), spec)
    feed.server = server
    feed.run(views(("a", 1)))
    feed.run(views(("a", 1)))
    yield feed
    feed.ledger.release()
    readers.clear_cache()


def behind(feed):
    older = copy_of(feed.server.client, feed.spec)
    feed.run(views(("a", 1), ("b", 1)))
    put_back(feed.server.client, feed.spec, older)


def lacks_keys(feed):
    batch, _ = feed.begin()
    promoted = copy_of(feed.server.client, feed.spec)
    feed.commit(batch, feed.write(batch, views(("a", 1), ("b", 1))))
    put_back(feed.server.client, feed.spec, promoted)


def ahead(feed):
    feed.run(views(("a", 1), ("b", 1)))
    copy = feed.copy_of_ledger()
    for _ in range(2):
        feed.run(views(("a", 100), ("old", 100)))
    feed.restore_ledger(copy)


def dropped(feed):
    feed.run(views(("a", 1), ("b", 1)))
    feed.server.client.delete(*[key for key in keys_of(feed.server.client, feed.spec) if b"row:" in key])
    feed.server.client.hdel(f"tidegauge:{{{feed.spec.name}}}:guard", "counted")


def evicts(feed):
    feed.run(views(("a", 1), ("b", 1)))
    feed.server.client.config_set("maxmemory", 100_000_000)
    feed.server.client.config_set("maxmemory-policy", "allkeys-lru")


def full(feed):
    feed.run(views(("a", 1), ("b", 1)))
    batch, _ = feed.begin()
    feed.server.client.config_set("maxmemory", 500_000)
    feed.write(batch, MANY)


def has_no_file(feed):
    feed.run(views(("a", 1), ("b", 1)))
    feed.server.client.config_set("appendonly", "no")
    feed.restart()
    row = feed.conn.execute("SELECT warning FROM tidegauge.state WHERE name = %s", [feed.spec.name]).fetchone()
    raise BackendSetupError(row[0])


def cut_short(feed):
    behind(feed)
    feed.ledger.release()
    run = rebuild_state(state=feed.spec.name, to="redis", requested_by="ann")
    next(run)
    run.close()
    feed.ledger.acquire()


def forgotten(feed):
    feed.run(views(("a", 1), ("b", 1)))
    older = copy_of(feed.server.client, feed.spec)
    batch, _ = feed.begin()
    put_back(feed.server.client, feed.spec, {})
    try:
        feed.write(batch, views(("a", 1)))
    finally:
        put_back(feed.server.client, feed.spec, older)


FAULTS = {
    "A store is behind the ledger": behind,
    "A store lacks keys of a batch": lacks_keys,
    "A store is ahead of the ledger": ahead,
    "A store has dropped rows": dropped,
    "A store may evict rows": evicts,
    "A store is full": full,
    "A store has no append-only file": has_no_file,
    "A rebuild was cut short": cut_short,
    "Redis has lost an attempt": forgotten,
}
ERRORS = (FindingError, BackendSetupError, BackendUnavailable, LostWritesError)


def strike(feed, fault):
    fault(feed)
    feed.restart()


def type_in(feed, line):
    if line.startswith("redis-cli "):
        feed.server.client.execute_command(*line.split()[1:])
    else:
        call_command(*arguments(line, STATE=feed.spec.name), stdout=StringIO(), stderr=StringIO())


@pytest.mark.parametrize("section", FAULTS)
def test_what_is_seen_is_as_the_page_says_and_what_it_says_to_type_mends_it(feed, section):
    with pytest.raises(ERRORS) as caught:
        strike(feed, FAULTS[section])
    feed.ledger.release()
    for line in commands(section):
        type_in(feed, line)
    feed.ledger.acquire()
    feed.restart()

    assert re.search(message_of(section), str(caught.value)), message_of(section)
    assert feed.read("old", "a", "b") == EXPECTED
    assert feed.finding() == ""
