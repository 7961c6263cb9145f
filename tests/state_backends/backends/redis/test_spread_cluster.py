"""A spread state in a real cluster of three masters with replicas: masters die, slots move, and a reader adds it up."""

import shutil
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from redis.crc import key_slot

from tests.contracts.backends import emptied, redis_client, spread
from tests.state_backends.backends.own_redis import OwnCluster, servers, wait_until
from tests.state_backends.backends.redis.test_cluster import VIEWS, run_in_spite_of
from tests.state_backends.feed import views
from tests.state_backends.store_feed import StoreFeed
from tidegauge.state_backends import RedisBackingMap, state_reader
from tidegauge.state_backends.backends.redis.archive import RedisArchive
from tidegauge.state_backends.backends.redis.client import client as client_of_states
from tidegauge.state_backends.backends.redis.keys import Buckets
from tidegauge.state_backends.errors import BackendUnavailable, LostBatchesError

BUCKETS = 12
PAGES = [f"{number:03}" for number in range(200)]
EACH = views(*((page, 1) for page in PAGES))
WRONG = views(*((page, 100) for page in PAGES), *((f"gone {number}", 1) for number in range(50)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with servers(tmp_path_factory.mktemp("servers")) as start:
        yield OwnCluster(start)


@pytest.fixture
def feed(conn, fresh, cluster, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_REDIS_URL", cluster.url)
    monkeypatch.setenv("TIDEGAUGE_REDIS_WAIT", "1:10000")
    feed = StoreFeed(conn, fresh(spread(VIEWS, BUCKETS)))
    feed.run(EACH)
    return feed


@pytest.fixture
def summing(feed, connect):
    """Adds all pages up in a thread, without a pause; fails if a sum is not that of the batch of the answer."""

    @contextmanager
    def summing():
        reader, keys, ended = state_reader(connect(), feed.spec), [(page,) for page in PAGES], threading.Event()
        sums, errors = [], []

        def add_up():
            while not ended.is_set():
                try:
                    found = reader.combine(keys)
                    sums.append((found.txid, found.parsed()[0]["value"]["n"]))
                except BackendUnavailable:
                    time.sleep(0.05)
                except Exception as error:
                    errors.append(error)
                    return

        thread = threading.Thread(target=add_up)
        thread.start()
        try:
            yield sums
        finally:
            ended.set()
            thread.join()
        assert errors == []
        assert [(txid, total) for txid, total in sums if total != txid * len(PAGES)] == []
        assert [txid for txid, _ in sums] == sorted(txid for txid, _ in sums)

    return summing


def slots(feed):
    return [key_slot(names.guard) for names in Buckets(feed.spec).names]


def nodes_with_rows(cluster, feed):
    return {
        node.port
        for node in cluster.nodes[:3]
        if any(node.client.scan_iter(f"tidegauge:{{{feed.spec.name}.*}}:row:*", count=5_000))
    }


def reverted(feed):
    feed.run(EACH)
    written(feed)
    yield
    # Its last step names the batch's record, which is empty by then, and so is refused.
    with pytest.raises(BackendUnavailable):
        feed.begin()
    assert set(feed.read(*PAGES)) == {2}
    assert {row.txid for _, row in rows_of(feed).scan()} == {2}


def put_again(feed):
    found = dict(rows_of(feed).scan())
    yield
    rows_of(feed).multi_put(list(found), list(found.values()))
    assert dict(rows_of(feed).scan()) == found


def rebuilt(feed):
    yield
    rows_of(feed).begin_rebuild()
    assert list(rows_of(feed).scan()) == []
    guards = [client_of_states(None).hgetall(names.guard) for names in Buckets(feed.spec).names]
    assert guards == [{b"rebuilding": b"1"}] * BUCKETS


def rows_of(feed):
    return RedisBackingMap(client_of_states(None), feed.spec)


def admitted(feed):
    feed.begin()


def written(feed):
    batch, _ = feed.begin()
    feed.write(batch, WRONG)


def partly_reverted(feed):
    written(feed)
    batch = feed.ledger.begin(feed._next_batch_id(), spout="opaque")
    session = feed.backend.session(feed.conn, feed.spec, batch)
    session.admit()
    session.rows._revert(batch.txid, ((names, []) for names in Buckets(feed.spec).names))
    session.rows._revert(batch.txid, list(session.rows._written(batch.txid))[::2])


def checked(feed):
    batch, session = feed.begin()
    session.check(feed.write(batch, WRONG))


def committed(feed):
    batch, session = feed.begin()
    keys = feed.write(batch, EACH)
    session.check(keys)
    feed.commit(batch, keys)


PHASES = [admitted, written, partly_reverted, checked, committed]


class TestCluster:
    def test_it_is_on_every_node_and_read_paged_expired_and_dropped_there(self, cluster, feed):
        reader, upkeep = state_reader(feed.conn, feed.spec), feed.backend.upkeep(feed.spec)

        assert len(nodes_with_rows(cluster, feed)) == 3
        assert feed.read("000", "199", "none") == [1, 1, "missing"]
        assert [entry["key"][0] for entry in reader.page(limit=500).parsed()] == PAGES
        assert feed.backend.sizes(feed.conn, feed.spec)[0] == len(PAGES)
        later = datetime.now(UTC) + timedelta(days=1)
        assert sum(upkeep.expire(page, 1, later, timedelta(seconds=1)) for page in upkeep.pages()) == len(PAGES)
        records = list(feed.backend.archive.save(feed.spec))
        feed.backend.drop(feed.conn, feed.spec)
        feed.backend.archive.load(feed.spec, records)
        assert feed.backend.guarded(feed.spec).status().published == 1
        RedisArchive(redis_client()).load(emptied(redis_client(), feed.spec), records)
        assert RedisBackingMap(redis_client(), feed.spec).status().published == 1
        feed.backend.drop(feed.conn, feed.spec)
        assert feed.backend.guarded(feed.spec).status().is_empty

    @pytest.mark.parametrize("phase", PHASES)
    def test_a_master_that_dies_takes_nothing_with_it_whatever_it_was_at(self, cluster, feed, summing, phase):
        feed.run(EACH)
        with summing() as sums:
            phase(feed)
            master = cluster.owner(slots(feed)[PHASES.index(phase)])
            cluster.fail_over(master)
            try:
                feed_without_wait(feed)
            finally:
                cluster.revive(master)
            feed.run(EACH)

        txid = feed.copy_of_ledger()[0]
        assert set(feed.read(*PAGES)) == {txid}
        assert feed.read("gone 1") == ["missing"]
        assert sums[-1][0] >= txid - 1

    @pytest.mark.parametrize("work", [reverted, put_again, rebuilt])
    def test_a_script_in_a_slot_that_is_moving_replaces_rows_and_loses_none(self, cluster, feed, work):
        masters = cluster.masters_now()
        owners = [(slot, cluster.owner(slot)) for slot in slots(feed)]
        moves = [(slot, owner, masters[masters.index(owner) - 1]) for slot, owner in owners]
        steps = work(feed)
        next(steps)
        for move in moves:
            cluster.begin_move(*move)
        try:
            assert next(steps, "ended") == "ended"
        finally:
            for move in moves:
                cluster.end_move(*move)

    def test_slots_move_while_batches_run(self, cluster, feed, summing):
        masters = cluster.masters_now()

        def move():
            for place, slot in enumerate(slots(feed)):
                cluster.move_slot(slot, masters[(masters.index(cluster.owner(slot)) + 1 + place % 2) % 3])

        before = [cluster.owner(slot).port for slot in slots(feed)]
        mover = threading.Thread(target=move)
        with summing() as sums:
            mover.start()
            while mover.is_alive():
                run_in_spite_of(feed, EACH)
            run_in_spite_of(feed, EACH)
        mover.join()

        assert all(port != cluster.owner(slot).port for port, slot in zip(before, slots(feed), strict=True))
        assert set(feed.read(*PAGES)) == {feed.copy_of_ledger()[0]}
        assert len({txid for txid, _ in sums}) > 1

    def test_a_node_that_comes_back_with_an_older_file_is_refused_and_the_others_are_read(self, cluster, feed):
        slot = slots(feed)[0]
        master = cluster.owner(slot)
        replica = cluster.replica_of(master)
        time.sleep(1.5)  # its file is written every second
        copy = shutil.copytree(master.folder / "appendonlydir", master.folder / "older")
        for _ in range(2):
            feed.run(EACH)
        for node in (replica, master):
            node.kill()

        shutil.rmtree(master.folder / "appendonlydir")
        copy.rename(master.folder / "appendonlydir")
        for node in (master, replica):
            node.restart()
        wait_until(lambda: all(cluster._state(node)["cluster_state"] == "ok" for node in cluster.nodes))

        lost = {names.guard for names in Buckets(feed.spec).names if cluster.owner(key_slot(names.guard)) is master}
        own = {page: next(Buckets(feed.spec).chunks([(page,)], 0)).names.guard in lost for page in PAGES}
        with pytest.raises(LostBatchesError, match="batch 3 was committed, and Redis is at batch 1"):
            feed.restart()
        with pytest.raises(LostBatchesError, match="batch 3 was committed, and Redis is at batch 1"):
            feed.read(*(page for page in PAGES if own[page]))
        assert set(feed.read(*(page for page in PAGES if not own[page]))) == {3}


def feed_without_wait(feed):
    """Run a batch while one master has no replica."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGAUGE_REDIS_WAIT", "")
        run_in_spite_of(feed, EACH)
