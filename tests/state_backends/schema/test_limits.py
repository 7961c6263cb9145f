"""The largest declarations that are accepted can be stored, migrated and logged."""

from dataclasses import replace

import pytest

from tests.state_backends.spec.test_state_spec import Wide
from tidegauge.state_backends import Catalog, Changelog, Count, PostgresBackingMap, StateSpec, Versioned
from tidegauge.state_backends.aggregators import AGGREGATORS
from tidegauge.state_backends.spec.state_spec import MAX_COLUMN, MAX_KEY_COLUMNS, MAX_MEASURES, MAX_PARTITIONS


def register(feed, spec):
    Catalog(feed.conn).register_states(feed.pipeline, [spec], {spec.name: ""})


def stored(spec):
    return dict.fromkeys(spec.value_columns, 1)


@pytest.fixture(scope="module")
def installed_url(own_url):
    """A database of its own: its states have an aggregator that other tests do not know."""
    return own_url


@pytest.fixture(autouse=True)
def wide_is_known(monkeypatch):
    monkeypatch.setitem(AGGREGATORS, "wide", Wide)


MOST_KEYS = {f"k{number}": "text" for number in range(MAX_KEY_COLUMNS - 1)}


@pytest.mark.parametrize(
    "spec",
    [
        StateSpec("keys", key=MOST_KEYS | {"last": "text"}, measures={"n": Count()}, partitions=2),
        StateSpec("logged_keys", key=MOST_KEYS, measures={"n": Count()}, changelog=True),
        StateSpec(
            "measures", key={"k": "text"}, measures={f"m{n}": Count() for n in range(MAX_MEASURES)}, changelog=True
        ),
        StateSpec("wide", key={"k": "text"}, measures={"wide": Wide(493)}, changelog=True),
        StateSpec("wide_once", key={"k": "text"}, measures={"wide": Wide(990)}, kind="transactional", changelog=True),
        StateSpec("l" * 38, key={"k" * 40: "text"}, measures={"m" * 40: Count()}, changelog=True, partitions=2),
    ],
    ids=lambda spec: spec.name,
)
def test_the_largest_row_that_is_accepted_can_be_written_logged_and_migrated(spec, new_feed, conn):
    feed = new_feed(spec)
    key = ("x" * (2048 // len(spec.key)),) * len(spec.key)
    rows = [Versioned(stored(spec), 2, stored(spec), 1)]
    if spec.kind != "opaque":
        rows = [Versioned(stored(spec), 2)]

    PostgresBackingMap(conn, spec).multi_put([key], rows)
    if spec.changelog:
        Changelog(conn, spec).append_rows([key], rows)
    register(feed, larger := replace(spec, partitions=spec.partitions + 1))

    assert PostgresBackingMap(conn, larger).multi_get([key])[0].value == stored(spec)
    assert conn.execute(f"SELECT count(*) FROM tidegauge_live.{spec.name}").fetchone() is not None


def test_the_most_partitions_can_be_created_and_migrated(new_feed, conn):
    feed = new_feed(spec := StateSpec("parts", key={"k": "text"}, measures={"n": Count()}, partitions=MAX_PARTITIONS))

    register(feed, replace(spec, partitions=MAX_PARTITIONS - 1))

    parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'tidegauge_state.parts'::regclass"
    assert conn.execute(parts).fetchone() == (MAX_PARTITIONS - 1,)


def test_the_longest_column_is_as_long_as_its_previous_version_allows():
    assert len("prev_" + "x" * MAX_COLUMN) == 63
