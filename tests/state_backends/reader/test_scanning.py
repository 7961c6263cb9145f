"""ScanningReader beside StateReader: a pipeline feeds a state in a table and its twin in Redis; both answer alike."""

import uuid
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from tidegauge.state_backends import (
    Count,
    DistinctCount,
    First,
    Max,
    Mean,
    Min,
    StateSpec,
    StdDev,
    Sum,
    state_reader,
)
from tidegauge.state_backends.errors import (
    KeyShapeError,
    MovedOnError,
    NotCommittedError,
    OutOfReachError,
    SpecError,
    UnknownStateError,
)
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.maps.updaters import Fold
from tidegauge.state_backends.reader import scanning
from tidegauge.state_backends.reader.scanned import json_form

HOUR = timedelta(hours=1)
VIEWS = StateSpec(
    "scanned",
    key={"page": "text", "day": "date"},
    measures={
        "n": Count(),
        "mean": Mean("ms"),
        "spread": StdDev("ms"),
        "first": Min("at", type="timestamptz"),
        "flag": Max("flag", type="boolean"),
        "cost": Sum("cost", type="numeric"),
        "label": Max("label", type="text"),
    },
    ttl=HOUR,
)
DAY = date(2024, 2, 29)


def row(page, n, **parts):
    at = datetime(2024, 2, 29, 12, 0, n % 60, 120_000 if n % 2 else 0, tzinfo=UTC)
    stored = {
        "n": n,
        "mean_sum": 1.25 * n,
        "mean_count": n,
        "spread_count": n,
        "spread_mean": 2.0,
        "spread_m2": 0.5 * n,
        "first": at,
        "flag": n % 2 == 0,
        "cost": Decimal(n) / 4,
        "label": None,
    }
    return {"page": page, "day": DAY} | stored | parts


def filled(twins, **declared):
    feed = twins(VIEWS, **declared)
    feed.commit(row("old", 9), row("kept", 1))
    feed.wait(HOUR / 2)
    feed.commit(
        row("kept", 2, label="b"), row("gone", 1), row("a_b", 4, cost=None), row("nan", 3, mean_sum=float("nan"))
    )
    feed.wait(HOUR / 2 + timedelta(minutes=1))
    feed.commit(row("new", 7, label="a"), gone=[("gone", DAY)])
    return feed


KEYS = [(page, DAY) for page in ("kept", "old", "gone", "nowhere", "kept", "a_b", "nan", "new")]

QUESTIONS = {
    "all measures": lambda reader, **at: reader.multi_get(KEYS, **at),
    "some measures": lambda reader, **at: reader.multi_get(KEYS, ["mean", "n"], **at),
    "no keys": lambda reader, **at: reader.multi_get([], **at),
    "combined": lambda reader, **at: reader.combine(KEYS[:6], ["n", "mean", "cost", "first"], **at),
    "nothing combined": lambda reader, **at: reader.combine([("nowhere", DAY)], **at),
    "entries": lambda reader, **at: reader.page(**at),
    "by a measure": lambda reader, **at: reader.page(order_by="n", **at),
    "by a measure, falling": lambda reader, **at: reader.page(order_by="mean", descending=True, **at),
    "by one with nulls": lambda reader, **at: reader.page(order_by="cost", descending=True, **at),
    "by a text": lambda reader, **at: reader.page(order_by="label", **at),
    "searched": lambda reader, **at: reader.page(search="A_", **at),
    "searched by date": lambda reader, **at: reader.page(search="2024-02", limit=2, **at),
    "a page": lambda reader, **at: reader.page(limit=2, **at),
    "a sorted page": lambda reader, **at: reader.page(order_by="n", descending=True, limit=2, **at),
    "behind the end": lambda reader, **at: reader.page(after=["zzz", "9999-01-01"], **at),
}


def told(question, reader, **at):
    snapshot = question(reader, **at)
    return snapshot.txid, snapshot.attempt, snapshot.batch_time, snapshot.parsed(), snapshot.complete


def answers(reader, **at):
    return {name: told(question, reader, **at) for name, question in QUESTIONS.items()}


@pytest.mark.parametrize("is_open", [False, True], ids=["at rest", "beside an open batch"])
def test_both_answer_alike(twins, is_open):
    feed = filled(twins)
    if is_open:
        feed.write(feed.begin(3), [row("kept", 50), row("newest", 1)], gone=[("new", DAY)])

    in_table, in_redis = feed.readers()

    assert answers(in_redis) == answers(in_table)


def test_both_tell_the_past_alike_from_a_changelog(twins):
    feed = filled(twins, changelog=True)

    in_table, in_redis = feed.readers()

    for txid in (0, 1, 2, 3):
        assert answers(in_redis, at_txid=txid) == answers(in_table, at_txid=txid)


@pytest.mark.parametrize("kind", ["transactional", "non_transactional"])
def test_kinds_that_keep_one_version_answer_alike(twins, kind):
    feed = filled(twins, kind=kind)

    in_table, in_redis = feed.readers()

    assert in_redis.isolation == in_table.isolation == "uncommitted"
    for question in (QUESTIONS["all measures"], QUESTIONS["entries"]):
        assert told(question, in_redis) == told(question, in_table)


