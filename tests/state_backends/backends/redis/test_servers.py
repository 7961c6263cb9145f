"""What may happen to a Redis in production, on real servers: lost, promoted, full, evicting, killed in a script."""

import threading
from dataclasses import replace

import pytest
import redis

from tests.state_backends.backends.own_redis import follow, servers, wait_until
from tests.state_backends.feed import views
from tests.state_backends.store_feed import StoreFeed
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.backends.redis import scripts
from tidegauge.state_backends.errors import BackendSetupError, BackendUnavailable, FindingError, LostBatchesError

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, backend="redis")
MANY = views(*((f"{number:04}", 1) for number in range(2_500)))
MEGABYTE = 1_000_000


@pytest.fixture
def start(tmp_path):
    with servers(tmp_path) as start:
        yield start


@pytest.fixture
def new_feed(conn, fresh, monkeypatch):
    def new_feed(url, spec=VIEWS):
        monkeypatch.setenv("TIDEGAUGE_REDIS_URL", url)
        return StoreFeed(conn, fresh(spec))

    return new_feed


@pytest.fixture
def durable(start):
    return start(appendonly="yes", appendfsync="always")


@pytest.fixture
def feed(durable, new_feed):
    feed = new_feed(durable.url)
    feed.run(views(("a", 1), ("b", 1)))
    return feed


class TestFiles:
    def test_a_killed_server_that_writes_its_file_before_it_answers_has_all_that_it_acknowledged(self, feed, durable):
        batch, session = feed.begin()
        keys = feed.write(batch, MANY)

        durable.kill()
        durable.start()
        session.check(keys)
        feed.commit(batch, keys)
        session.publish(keys)

        feed.restart()
        assert feed.read("a", "0000", "2499") == [1, 1, 1]

    def test_of_one_that_writes_its_file_every_second_nothing_is_lost_unseen(self, start, new_feed):
        server = start(appendonly="yes", appendfsync="everysec")
        feed = new_feed(server.url)
        for _ in range(3):
            feed.run(MANY)
        server.kill()
        server.start()

        try:
            feed.restart()
            feed.run(MANY)
        except LostBatchesError:
            assert feed.finding()
        else:
            assert feed.read("0000", "2499") == [4, 4]

    def test_a_server_without_a_file_is_warned_of_and_refused_once_it_has_lost_the_state(self, start, new_feed):
        server = start(appendonly="no")
        feed = new_feed(server.url)
        feed.run(views(("a", 1)))
        (warning,) = feed.conn.execute(
            "SELECT warning FROM tidegauge.state WHERE name = %s", [feed.spec.name]
        ).fetchone()

        server.kill()
        server.start()

        assert warning.startswith("Redis has no append-only file (appendonly no)")
        with pytest.raises(LostBatchesError, match="batch 1 was committed, and Redis is at batch 0"):
            feed.restart()


class TestReplica:
    def test_a_promoted_replica_without_the_merges_of_a_committed_batch_is_refused(
        self, start, durable, new_feed, monkeypatch
    ):
        replica = start()
        follow(replica, durable)
        feed = new_feed(durable.url)
        feed.run(views(("a", 1), ("b", 1)))
        batch, session = feed.begin()
        durable.client.set("last", 1)
        assert durable.client.wait(1, 10_000) == 1
        replica.client.replicaof("NO", "ONE")
        keys = feed.write(batch, views(("a", 100)))
        session.check(keys)
        feed.commit(batch, keys)
        durable.kill()
        monkeypatch.setenv("TIDEGAUGE_REDIS_URL", replica.url)

        with pytest.raises(LostBatchesError, match="batch 2 wrote 1 keys, and Redis has 0 of them"):
            feed.restart()
        assert "batch 2 wrote 1 keys" in feed.finding()

    def test_with_wait_a_batch_is_committed_only_once_the_replica_has_it(self, start, durable, new_feed, monkeypatch):
        monkeypatch.setenv("TIDEGAUGE_REDIS_WAIT", "1:10000")
        replica = start()
        follow(replica, durable)
        feed = new_feed(durable.url)
        for _ in range(3):
            feed.run(views(("a", 1), ("b", 1)))
        durable.kill()
        replica.client.replicaof("NO", "ONE")
        monkeypatch.setenv("TIDEGAUGE_REDIS_URL", replica.url)

        feed.restart()

        assert feed.read("a", "b") == [3, 3]

    def test_with_wait_a_batch_that_too_few_replicas_have_is_not_committed(self, feed, monkeypatch):
        monkeypatch.setenv("TIDEGAUGE_REDIS_WAIT", "1:50")
        batch, session = feed.begin()
        keys = feed.write(batch, views(("a", 1)))

        with pytest.raises(BackendUnavailable) as caught:
            session.check(keys)

        assert str(caught.value) == (
            "redis: 0 of 1 replicas have the batch after 50 ms; check the replicas, or change TIDEGAUGE_REDIS_WAIT"
        )
        assert caught.value.retryable

    @pytest.mark.parametrize("setting", ["1", "one:5", "1:", "1:0"])
    def test_a_wrong_setting_is_refused_by_name(self, feed, monkeypatch, setting):
        monkeypatch.setenv("TIDEGAUGE_REDIS_WAIT", setting)
        batch, session = feed.begin()
        keys = feed.write(batch, views(("a", 1)))

        with pytest.raises(BackendSetupError, match=r"TIDEGAUGE_REDIS_WAIT is '.*'; write it as replicas:milliseconds"):
            session.check(keys)


