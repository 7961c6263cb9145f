"""The ledger's row is found at once, however many dead versions of it a held snapshot keeps."""

import psycopg

from tidegauge.state_backends import Count, StateReader, StateSpec
from tidegauge.state_backends.backends.postgres import reader as postgres_reader

WORDS = StateSpec("words", key={"word": "text"}, measures={"n": Count()})
BATCHES = 200


def pages_read(conn, statement, parameters):
    """Return how many pages a statement finds in memory or reads."""
    text = conn.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement, parameters).fetchone()[0]
    plan = text[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def test_a_lookup_of_the_ledger_reads_no_more_pages_while_a_snapshot_is_held(conn, installed_url, new_feed, fresh):
    feed = new_feed(fresh(WORDS))
    name = feed.specs[0].name
    feed.run([{"word": "dog", "n": 1}])
    before = pages_read(conn, postgres_reader.COMMITTED, [name])
    with psycopg.connect(installed_url) as snapshot:
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        snapshot.execute("SELECT FROM tidegauge.state")

        for _ in range(BATCHES):
            feed.ledger.commit(feed.begin(feed.next_batch_id()))

        assert pages_read(conn, postgres_reader.COMMITTED, [name]) <= before + 3
        assert StateReader(conn, feed.specs[0]).multi_get([("dog",)]).txid == BATCHES + 1
