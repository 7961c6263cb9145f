"""Reads from real streaming standbys: which batch they show, and which server is asked when one cannot answer."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

import orjson
import psutil
import psycopg
import pytest
from django.contrib.auth import get_user_model

from tests.harness.waiting import eventually
from tests.soak.postgres_pair import Server
from tests.webapp.redis_views import redis_views
from tests.webapp.replicas.conftest import Cluster
from tidegauge.state_backends.ledger.epochs import new_epoch
from tidegauge.webapp.api import lookups
from tidegauge.webapp.catalog import readers, replica, replicas
from tidegauge.webapp.core import metrics

pytestmark = pytest.mark.processes

STATE = "/states/flights_by_carrier"
KEY = ["EWR", "C00"]
FIRST_KEY = quote(orjson.dumps(KEY).decode())


def lookup(api, **more):
    return api.ask("POST", f"{STATE}/lookup", {"keys": [KEY], "measures": ["flights"], **more})


def by_lookup(api):
    found = lookup(api).json()
    return found["txid"], found["results"][0]["value"]["flights"]


def by_queries(api):
    found = api.ask("POST", "/lookup", {"lookups": [{"state": "flights_by_carrier", "keys": [KEY]}]}).json()
    return found["txid"], found["answers"][0]["results"][0]["value"]["flights"]


def by_entries(api):
    found = api.ask("GET", f"{STATE}/entries?limit=1").json()
    return found["txid"], found["entries"][0]["value"]["flights"]


def by_history(api):
    found = api.ask("GET", f"{STATE}/history?key={FIRST_KEY}&limit=1").json()
    return found["txid"], found["versions"][0]["value"]["flights"]


def by_export(api):
    found = api.ask("GET", f"{STATE}/export?format=ndjson&limit=1")
    line = orjson.loads(b"".join(found.streaming_content))
    found.close()
    return int(found.headers["Tidegauge-Txid"]), line["flights"]


READS = [by_lookup, by_queries, by_entries, by_history, by_export]


@contextmanager
def replay_paused(*standbys: Server) -> Iterator[None]:
    for standby in standbys:
        standby.query("SELECT pg_wal_replay_pause()")
        eventually(lambda standby=standby: standby.query("SELECT pg_get_wal_replay_pause_state()") == [("paused",)])
    try:
        yield
    finally:
        for standby in standbys:
            standby.query("SELECT pg_wal_replay_resume()")


@pytest.fixture
def commit(cluster: Cluster) -> Callable[[], tuple[int, int]]:
    """Commits a batch of one flight; returns its txid, and how many flights there are then."""

    def committed() -> tuple[int, int]:
        batch = cluster.flights.commit({tuple(KEY): 1})
        # The first batch counted 100.
        return batch.txid, 99 + batch.txid

    return committed


def answered_by(name: str) -> float:
    return metrics.REPLICA_READS.labels(name)._value.get()


@pytest.mark.parametrize("ask", READS)
def test_an_answer_has_the_batch_and_the_values_of_the_replica(ask, cluster, reading, api, commit):
    standby = cluster.standbys[0]
    before = commit()
    cluster.caught_up(standby)
    found = reading(standby)

    with replay_paused(standby):
        commit()
        name = found.replicas.all[0].name
        count = answered_by(name)
        assert ask(api) == before
        assert answered_by(name) == count + 1


def test_the_etag_is_the_same_wherever_an_answer_is_from(cluster, reading, api, commit):
    commit()
    cluster.caught_up(cluster.standbys[0])
    reading()
    of_primary = lookup(api)
    found = reading(cluster.standbys[0])
    of_replica = lookup(api)

    assert answered_by(found.replicas.all[0].name)
    assert of_replica.content == of_primary.content
    assert of_replica.headers["ETag"] == of_primary.headers["ETag"]
    again = api.ask("POST", f"{STATE}/lookup", {"keys": [KEY], "measures": ["flights"]},
                    headers={"If-None-Match": of_primary.headers["ETag"]})  # fmt: skip
    assert again.status_code == 304


def test_a_batch_that_no_replica_has_replayed_is_asked_of_the_primary_without_waiting(
    cluster, reading, api, commit, monkeypatch
):
    monkeypatch.setattr(lookups, "sleep", lambda seconds: pytest.fail("it waited"))
    reading(*cluster.standbys)

    with replay_paused(*cluster.standbys):
        txid, flights = commit()
        by_min_txid = lookup(api, min_txid=txid, wait_ms=5_000).json()
        by_at_txid = lookup(api, at_txid=txid).json()
        by_time = lookup(api, at_time=by_at_txid["batch_time"]).json()

    for found in (by_min_txid, by_at_txid, by_time):
        assert (found["txid"], found["results"][0]["value"]["flights"]) == (txid, flights)


def test_a_batch_that_one_replica_has_replayed_is_asked_of_that_one(cluster, reading, api, commit):
    behind, ahead = cluster.standbys
    found = reading(behind, ahead)

    with replay_paused(behind):
        txid, _ = commit()
        cluster.caught_up(ahead)
        name = found.replicas.all[1].name
        count = answered_by(name)
        answers = {lookup(api, min_txid=txid).json()["txid"] for _ in range(4)}

    assert answers == {txid}
    assert answered_by(name) == count + 4


def test_pages_of_one_batch_go_on_where_that_batch_is(cluster, reading, api, commit):
    reading()
    txid, _ = commit()
    first = api.ask("GET", f"{STATE}/entries?limit=2&order_by=-flights").json()
    cluster.caught_up(cluster.standbys[0])
    with replay_paused(cluster.standbys[0]):
        later, _ = commit()
        newest = api.ask("GET", f"{STATE}/entries?limit=2&order_by=-flights").json()
        reading(cluster.standbys[0])

        assert (first["txid"], newest["txid"]) == (txid, later)
        assert api.ask("GET", f"{STATE}/entries?cursor={first['next']}").json()["txid"] == txid
        assert api.ask("GET", f"{STATE}/entries?cursor={newest['next']}").json()["txid"] == later


def test_a_state_that_a_replica_does_not_know_is_asked_of_the_primary(cluster, reading, api):
    with replay_paused(cluster.standbys[0]):
        cluster.primary.query("UPDATE tidegauge.state SET name = 'fresh' WHERE name = 'totals'")
        cluster.primary.query("ALTER TABLE tidegauge_state.totals RENAME TO fresh")
        try:
            reading(cluster.standbys[0])

            assert api.ask("POST", "/states/fresh/lookup", {"keys": [[]]}).json()["state"] == "fresh"
        finally:
            cluster.primary.query("ALTER TABLE tidegauge_state.fresh RENAME TO totals")
            cluster.primary.query("UPDATE tidegauge.state SET name = 'totals' WHERE name = 'fresh'")


def test_a_replica_that_is_behind_is_left_out_until_it_has_caught_up(cluster, reading, api, commit):
    standby = cluster.standbys[0]
    cluster.caught_up(standby)
    found = reading(standby, most_lag_seconds=0.2)
    eventually(lambda: found.reasons() == [""])

    with replay_paused(standby):
        newest = commit()
        eventually(lambda: "behind, more than 0.2 s" in found.reasons()[0])
        assert by_lookup(api) == newest

    eventually(lambda: found.reasons() == [""])


def test_a_replica_that_receives_nothing_any_more_is_behind_although_it_has_replayed_all(cluster, reading, commit):
    standby = cluster.standbys[0]
    [(source,)] = standby.query("SHOW primary_conninfo")
    found = reading(standby, most_lag_seconds=0.2)
    standby.query("ALTER SYSTEM SET primary_conninfo = ''")
    standby.query("SELECT pg_reload_conf()")
    try:
        eventually(lambda: not standby.query("SELECT FROM pg_stat_wal_receiver"))
        commit()
        eventually(lambda: "behind" in found.reasons()[0])
    finally:
        quoted = source.replace("'", "''")
        standby.query(f"ALTER SYSTEM SET primary_conninfo = '{quoted}'")
        standby.query("SELECT pg_reload_conf()")
    eventually(lambda: found.reasons() == [""])


def test_a_replica_that_was_behind_before_the_first_check_is_not_used(cluster, reading, commit):
    with replay_paused(cluster.standbys[0]):
        commit()
        found = reading(cluster.standbys[0])

        assert found.reasons() == ["it has not yet replayed what the primary had at the first check"]


def test_a_lost_replica_costs_no_request_and_comes_back(cluster, reading, api, commit):
    standby = cluster.standbys[1]
    found = reading(standby)
    newest = commit()
    cluster.caught_up(standby)
    assert by_lookup(api) == newest

    standby.kill()
    try:
        assert by_lookup(api) == newest
        assert by_export(api) == newest
        assert found.replicas.usable() == []
        assert found.reasons()[0].startswith("it does not answer: ")
    finally:
        (standby.data / "postmaster.pid").unlink(missing_ok=True)
        standby.start()

    eventually(lambda: found.reasons() == [""])


def send(number: int, postmaster: psutil.Process) -> None:
    for process in [postmaster, *postmaster.children()]:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def test_a_request_does_not_wait_for_a_replica_that_falls_silent(cluster, reading, monkeypatch):
    monkeypatch.setattr(replica, "SILENT_SECONDS", 0.3)
    standby = cluster.standbys[1]
    found = reading(standby)
    postmaster = psutil.Process(standby.pid())
    check = threading.Thread(target=found.replicas.check)

    def question(conn):
        [is_standby] = conn.execute("SELECT pg_is_in_recovery()").fetchone()
        if is_standby:
            send(signal.SIGSTOP, postmaster)
            check.start()
            conn.execute("SELECT 'never answered'")
        return "the primary's"

    try:
        assert replicas.read(question) == "the primary's"
        check.join()
        assert found.replicas.all[0].standing.reason.startswith("it does not answer: ")
    finally:
        send(signal.SIGCONT, postmaster)

    eventually(lambda: found.reasons() == [""])


@pytest.fixture
def extra_standby(cluster: Cluster) -> Iterator[Server]:
    """For a test that spoils it."""
    standby = cluster.follow()
    cluster.standbys.remove(standby)
    cluster.caught_up(standby)
    yield standby
    standby.remove()


def test_a_promoted_replica_answers_nothing_from_the_promotion_on(cluster, extra_standby, reading, api, commit):
    found = reading(extra_standby)
    assert found.reasons() == [""]
    newest = commit()
    cluster.caught_up(extra_standby)
    assert by_lookup(api) == newest
    name = found.replicas.all[0].name
    count = answered_by(name)

    extra_standby.promote()
    extra_standby.query("UPDATE tidegauge.pipeline SET committed_txid = committed_txid + 1")

    assert by_lookup(api) == newest
    assert answered_by(name) == count
    assert found.replicas.all[0].standing.reason == "it was promoted"
    assert found.reasons() == [
        "it is not a standby: it was promoted, or never followed the primary, so it may hold other data"
    ]
    assert by_export(api) == newest


def test_a_query_that_a_replica_cancels_to_replay_the_log_is_asked_of_another(cluster, reading):
    standby = cluster.standbys[0]
    cluster.primary.query("CREATE TABLE public.deleted AS SELECT generate_series(1, 1000) n")
    standby.query("ALTER SYSTEM SET max_standby_streaming_delay = 0")
    standby.query("SELECT pg_reload_conf()")
    cluster.caught_up(standby)
    found = reading(standby)
    asked = []

    def question(conn):
        [is_standby] = conn.execute("SELECT pg_is_in_recovery()").fetchone()
        asked.append(is_standby)
        if not is_standby:
            return "the primary's"
        with conn.transaction():
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            conn.execute("SELECT count(*) FROM public.deleted")
            cluster.primary.query("DELETE FROM public.deleted")
            cluster.primary.query("VACUUM public.deleted")
            conn.execute("SELECT count(*), pg_sleep(60) FROM public.deleted")
        return "the replica's"

    try:
        assert replicas.read(question) == "the primary's"
        assert asked == [True, False]
        assert found.replicas.all[0].is_used
    finally:
        standby.query("ALTER SYSTEM RESET max_standby_streaming_delay")
        standby.query("SELECT pg_reload_conf()")
        cluster.primary.query("DROP TABLE public.deleted")


def test_a_query_over_the_time_limit_is_not_asked_again(cluster, reading, settings):
    settings.TIDEGAUGE_STATEMENT_TIMEOUT_MS = 50
    reading(*cluster.standbys)
    asked = []

    def question(conn):
        asked.append(conn)
        conn.execute("SELECT pg_sleep(60)")

    with pytest.raises(psycopg.errors.QueryCanceled):
        replicas.read(question)
    assert len(asked) == 1


def test_a_state_in_redis_is_asked_of_the_primary(cluster, reading, api):
    with readers.own_connection() as conn, redis_views(conn) as views:
        views.commit({"home": 4})
        for standby in cluster.standbys:
            cluster.caught_up(standby)
        found = reading(*cluster.standbys)
        counts = [answered_by(each.name) for each in found.replicas.all]

        answer = api.ask("POST", f"/states/{views.name}/lookup", {"keys": [["home"]]}).json()

        assert answer["results"][0]["value"]["views"] == 4
        assert [answered_by(each.name) for each in found.replicas.all] == counts


def test_a_standby_of_another_cluster_is_left_out(cluster, reading):
    foreign = Cluster(cluster.primary.folder.parent / "foreign")
    try:
        found = reading(foreign.follow(), foreign.primary)

        of_standby, of_primary = found.reasons()
        assert "it belongs to another cluster: its system identifier is " in of_standby
        assert of_primary.startswith("it is not a standby")
    finally:
        for server in (*foreign.standbys, foreign.primary):
            server.remove()


def test_a_replica_with_other_tables_or_another_epoch_is_left_out(cluster, reading):
    standby = cluster.standbys[0]
    cluster.caught_up(standby)
    found = reading(standby)

    with replay_paused(standby):
        cluster.primary.query("INSERT INTO tidegauge.schema_version VALUES (99, 'later', '', now())")
        assert "its tables have version" in found.reasons()[0]
        cluster.primary.query("DELETE FROM tidegauge.schema_version WHERE number = 99")
        with readers.own_connection() as conn:
            epoch = new_epoch(conn, "a test")
        assert f"the primary's has {epoch!r}" in found.reasons()[0]

    cluster.caught_up(standby)
    eventually(lambda: found.reasons() == [""])


def test_every_answer_is_of_one_batch_while_batches_are_committed(cluster, reading, api, commit):
    found = reading(*cluster.standbys)
    ended = threading.Event()

    def write():
        while not ended.is_set():
            commit()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        answers = [ask(api) for _ in range(30) for ask in READS]
    finally:
        ended.set()
        writer.join()

    assert [flights - txid for txid, flights in answers] == [99] * len(answers)
    assert len({txid for txid, _ in answers}) > 10
    assert all(each.is_used for each in found.replicas.all)


def test_replicas_are_shown(cluster, reading, client, settings):
    good, lost = cluster.standbys[0], "postgresql://tidegauge:secret@127.0.0.1:1/tidegauge"
    cluster.caught_up(good)
    found = reading(good, lost)
    name = found.replicas.all[0].name

    settings.TIDEGAUGE_METRICS_TOKEN = "token"
    assert client.get("/readyz").json()["replicas"] == {"used": 1, "left_out": 1}
    shown = client.get("/readyz", headers={"Authorization": "Bearer token"}).json()["replicas"]
    assert [(each["name"], each["used"]) for each in shown] == [(name, True), ("127.0.0.1:1", False)]
    assert "Connection refused" in shown[1]["reason"]
    text = client.get("/metrics", headers={"Authorization": "Bearer token"}).content.decode()
    assert f'tidegauge_replica_used{{replica="{name}"}} 1.0' in text
    assert 'tidegauge_replica_used{replica="127.0.0.1:1"} 0.0' in text
    assert "secret" not in text + str(shown)


def test_replicas_are_on_the_overview(cluster, reading, client):
    reading(cluster.standbys[0], "postgresql://127.0.0.1:1/tidegauge")
    client.force_login(get_user_model().objects.create_user("operator"))

    page = client.get("/").content.decode()

    assert "Read replicas" in page
    assert "127.0.0.1:1" in page
    assert "It does not answer" in page


def test_a_thread_checks_them(cluster):
    found = replicas.Replicas([cluster.standbys[0].url], 60.0)
    try:
        eventually(lambda: found.usable())
        assert [standing.reason for standing in found.standings()] == [""]
    finally:
        found.close()