def evicted_keys(client):
    """Let the server have less memory than it uses, and write; return how many keys it has evicted."""
    # Each time below what it uses now, because buffers that it frees count as well.
    client.config_set("maxmemory", client.info("memory")["used_memory"] - MEGABYTE // 10)
    client.set("other", "x")
    return client.info("stats")["evicted_keys"]


class TestMemory:
    @pytest.mark.parametrize("changelog", [False, True], ids=["folded in Lua", "put"])
    def test_a_batch_that_meets_a_full_server_is_reverted_there_and_counted_once_there_is_room(
        self, new_feed, durable, changelog
    ):
        feed = new_feed(durable.url, replace(VIEWS, changelog=changelog))
        feed.run(views(("a", 1), ("b", 1)))
        batch, _ = feed.begin()
        feed.write(batch, views(("a", 100), ("half", 100)))
        durable.client.config_set("maxmemory", MEGABYTE // 2)

        with pytest.raises(BackendUnavailable, match="redis: out of memory"):
            feed.write(batch, MANY)
        feed.restart()
        feed.begin()
        rows = {key[0]: row.value["n"] for key, row in feed.backend.guarded(feed.spec).scan()}
        durable.client.config_set("maxmemory", 0)
        feed.restart()
        feed.run(views(("a", 1)))

        assert rows == {"a": 1, "b": 1}
        assert feed.read("a", "b", "half", "0000") == [2, 1, "missing", "missing"]

    def test_a_batch_that_was_written_is_published_though_the_server_is_full(self, feed, durable):
        batch, session = feed.begin()
        keys = feed.write(batch, views(("a", 1)))
        durable.client.config_set("maxmemory", MEGABYTE // 2)

        session.check(keys)
        feed.commit(batch, keys)
        session.publish(keys)

        assert feed.read("a") == [2]

    def test_a_server_that_may_evict_rows_is_refused_at_the_start_and_at_each_batch(self, feed, durable):
        durable.client.config_set("maxmemory", 100 * MEGABYTE)
        durable.client.config_set("maxmemory-policy", "allkeys-lru")

        for act in (feed.begin, feed.restart):
            with pytest.raises(BackendSetupError) as caught:
                act()
        assert str(caught.value) == (
            f"state {feed.spec.name!r}: its Redis evicts keys when it is full (maxmemory-policy 'allkeys-lru'), so "
            "rows would be lost; set maxmemory-policy noeviction there, or give states their own Redis with "
            "TIDEGAUGE_REDIS_URL"
        )

    @pytest.mark.parametrize("policy", ["noeviction", "volatile-lru"])
    def test_a_server_that_keeps_keys_without_an_expiry_is_not(self, feed, durable, policy):
        durable.client.config_set("maxmemory", 100 * MEGABYTE)
        durable.client.config_set("maxmemory-policy", policy)
        before = feed.read("a")

        feed.restart()
        feed.run(views(("a", 1)))

        assert feed.read("a") == [(before[0] or 0) + 1]

    @pytest.mark.parametrize("restarted", [False, True])
    def test_rows_that_were_evicted_are_found_after_the_policy_was_corrected(self, feed, durable, restarted):
        feed.run(MANY)
        durable.client.config_set("maxmemory-policy", "allkeys-random")
        wait_until(lambda: evicted_keys(durable.client) > 20)
        durable.client.config_set("maxmemory", 0)
        if restarted:
            durable.kill()
            durable.start()

        with pytest.raises(FindingError):
            feed.restart()

    def test_what_others_had_evicted_is_no_finding(self, feed, durable):
        durable.client.config_set("maxmemory-policy", "volatile-random")
        durable.client.config_set("maxmemory", durable.client.info("memory")["used_memory"] + MEGABYTE)
        wait_until(
            lambda: (
                [durable.client.set(f"cache:{n}", "x" * 10_000, ex=1_000) for n in range(200)]
                and durable.client.info("stats")["evicted_keys"]
            )
        )

        feed.restart()

        assert feed.read("a") == [1]


class TestScripts:
    @pytest.mark.parametrize("kind", ["opaque", "transactional", "non_transactional"])
    def test_of_a_merge_that_was_killed_in_its_middle_nothing_remains(self, start, new_feed, monkeypatch, kind):
        server = start(appendonly="yes", lua_time_limit=50)
        feed = new_feed(server.url, replace(VIEWS, kind=kind))
        feed.run(views(("a", 1), ("b", 1)))
        batch, _ = feed.begin()
        text = scripts.script_text
        stuck = lambda spec, name: text(spec, name).replace(  # noqa: E731
            "local changed = 0\n", 'redis.call("DEL", KEYS[FIRST + 1]) while true do end\nlocal changed = 0\n'
        )
        monkeypatch.setattr(scripts, "script_text", stuck)
        failures = []

        def write():
            try:
                feed.write(batch, views(("a", 100), ("b", 100), ("c", 100)))
            except BackendUnavailable as error:
                failures.append(error)

        task = threading.Thread(target=write)
        task.start()
        wait_until(lambda: "UNKILLABLE" in answer_to_kill(server))
        server.client.shutdown(nosave=True)
        server.restart()
        task.join()
        monkeypatch.setattr(scripts, "script_text", text)

        feed.restart()
        feed.run(views(("a", 10), ("c", 10)))

        assert feed.read("a", "b", "c") == [11, 1, 10]


def answer_to_kill(server):
    try:
        return str(server.client.script_kill())
    except redis.ResponseError as error:
        return str(error)
