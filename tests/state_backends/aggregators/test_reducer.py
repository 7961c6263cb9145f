"""A user's own aggregator, the example of docs/aggregators.md, folded in Python on every backend."""

from itertools import permutations

import pyarrow as pa
import pytest

from tests.state_backends.aggregators.docs_example import documented_reducer
from tidegauge.state_backends import Catalog, Count, OpaqueMap, PostgresBackingMap, StateReader, StateSpec
from tidegauge.state_backends.maps.updaters import Fold

ORD, LAX, SFO, BOS = ["1", "ORD"], ["2", "LAX"], ["3", "SFO"], ["4", "BOS é🙂"]


@pytest.fixture
def recent():
    with documented_reducer() as recent:
        yield recent


@pytest.fixture
def spec(recent):
    return StateSpec(
        "airports", key={"origin": "text"}, measures={"n": Count(), "last": recent("dest", by="time", n=2)}
    )


def test_it_takes_the_generic_path(spec):
    assert not spec.folds_in_sql
    assert not spec.folds_in_lua
    assert spec.value_columns == {"n": "bigint", "last": "jsonb"}


def test_a_batch_is_bounded_from_the_first_one_on(spec):
    assert spec.fold(None, {"n": 3, "last": [ORD, LAX, SFO]}) == {"n": 3, "last": [SFO, LAX]}


def test_it_folds_in_any_order_and_nothing_counts_as_empty(spec):
    for a, b, c in permutations([[ORD, LAX], [SFO], None]):
        parts = [{"n": 1, "last": part} for part in (a, b, c)]
        assert spec.fold(spec.fold(parts[0], parts[1]), parts[2])["last"] == [SFO, LAX]
        assert spec.fold(parts[0], spec.fold(parts[1], parts[2]))["last"] == [SFO, LAX]


def test_a_replay_starts_from_the_previous_version(new_backing, spec):
    counts = OpaqueMap(new_backing(spec))
    key = ("JFK",)
    for txid, n, pairs in [(1, 1, [ORD]), (2, 2, [LAX, BOS]), (2, 1, [SFO])]:
        counts.begin_commit(txid)
        counts.multi_update([key], [Fold(spec, {"n": n, "last": pairs})])
        counts.commit(txid)

    assert counts.multi_get([key]) == [{"n": 2, "last": [SFO, ORD]}]


def test_the_merge_on_postgresql_folds_it_and_a_reader_sees_it(conn, new_feed, fresh, spec):
    feed = new_feed(spec := fresh(spec))
    for batch_id, pairs in enumerate([[ORD], [BOS], None]):
        batch = feed.begin(batch_id)
        rows = pa.RecordBatch.from_pylist(
            [{"origin": "JFK", "n": 1, "last": pairs}],
            schema=pa.schema([("origin", pa.string()), ("n", pa.int64()), ("last", pa.list_(pa.list_(pa.string())))]),
        )
        with conn.transaction():
            PostgresBackingMap(conn, spec).merge([rows], batch.txid, batch.batch_time)
        feed.ledger.commit(batch)

    [answer] = StateReader(conn, Catalog(conn).get(spec.name)).multi_get([("JFK",)]).parsed()

    assert answer["value"] == {"n": 3, "last": [BOS, ORD]}


def test_the_catalog_finds_it_again_by_its_name(conn, new_feed, fresh, spec):
    feed = new_feed(spec := fresh(spec))

    again = Catalog(feed.conn).get(spec.name).measures["last"]

    assert (again.arguments(), again.partial()) == (spec.measures["last"].arguments(), spec.measures["last"].partial())
