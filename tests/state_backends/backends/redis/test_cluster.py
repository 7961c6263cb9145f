"""States in a real Redis Cluster of three masters with replicas, and behind a Sentinel."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from tests.state_backends.backends.own_redis import OwnCluster, follow, servers, wait_until
from tests.state_backends.feed import views
from tests.state_backends.store_feed import StoreFeed
from tidegauge.state_backends import Count, RedisBackingMap, StateSpec
from tidegauge.state_backends.errors import BackendUnavailable

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, backend="redis")
MANY = views(*((f"{number:04}", 1) for number in range(2_500)))


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    with servers(tmp_path_factory.mktemp("servers")) as start:
        yield start


@pytest.fixture(scope="module")
def cluster(start):
    return OwnCluster(start)


@pytest.fixture
def new_feed(conn, fresh, monkeypatch):
    def new_feed(url, wait="", **options):
        monkeypatch.setenv("TIDEGAUGE_REDIS_URL", url)
        monkeypatch.setenv("TIDEGAUGE_REDIS_WAIT", wait)
        return StoreFeed(conn, fresh(VIEWS if not options else StateSpec("views", **options)))

    return new_feed


def run_in_spite_of(feed, rows):
    """Run a batch as a driver does whose Redis fails over: it starts again until it succeeds."""

    def succeeds():
        with suppress(BackendUnavailable):
            feed.restart()
            feed.run(rows)
            return True
        return False

    wait_until(succeeds)


class TestCluster:
    def test_states_are_fed_read_and_reverted_each_on_one_node(self, cluster, new_feed):
        feeds = [new_feed(cluster.url) for _ in range(8)]
        for feed in feeds:
            feed.run(MANY)
            feed.run(views(("0001", 5), ("new", 1)))
            batch, _ = feed.begin()
            feed.write(batch, views(("0001", 100), ("newer", 1)))
            feed.restart()
            feed.run(views(("0001", 1)))

        assert [feed.read("0000", "0001", "new", "newer") for feed in feeds] == [[1, 7, 1, "missing"]] * len(feeds)
        nodes = {feed.spec.name: cluster.master_of(f"{{{feed.spec.name}}}") for feed in feeds}
        assert len(set(nodes.values())) > 1
        for name, node in nodes.items():
            assert sum(1 for _ in node.client.scan_iter(f"tidegauge:{{{name}}}:row:*", count=5_000)) == 2_501

    def test_pages_sizes_and_maintenance_work_there(self, cluster, new_feed):
        feed = new_feed(cluster.url, key={"page": "text"}, measures={"n": Count()}, backend="redis")
        feed.run(MANY)
        backend, rows = feed.backend, feed.backend.guarded(feed.spec)

        count, size = backend.sizes(feed.conn, feed.spec)
        upkeep = backend.upkeep(feed.spec)
        freed = sum(
            upkeep.expire(page, 1, datetime.now(UTC) + timedelta(days=1), timedelta(seconds=1))
            for page in upkeep.pages()
        )

        assert (count, size > 100_000, freed) == (2_500, True, 2_500)
        assert rows.status().missing_rows == 0
        rows.begin_rebuild()
        assert list(rows.scan()) == []

    def test_after_a_failover_nothing_is_lost_that_replicas_had_acknowledged(self, cluster, new_feed, monkeypatch):
        feed = new_feed(cluster.url, wait="1:10000")
        for _ in range(2):
            feed.run(views(("a", 1), ("b", 1)))
        batch, _ = feed.begin()
        feed.write(batch, views(("a", 100), ("gone", 1)))

        cluster.kill_master_of(f"{{{feed.spec.name}}}")
        # The promoted one has no replica.
        monkeypatch.setenv("TIDEGAUGE_REDIS_WAIT", "")
        run_in_spite_of(feed, views(("a", 1), ("b", 1)))

        assert feed.read("a", "b", "gone") == [3, 3, "missing"]


class TestSentinel:
    def test_a_pipeline_goes_on_at_the_master_that_sentinels_promote(self, start, new_feed, monkeypatch):
        master, replica = start(appendonly="yes"), start(appendonly="yes")
        follow(replica, master)
        sentinel = start(sentinel=True)
        sentinel.client.execute_command("SENTINEL MONITOR", "states", "127.0.0.1", master.port, 1)
        for name, value in {"down-after-milliseconds": 1_000, "failover-timeout": 3_000}.items():
            sentinel.client.execute_command("SENTINEL SET", "states", name, value)
        wait_until(lambda: sentinel.client.sentinel_slaves("states"))
        feed = new_feed(f"redis+sentinel://127.0.0.1:{sentinel.port}/states/0", wait="1:10000")
        for _ in range(2):
            feed.run(views(("a", 1), ("b", 1)))

        master.kill()
        wait_until(lambda: replica.client.info("replication")["role"] == "master")
        monkeypatch.setenv("TIDEGAUGE_REDIS_WAIT", "")
        run_in_spite_of(feed, views(("a", 1), ("b", 1)))

        assert feed.read("a", "b") == [3, 3]
        assert RedisBackingMap(replica.client, feed.spec).status().published == 3
