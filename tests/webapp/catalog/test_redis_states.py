"""Expiry, compaction and rebuilding of states in Redis, through the services that command, schedule and admin call."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.webapp.redis_views import HOUR, redis_views, unavailable_redis
from tidegauge.state_backends import Catalog
from tidegauge.state_backends.backends.redis.client import client
from tidegauge.state_backends.backends.redis.pages import PAGE_ROWS
from tidegauge.state_backends.backends.redis.upkeep import RedisUpkeep
from tidegauge.state_backends.maintenance import compact, expire, sizes
from tidegauge.state_backends.reader.scanned import Published
from tidegauge.webapp.catalog import queries, readers

NEVER = timedelta(days=10_000)


@pytest.fixture
def views(connection):
    with redis_views(connection, ttl=HOUR) as views:
        yield views


def freed(steps):
    return max((step.removed for step in steps), default=0)


def expired(views):
    return freed(expire(views.conn, views.spec))


def compacted(views, keep=timedelta()):
    removed = {}
    for step in compact(views.conn, views.spec, keep=keep):
        removed[step.step] = step.removed
        if step.step == "ledger rows":
            break  # dead space is vacuumed outside of transactions alone, and a test is one
    return removed


def test_expired_rows_go_and_others_stay(views):
    views.commit({"old": 1, "kept": 1})
    views.age(timedelta(minutes=40))
    views.commit({"kept": 1, "new": 1})
    views.age(timedelta(minutes=30))

    assert expired(views) == 1
    assert views.rows() == {"kept": 2, "new": 1}
    assert expired(views) == 0


@pytest.mark.parametrize("kind", ["transactional", "non_transactional"])
def test_rows_of_kinds_that_keep_one_version_go_too(connection, kind):
    with redis_views(connection, ttl=HOUR, kind=kind) as views:
        views.commit({"old": 1})
        views.age(timedelta(minutes=61))

        assert expired(views) == 1
        assert views.rows() == {}


def test_without_a_ttl_nothing_ever_goes(connection):
    with redis_views(connection) as views:
        views.commit({"old": 1})
        views.age(NEVER)

        assert expired(views) == 0
        assert views.rows() == {"old": 1}


def test_what_an_open_batch_wrote_stays_and_can_be_taken_back(views):
    views.commit({"home": 5, "old": 1})
    views.age(2 * HOUR)
    views.write(views.begin(), {"home": 2})

    assert expired(views) == 1
    assert views.rows() == {"home": 2}
    views.begin()
    assert views.rows() == {"home": 5}


def test_while_a_batch_is_open_its_clock_decides_not_the_walls(views):
    views.commit({"home": 5})
    views.age(timedelta(minutes=50))
    views.begin()
    for page in client(60.0).scan_iter(f"tidegauge:{{{views.name}}}:row:*"):
        client(60.0).hincrby(page, "updated_at", -(timedelta(minutes=20) // timedelta(microseconds=1)))
    views.conn.execute(
        "UPDATE tidegauge.pipeline SET open_time = open_time - interval '40 minutes' WHERE name = %s", [views.name]
    )

    assert expired(views) == 0
    assert views.rows() == {"home": 5}


def test_a_ttl_that_is_set_while_a_batch_is_open_frees_nothing_that_it_builds_upon(views):
    views.commit({"home": 5})
    views.age(timedelta(minutes=30))
    batch = views.begin()
    Catalog(views.conn).edit(views.name, ttl=timedelta(minutes=1))
    meanwhile = expired(views)

    views.ledger.commit(batch)

    assert (meanwhile, expired(views)) == (0, 1)


def test_a_row_that_is_written_while_a_page_is_on_its_way_stays(views):
    """The page was read before; the script looks at the row again where it would go."""
    views.commit({"home": 1})
    views.age(2 * HOUR)
    upkeep = RedisUpkeep(client(60.0), views.spec)
    (page,) = upkeep.pages()
    batch = views.commit({"home": 1})

    assert upkeep.expire(page, batch.txid, batch.batch_time, HOUR) == 0
    assert views.rows() == {"home": 1}


def test_a_tombstone_goes_once_the_batch_that_left_it_cannot_come_again(views):
    views.commit({"home": 1, "gone": 1})
    views.commit({"home": 1}, gone=("gone",))

    assert compacted(views)["tombstones"] == 0
    assert views.rows() == {"home": 2, "gone": None}
    views.commit({"home": 1})
    assert compacted(views)["tombstones"] == 1
    assert views.rows() == {"home": 3}


def test_a_walk_goes_page_by_page_and_may_be_stopped(views):
    views.commit({f"page {n:04}": 1 for n in range(2 * PAGE_ROWS + 1)})
    views.age(2 * HOUR)
    steps = expire(views.conn, views.spec)

    first = next(steps)
    steps.close()

    assert (first.seen, first.removed) == (PAGE_ROWS, PAGE_ROWS)
    assert len(views.rows()) == PAGE_ROWS + 1
    assert [step.seen for step in expire(views.conn, views.spec)] == [
        PAGE_ROWS,
        PAGE_ROWS + 1,
    ]


def test_the_changelog_of_a_state_in_redis_is_compacted_where_it_is(connection):
    with redis_views(connection, changelog=True) as views:
        for _ in range(3):
            views.commit({"home": 1})
        views.age(HOUR)

        assert compacted(views, keep=timedelta(minutes=1))["changelog entries"] == 1
        figures = sizes(connection, views.spec)
        assert (figures["state_rows"], figures["changelog_rows"]) == (1, 2)
        assert figures["state_bytes"] > 100


def test_the_command_expires_a_state_in_redis(lasting):
    with redis_views(lasting.conn, ttl=HOUR) as views:
        views.commit({"old": 1, "older": 1})
        views.age(2 * HOUR)
        out = StringIO()

        call_command("expire", views.name, "--json", stdout=out, stderr=StringIO())

        assert views.rows() == {}
        assert '"removed": 2' in out.getvalue()


def test_the_command_compacts_a_state_in_redis_whole(lasting):
    with redis_views(lasting.conn, changelog=True) as views:
        views.commit({"home": 1, "gone": 1})
        views.commit({"home": 1}, gone=("gone",))
        views.commit({"home": 1})

        call_command("compact", views.name, stdout=StringIO(), stderr=StringIO())

        assert views.rows() == {"home": 3}


def test_a_state_that_redis_lost_is_rebuilt_from_its_changelog(lasting):
    with redis_views(lasting.conn, changelog=True) as views:
        views.commit({"home": 1, "cart": 2})
        views.commit({"home": 1})
        views.ledger.release()
        before, rows = views.backing.multi_get_committed([("home",), ("cart",)])
        RedisUpkeep(client(60.0), views.spec).clear()
        out = StringIO()

        with pytest.raises(CommandError, match="has no table, it lives in redis; rebuild it there"):
            call_command("rebuild", views.name, "--to", "postgres", stdout=out, stderr=StringIO())
        call_command("rebuild", views.name, stdout=out, stderr=StringIO())

        assert out.getvalue() == f"{views.name}: 2 keys rebuilt in redis\n"
        # Of a rebuilt state it is not known which attempt the batch was.
        assert views.backing.multi_get_committed([("home",), ("cart",)]) == (Published(before.txid), rows)


def test_the_page_of_a_state_in_redis_shows_its_entries(views, reader):
    views.commit({f"page {n:02}": n + 1 for n in range(40)})

    page = reader.get(f"/states/{views.name}/", {"order": "-views", "q": "PAGE 1"}).content.decode()
    leading, _, entries = page.partition('id="entries"')
    schema = reader.get(f"/states/{views.name}/schema").content.decode()

    assert "page 39" in leading
    assert "page 39" not in entries
    assert entries.index("page 19") < entries.index("page 18")
    assert "<dt>Stored in</dt><dd>redis</dd>" in schema
    assert "tidegauge_live" not in page + schema


def test_the_page_of_a_global_state_in_redis_shows_its_value(connection, reader):
    with redis_views(connection, key={}) as views:
        views.commit({(): 1_234})

        assert "1,234" in reader.get(f"/states/{views.name}/").content.decode()


def test_a_page_says_where_it_could_not_look_at_every_key(views, reader, monkeypatch):
    monkeypatch.setattr("tidegauge.state_backends.reader.scanning.MOST_SCANNED", 5)
    views.commit({f"page {n:02}": n + 1 for n in range(40)})

    page = reader.get(f"/states/{views.name}/", {"order": "-views"}).content.decode()

    assert "Too many keys to read them all from redis" in page


def test_the_overview_lists_a_state_in_redis(views, reader):
    views.commit({"home": 1, "cart": 1})

    assert views.name in reader.get("/").content.decode()
    assert queries.state(views.name).keys_estimate == 2


def test_the_reader_of_a_state_is_made_for_where_it_lives(views):
    assert type(readers.reader(views.conn, views.name)).__name__ == "ScanningReader"
    assert type(readers.reader(views.conn, views.total.name)).__name__ == "StateReader"
    assert Catalog(views.conn).get(views.name).backend == "redis"


def test_while_redis_is_unavailable_the_page_says_so_and_asks_again(views, reader, monkeypatch):
    views.commit({"home": 1})
    with unavailable_redis(monkeypatch):
        page = reader.get(f"/states/{views.name}/").content.decode()
        again = reader.get(f"/states/{views.name}/", {"v": ""}, headers={"HX-Request": "true"})

    assert "Values unavailable: redis does not respond" in page
    assert again.status_code == 200
