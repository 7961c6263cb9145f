"""Timers: the keys that are due are those of a plain dict, after every batch, revert and replay, and are found by an
index."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
import redis

from tests.contracts.backends import emptied
from tests.state_backends.store_feed import StoreFeed
from tidegauge.state_backends import Max, OpaqueMap, StateSpec
from tidegauge.state_backends.backends.postgres.timers import Timers
from tidegauge.state_backends.backends.redis import timers as redis_timers
from tidegauge.state_backends.spec.table import StateTable

BASKETS = StateSpec("timed", key={"user": "text"}, value="jsonb")
START = datetime(2024, 1, 1, tzinfo=UTC)
EVERYTHING = START + timedelta(days=999)


def minute(number):
    return START + timedelta(minutes=number)


@pytest.fixture(params=["postgres", "postgres_partitioned", "redis", "redis_partitioned"])
def feed(request, conn, fresh, monkeypatch):
    backend, _, partitioned = request.param.partition("_")
    # So that the timers of a bucket are on several pages.
    monkeypatch.setattr(redis_timers, "PAGE_ROWS", 1)
    spec = fresh(replace(BASKETS, backend=backend, partitions=3 if partitioned else 1))
    if backend == "redis":
        with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
            emptied(client, spec)
    feed = StoreFeed(conn, spec)
    if feed.backend.tables:
        feed.backend.tables.index_timers(conn, spec, "due")
    return feed


def write(feed, batch, values):
    """Write a batch's values, None to remove a key. Returns how many keys it wrote."""
    session = feed.backend.session(feed.conn, feed.spec, batch)
    with session.writing(), session.updating() as rows:
        counts = OpaqueMap(rows)
        counts.begin_commit(batch.txid, at=batch.batch_time)
        counts.multi_put([(user,) for user in values], list(values.values()))
        counts.commit(batch.txid)
    return len(values)


def run(feed, values, batch_id=None):
    """Run a batch. Returns the session of its driver."""
    batch, session = feed.begin(batch_id)
    session.due_keys("due", EVERYTHING, 1_000)
    feed.commit(batch, write(feed, batch, values))
    session.publish(len(values))
    return session


def due(number):
    return {"due": minute(number).isoformat()}


@pytest.mark.parametrize("seed", range(3))
def test_due_keys_are_those_of_a_dict_after_failures_and_replays(feed, seed):
    random = Random(seed)

    def drawn():
        users = random.sample("abcdefgh", random.randint(0, 5))
        return {user: random.choice([None, {"item": 1}, due(random.randint(0, 50))]) for user in users}

    before, model, batch_id, replays = {}, {}, -1, False
    for _ in range(12):
        batch_id += not replays
        base, values = before if replays else model, drawn()
        if random.random() < 0.3:
            batch, _ = feed.begin(batch_id)
            write(feed, batch, drawn())
        session = run(feed, values, batch_id)
        before, model, replays = base, base | values, random.random() < 0.3

        times = [time for time, _ in timed(model)]
        assert session.next_due("due") == min(times, default=None)
        if not replays:
            # From here on the committed batch cannot come again.
            _, session = feed.begin(batch_id + 1)
            at = minute(random.randint(0, 50))
            assert session.due_keys("due", at, 1_000) == [key for time, key in timed(model) if time <= at]
            assert session.due_keys("due", EVERYTHING, 2) == [key for _, key in timed(model)][:2]


def timed(model):
    """The keys of a dict that have a time, by time."""
    return sorted(
        (datetime.fromisoformat(value["due"]), (user,)) for user, value in model.items() if "due" in (value or {})
    )


def test_timers_of_a_table_are_read_from_the_index_and_one_on_another_field_replaces_it(conn, fresh):
    spec = fresh(BASKETS)
    feed = StoreFeed(conn, spec)
    feed.backend.tables.index_timers(conn, spec, "until")
    run_many = {f"user{number}": due(number) for number in range(2_000)}
    feed.backend.tables.index_timers(conn, spec, "due")
    feed.backend.tables.index_timers(conn, spec, "due")
    batch, _ = feed.begin()
    feed.commit(batch, write(feed, batch, run_many))
    conn.execute(f"ANALYZE tidegauge_state.{spec.name}")

    before = index_scans(conn, spec)
    found = Timers(conn, StateTable(spec), "due").due_keys(minute(1), 10)

    assert found == [("user0",), ("user1",)]
    assert index_scans(conn, spec) == before + 1


def index_scans(conn, spec):
    conn.execute("SELECT pg_stat_force_next_flush()")
    rows = conn.execute("SELECT idx_scan FROM pg_stat_all_indexes WHERE indexrelname = %s", [f"{spec.name}_due_idx"])
    return rows.fetchall()[0][0]


def test_a_time_in_a_stored_column_is_a_timer(conn, fresh):
    spec = fresh(StateSpec("timed", key={"user": "text"}, measures={"until": Max("at", type="timestamptz")}))
    feed = StoreFeed(conn, spec)
    feed.backend.tables.index_timers(conn, spec, "until")
    batch, _ = feed.begin()
    feed.commit(batch, feed.write(batch, [{"user": "ann", "until": minute(9)}, {"user": "bob", "until": minute(5)}]))
    batch, session = feed.begin()

    assert session.due_keys("until", minute(7), 10) == [("bob",)]
    assert session.next_due("until") == minute(5)


def test_a_row_that_has_expired_in_redis_is_no_timer(conn, fresh):
    spec = fresh(replace(BASKETS, backend="redis"))
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        emptied(client, spec)
    feed = StoreFeed(conn, spec)
    session = run(feed, {"ann": due(1), "bob": due(2)})
    session.next_due("due")
    session.rows.multi_remove([("ann",)])
    _, session = feed.begin()

    assert session.due_keys("due", EVERYTHING, 1) == [("bob",)]
