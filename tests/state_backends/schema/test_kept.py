"""What a reprocess has replaced can be put back as it was, for as long as it is kept."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.recovery_page import message_of
from tests.state_backends.feed import views
from tidegauge.state_backends import BatchLedger, Catalog, Count, PostgresBackingMap, StateReader, StateSpec, Sum
from tidegauge.state_backends.dead_letters.letters import DeadLetter, write_dead_letters
from tidegauge.state_backends.errors import RollBackError
from tidegauge.state_backends.ledger.epochs import current_epoch
from tidegauge.state_backends.maintenance import compact
from tidegauge.state_backends.schema.definition import definition
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.reprocess import Phase, enter
from tidegauge.state_backends.schema.swap import ROOM, Swap

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)
DAY = timedelta(days=1)


@pytest.fixture
def feed(new_feed, fresh):
    """Two batches: page `a` was viewed, then `a` and `b`."""
    feed = new_feed(fresh(VIEWS))
    feed.run(views(("a", 1)))
    feed.run(views(("a", 1), ("b", 5)))
    return feed


def other_meaning(spec):
    """The same state, declared as something that the old rows are not."""
    return replace(spec, measures={"n": Sum("seconds", type="bigint")}, changelog=False)


def reprocess(feed, specs, *, keep_old=DAY, letters=()):
    """Feed one batch to the shadow, with one row per state, and swap it in."""
    swap = Swap(feed.conn, feed.pipeline)
    swap.begin(specs, spout=feed.spout)
    ledger = BatchLedger(feed.conn, swap.name)
    ledger.acquire()
    ledger.bind("the shadow's checkpoint")
    batch = ledger.begin(0)
    for spec in specs:
        feed.conn.execute(
            f"INSERT INTO tidegauge_shadow_state.{spec.name} (page, n, txid, updated_at) VALUES ('a', 77, %s, now())",
            [batch.txid],
        )
    with feed.conn.transaction():
        write_dead_letters(feed.conn, batch, letters)
    ledger.commit(batch, rows_in=1, keys_written={spec.name: 1 for spec in specs})
    ledger.release()
    swap.swap(specs, {spec.name: "" for spec in specs}, keep_old=keep_old)
    enter(feed.conn, feed.pipeline, Phase.SWAPPED, Phase.SETTLED)


def roll_back(feed):
    Kept(feed.conn, feed.pipeline).roll_back()
    enter(feed.conn, feed.pipeline, Phase.ROLLING_BACK, Phase.ROLLED_BACK)


def stored(feed, table):
    row = feed.conn.execute("SELECT to_regclass(%s)", [table]).fetchone()
    return row[0] is not None


def read(feed, *keys, **options):
    reader = StateReader(feed.conn, Catalog(feed.conn).get(feed.specs[0].name))
    return [answer["value"] for answer in reader.multi_get([(key,) for key in keys], **options).parsed()]


def ledger_row(feed):
    columns = "committed_txid, committed_batch_id, checkpoint_id, open_txid, open_attempt, fed_after"
    return feed.conn.execute(f"SELECT {columns} FROM tidegauge.pipeline WHERE name = %s", [feed.pipeline]).fetchone()


def test_a_roll_back_puts_rows_ledger_and_definition_back_as_they_were(feed):
    (spec,) = feed.specs
    before = ledger_row(feed)
    reprocess(feed, [other_meaning(spec)])
    replaced = read(feed, "a", "b")

    roll_back(feed)

    assert replaced == [{"n": 77}, None]
    assert read(feed, "a", "b") == [{"n": 2}, {"n": 5}]
    assert read(feed, "a", "b", at_txid=1) == [{"n": 1}, None]
    assert ledger_row(feed) == before
    assert definition(Catalog(feed.conn).get(spec.name)) == definition(spec)
    assert feed.conn.execute(f"SELECT n FROM tidegauge_live.{spec.name} ORDER BY page").fetchall() == [(2,), (5,)]
    assert not stored(feed, f"tidegauge_kept_state.{spec.name}")


def test_the_pipeline_goes_on_from_where_the_old_states_stopped(feed):
    (spec,) = feed.specs
    reprocess(feed, [other_meaning(spec)])

    roll_back(feed)
    feed.ledger.acquire()
    batch = feed.run(views(("b", 1)))

    assert batch.txid == 3
    assert read(feed, "a", "b") == [{"n": 2}, {"n": 6}]


def test_txids_go_back_in_a_new_epoch(feed):
    before = current_epoch(feed.conn, feed.pipeline)
    reprocess(feed, [other_meaning(feed.specs[0])])

    roll_back(feed)

    rows = feed.conn.execute(
        "SELECT e.reason, p.epoch = e.epoch FROM tidegauge.epoch e, tidegauge.pipeline p WHERE p.name = %s "
        "ORDER BY e.number DESC LIMIT 1",
        [feed.pipeline],
    )
    assert rows.fetchone() == (f"the reprocess of pipeline {feed.pipeline!r} was rolled back", True)
    assert current_epoch(feed.conn, feed.pipeline) != before


def test_a_driver_that_fed_the_new_states_is_fenced_off(feed):
    reprocess(feed, [other_meaning(feed.specs[0])])
    fence = feed.ledger.acquire()

    roll_back(feed)

    assert feed.conn.execute("SELECT fence FROM tidegauge.pipeline WHERE name = %s", [feed.pipeline]).fetchone() > (
        fence,
    )


def test_a_batch_that_was_open_at_the_swap_is_tried_again_and_counts_once(feed):
    (spec,) = feed.specs
    dead = feed.begin(2)
    feed.apply(dead, spec, views(("a", 10), ("c", 10)))
    reprocess(feed, [other_meaning(spec)])

    roll_back(feed)
    feed.ledger.acquire()
    batch = feed.begin(2)
    feed.apply(batch, spec, views(("a", 1)))
    feed.ledger.commit(batch)

    assert (batch.txid, batch.attempt) == (3, 2)
    assert read(feed, "a", "b", "c") == [{"n": 3}, {"n": 5}, None]


def test_the_records_and_dead_letters_are_those_of_the_old_states(feed):
    (spec,) = feed.specs
    letter = DeadLetter("file", "not a line", "unreadable", 1)
    batch = feed.begin(2)
    with feed.conn.transaction():
        write_dead_letters(feed.conn, batch, [letter])
    feed.ledger.commit(batch, dead_letters=1)
    reprocess(feed, [other_meaning(spec)], letters=[replace(letter, line="another")])

    roll_back(feed)

    lines = feed.conn.execute("SELECT line, txid FROM tidegauge.dead_letter WHERE pipeline = %s", [feed.pipeline])
    txids = feed.conn.execute("SELECT txid FROM tidegauge.batch WHERE pipeline = %s ORDER BY txid", [feed.pipeline])
    assert lines.fetchall() == [("not a line", 3)]
    assert txids.fetchall() == [(1,), (2,), (3,)]


def test_a_state_that_the_reprocess_added_goes(feed, fresh):
    (spec,), more = feed.specs, fresh(replace(VIEWS, name="more", changelog=False))
    reprocess(feed, [other_meaning(spec), more])

    roll_back(feed)

    assert Catalog(feed.conn).names(feed.pipeline) == [spec.name]
    assert not stored(feed, f"tidegauge_state.{more.name}")


def test_a_state_with_partitions_is_put_back_with_them(new_feed, fresh):
    feed = new_feed(spec := fresh(replace(VIEWS, partitions=3)))
    feed.run(views(*((f"page {number}", 1) for number in range(20))))
    reprocess(feed, [replace(other_meaning(spec), partitions=2)])

    roll_back(feed)

    assert Catalog(feed.conn).get(spec.name).partitions == 3
    assert len(list(PostgresBackingMap(feed.conn, spec).scan())) == 20


def test_a_state_that_began_after_the_swap_forbids_it_by_name(feed, fresh):
    (spec,), later = feed.specs, fresh(replace(VIEWS, name="later"))
    reprocess(feed, [other_meaning(spec)])
    feed.ledger.acquire()
    Catalog(feed.conn).register_states(feed.pipeline, [later], {later.name: ""})
    feed.ledger.commit(feed.ledger.begin(1), keys_written={later.name: 1})

    with pytest.raises(RollBackError, match=message_of("A roll-back that cannot be done", 2)):
        Kept(feed.conn, feed.pipeline).roll_back()

    assert read(feed, "a") == [{"n": 77}]


def test_it_is_refused_where_nothing_is_kept(feed):
    reprocess(feed, [other_meaning(feed.specs[0])], keep_old=timedelta())

    with pytest.raises(RollBackError, match=message_of("A roll-back that cannot be done", 1)):
        Kept(feed.conn, feed.pipeline).roll_back()

    assert not stored(feed, f"tidegauge_kept_state.{feed.specs[0].name}")


def test_it_is_refused_while_another_reprocess_is_under_way(feed):
    changed = other_meaning(feed.specs[0])
    reprocess(feed, [changed])
    Swap(feed.conn, feed.pipeline).begin([changed], spout=feed.spout)

    with pytest.raises(RollBackError, match=message_of("A reprocess was interrupted", 1) + "; abort it first"):
        Kept(feed.conn, feed.pipeline).roll_back()

    Swap(feed.conn, feed.pipeline).abort()
    roll_back(feed)
    assert read(feed, "a") == [{"n": 2}]


def test_the_next_reprocess_replaces_what_is_kept(feed):
    (spec,) = feed.specs
    reprocess(feed, [other_meaning(spec)])
    reprocess(feed, [spec])

    roll_back(feed)

    assert read(feed, "a", "b") == [{"n": 77}, None]
    assert ledger_row(feed)[0] == ROOM + 1


@pytest.mark.parametrize(("keep_old", "dropped"), [(timedelta(microseconds=1), True), (DAY, False)])
def test_what_is_kept_is_dropped_once_its_time_is_over_and_not_before(feed, keep_old, dropped):
    (spec,) = feed.specs
    reprocess(feed, [other_meaning(spec)], keep_old=keep_old)

    assert Kept(feed.conn, feed.pipeline).drop_expired() is dropped

    assert stored(feed, f"tidegauge_kept_state.{spec.name}") is not dropped
    assert stored(feed, f"tidegauge_kept_changelog.{spec.name}") is not dropped
    assert (Kept(feed.conn, feed.pipeline).until() is None) is dropped
    assert read(feed, "a") == [{"n": 77}]


def test_a_compaction_keeps_the_batches_that_a_roll_back_needs(feed, monkeypatch):
    (spec,) = feed.specs
    monkeypatch.setattr("tidegauge.state_backends.maintenance.KEPT_BATCHES", 0)
    reprocess(feed, [other_meaning(spec)])

    list(compact(feed.conn, Catalog(feed.conn).get(spec.name), keep=timedelta()))
    roll_back(feed)

    assert read(feed, "a", at_txid=1) == [{"n": 1}]
