"""Works that meet on one state: a migration, a reprocess, compaction, expiry and a rebuild."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.state_backends.feed import views
from tidegauge.state_backends import Catalog, Changelog, Count, MemoryBackingMap, OpaqueMap, StateReader, StateSpec
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.backends.wrappers import LoggedMap
from tidegauge.state_backends.errors import StateBusyError
from tidegauge.state_backends.ledger.state_lock import state_lock
from tidegauge.state_backends.maintenance import compact, expire
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.repair.rebuilding import rebuild

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)
NOTHING = timedelta()


@pytest.fixture(autouse=True)
def a_row_per_chunk(monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 1)


@pytest.fixture
def feed(new_feed, fresh):
    """Page `a` was viewed and removed, and `b` viewed twice since."""
    feed = new_feed(fresh(VIEWS))
    feed.run(views(("a", 1)))
    remove(feed, "a")
    feed.run(views(("b", 1)))
    feed.run(views(("b", 1)))
    return feed


def remove(feed, page):
    (spec,), batch = feed.specs, feed.begin(feed.next_batch_id())
    pages = OpaqueMap(LoggedMap(feed.backing(spec), Changelog(feed.conn, spec)))
    pages.begin_commit(batch.txid, at=batch.batch_time)
    pages.multi_remove([(page,)])
    feed.ledger.commit(batch)


def migrate(feed, new, on_copied=lambda rows: None):
    Catalog(feed.conn).register_states(feed.pipeline, [new], {new.name: ""}, lambda state, rows: on_copied(rows))


def at_txid(conn, spec, txid, *keys):
    return [answer["status"] for answer in StateReader(conn, spec).multi_get(keys, at_txid=txid).parsed()]


def test_compaction_between_two_pages_of_a_copy_does_not_revive_a_removed_key(feed, connect):
    (spec,), other = feed.specs, connect()

    def compact_now(rows):
        # Two rows are copied, and of the entries the first: page `a` at batch 1, but not its removal at batch 2.
        if rows == 3:
            with suppress(StateBusyError):
                list(compact(other, spec, keep=NOTHING))

    migrate(feed, replace(spec, partitions=2), compact_now)

    assert at_txid(feed.conn, replace(spec, partitions=2), 3, ("a",), ("b",)) == ["missing", "found"]


@pytest.mark.parametrize(
    "work", [lambda conn, spec: compact(conn, spec, keep=NOTHING), expire], ids=["compact", "expire"]
)
def test_maintenance_is_refused_by_name_while_a_state_is_copied(feed, connect, work):
    (spec,), other = feed.specs, connect()
    refused = []

    def maintain(rows):
        with pytest.raises(StateBusyError) as caught:
            list(work(other, spec))
        refused.append(caught.value.work)

    migrate(feed, replace(spec, partitions=2), maintain)

    assert set(refused) == {"migration"}
    list(work(other, replace(spec, partitions=2)))


def test_a_reprocess_is_refused_by_name_while_a_migration_fills_the_shadow(feed, connect):
    (spec,), other = feed.specs, connect()

    def reprocess(rows):
        held = "reprocess cannot begin, its shadow tables are held by migration on host"
        with pytest.raises(StateBusyError, match=held), state_lock(other, spec.name, "reprocess"):
            BACKENDS.tables_of(spec).create_shadow(other, spec)

    migrate(feed, replace(spec, partitions=2), reprocess)

    assert feed.read(replace(spec, partitions=2), ("a",), ("b",)) == ["missing", {"n": 2}]


def test_a_migration_is_refused_by_name_while_a_reprocess_fills_the_shadow(feed, connect):
    (spec,) = feed.specs

    with state_lock(connect(), spec.name, "reprocess"), pytest.raises(StateBusyError) as refused:
        migrate(feed, replace(spec, partitions=2))

    assert "migration cannot begin, its shadow tables are held by reprocess on host" in str(refused.value)
    assert feed.read(spec, ("b",)) == [{"n": 2}]


def test_a_shadow_that_another_work_had_meanwhile_is_not_swapped_in(feed, connect):
    """The session that holds the lock may end without the process that copies noticing."""
    (spec,), other = feed.specs, connect()
    refused = []

    def lose_the_lock_to_a_reprocess(rows):
        if not refused:
            feed.conn.execute("SELECT pg_advisory_unlock_all()")
            with state_lock(other, spec.name, "reprocess"):
                refused.append(1)

    with pytest.raises(StateBusyError, match="its shadow tables were taken over by a work that has just ended"):
        migrate(feed, replace(spec, partitions=2), lose_the_lock_to_a_reprocess)

    assert Catalog(feed.conn).get(spec.name).partitions == 1
    assert feed.read(spec, ("b",)) == [{"n": 2}]


def test_compaction_is_refused_between_two_chunks_of_a_rebuild(feed, connect):
    (spec,) = feed.specs
    steps = rebuild(Changelog(feed.conn, spec), MemoryBackingMap(spec), chunk_keys=1)

    next(steps)

    with pytest.raises(StateBusyError, match="held by rebuild on host"):
        list(compact(connect(), spec, keep=NOTHING))
    steps.close()
    list(compact(connect(), spec, keep=NOTHING))


def test_a_new_measure_waits_for_no_reprocess(feed, connect):
    (spec,) = feed.specs

    with state_lock(connect(), spec.name, "reprocess"):
        migrate(feed, replace(spec, measures={"n": Count(), "more": Count()}))

    assert list(Catalog(feed.conn).get(spec.name).measures) == ["n", "more"]


def test_a_restart_that_changes_nothing_waits_for_no_work(feed, connect):
    (spec,) = feed.specs

    with state_lock(connect(), spec.name, "compaction"):
        migrate(feed, spec)

    assert Catalog(feed.conn).names(feed.pipeline) == [spec.name]