def test_a_state_of_json_values_answers_alike(twins):
    spec = StateSpec("baskets", key={"user": "uuid"}, value="jsonb")
    feed = twins(spec)
    ann = uuid.UUID(int=7)
    batch = feed.begin(0)
    for each in feed.specs:
        counts = MAPS[each.kind](feed.logged(each))
        counts.begin_commit(batch.txid, at=batch.batch_time)
        counts.multi_put([(ann,)], [{"items": ["é", 1.5, None], "n": 2}])
    feed.ledger.commit(batch)
    feed.rows_in_redis.publish(1)

    in_table, in_redis = feed.readers()

    for ask in (lambda reader: reader.multi_get([(ann,), (uuid.UUID(int=8),)]), lambda reader: reader.page()):
        assert told(ask, in_redis) == told(ask, in_table)
    with pytest.raises(SpecError, match="holds JSON values, which cannot be folded"):
        in_redis.combine([(ann,)])


def test_sketches_are_finished_as_the_table_s_are(twins):
    feed = twins(
        StateSpec("people", measures={"n": Count(), "first": First("name", by="at"), "who": DistinctCount("id")})
    )
    batch = feed.begin(0)
    for each in feed.specs:
        counts = MAPS[each.kind](feed.logged(each))
        counts.begin_commit(batch.txid, at=batch.batch_time)
        counts.multi_update([()], [Fold(each, {"n": 1})])
    feed.ledger.commit(batch)
    feed.rows_in_redis.publish(1)

    in_table, in_redis = feed.readers()

    assert told(lambda reader: reader.multi_get([()]), in_redis) == told(
        lambda reader: reader.multi_get([()]), in_table
    )


def test_what_a_reader_may_not_ask_is_refused_alike(twins):
    feed = filled(twins)
    for reader in feed.readers():
        with pytest.raises(KeyShapeError) as caught:
            reader.multi_get([("kept", DAY), ("kept",)])
        assert caught.value.index == 1
        with pytest.raises(SpecError, match="no measure 'x'; there are n, mean"):
            reader.multi_get([], ["x"])
        with pytest.raises(SpecError, match="no measure 'x'"):
            reader.page(order_by="x")
        with pytest.raises(NotCommittedError):
            reader.multi_get([], at_txid=4)


def test_without_a_changelog_the_past_is_out_of_reach(twins):
    _, in_redis = filled(twins).readers()

    with pytest.raises(OutOfReachError) as caught:
        in_redis.multi_get(KEYS, at_txid=2)

    assert caught.value.oldest == 3
    assert in_redis.multi_get(KEYS, at_txid=3) == in_redis.multi_get(KEYS)


def test_a_state_that_nobody_registered_is_unknown(conn, client, fresh):
    reader = state_reader(conn, replace(fresh(VIEWS), backend="redis"))

    with pytest.raises(UnknownStateError, match="is not registered"):
        reader.multi_get([])


def test_a_scan_looks_at_so_many_keys_and_says_where_there_were_more(twins, monkeypatch):
    feed = twins(VIEWS)
    feed.commit(*(row(f"p{n:02}", n + 1) for n in range(10)))
    _, reader = feed.readers()
    monkeypatch.setattr(scanning, "MOST_SCANNED", 6)

    top = reader.page(order_by="n", descending=True, limit=2)
    page = reader.page(limit=3)

    assert ([entry["value"]["n"] for entry in top.parsed()], top.complete) == ([6, 5], False)
    assert ([entry["value"]["n"] for entry in page.parsed()], page.complete) == ([1, 2, 3], True)


def test_a_page_is_of_one_batch_whatever_is_committed_while_it_is_read(twins, monkeypatch):
    monkeypatch.setattr("tidegauge.state_backends.backends.redis.rows.CHUNK_KEYS", 3)
    feed = twins(VIEWS)
    pages = [f"p{n:02}" for n in range(10)]
    feed.commit(*(row(page, 1) for page in pages))
    batch, rows = feed.rows_in_redis.scan_committed()
    first = [next(rows) for _ in range(3)]
    feed.commit(*(row(page, 1) for page in pages))

    rest = list(rows)
    feed.rows_in_redis.scan_committed()
    again_batch, again = feed.rows_in_redis.scan_committed()
    next(again)
    feed.commit(*(row(page, 1) for page in pages))
    feed.commit(*(row(page, 1) for page in pages))

    assert (batch.txid, {row.value["n"] for _, row in [*first, *rest]}) == (1, {1})
    assert again_batch.txid == 2
    with pytest.raises(MovedOnError):
        list(again)


def test_a_page_is_read_again_where_its_batch_was_taken_back(twins):
    feed = twins(VIEWS)
    feed.commit(row("a", 1))
    feed.commit(row("a", 1))
    _, rows = feed.rows_in_redis.scan_committed()
    feed.rows_in_redis.revert(2)

    with pytest.raises(MovedOnError, match="batch 2 was reverted"):
        list(rows)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (0.1, "0.1"),
        (float("-inf"), '"-Infinity"'),
        (float("nan"), '"NaN"'),
        (True, "true"),
        (b"\x01", '"\\\\x01"'),
        (datetime(2024, 1, 1, 5, 0, 0, 120_000, tzinfo=UTC), '"2024-01-01T05:00:00.12+00:00"'),
        (datetime(2024, 1, 1, 5, 0, tzinfo=UTC), '"2024-01-01T05:00:00+00:00"'),
        ({"a": [1, None, "é"]}, '{"a": [1, null, "\\u00e9"]}'),
    ],
)
def test_values_have_the_form_that_postgresql_gives_them(value, text):
    assert json_form(value) == text
