"""History of one key, of a state in a table and of its twin in Redis, with a changelog and without."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import Count, RedisBackingMap, StateReader, StateSpec, Versioned, state_reader
from tidegauge.state_backends.errors import KeyShapeError, MovedOnError, UnknownStateError
from tidegauge.state_backends.maintenance import compact, expire
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.reader.scanned import Published

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
BOTH = pytest.mark.parametrize("place", [0, 1], ids=["table", "redis"])


def add(n, page="a"):
    return {"page": page, "n": n}


def versions(reader, key=("a",), **question):
    """Return txid and value of each version, None for a removal."""
    answer = reader.history(key, **question)
    return [(each["txid"], each["value"] and each["value"]["n"]) for each in answer.parsed()], answer.complete


@BOTH
def test_every_version_comes_newest_first_with_its_batch_and_time(twins, place):
    feed = twins(VIEWS, changelog=True)
    first = feed.commit(add(1))
    feed.commit(add(9, "b"))
    second = feed.commit(gone=[("a",)])
    third = feed.commit(add(5))

    answer = feed.readers()[place].history(("a",))

    found = answer.parsed()
    assert [(each["txid"], each["status"], each["value"]) for each in found] == [
        (4, "found", {"n": 5}),
        (3, "removed", None),
        (1, "found", {"n": 1}),
    ]
    times = [datetime.fromisoformat(each["at"]) for each in found]
    assert times == [batch.batch_time for batch in (third, second, first)]
    assert (answer.txid, answer.attempt, answer.batch_time, answer.complete) == (4, 1, third.batch_time, True)


@BOTH
def test_older_versions_follow_page_by_page(twins, place):
    feed = twins(VIEWS, changelog=True)
    for _ in range(5):
        feed.commit(add(1))
    reader = feed.readers()[place]

    assert versions(reader, limit=2) == ([(5, 5), (4, 4)], True)
    assert versions(reader, limit=2, before=4) == ([(3, 3), (2, 2)], True)
    assert versions(reader, limit=2, before=2) == ([(1, 1)], True)
    assert versions(reader, limit=2, before=1) == ([], True)


@BOTH
@pytest.mark.parametrize("changelog", [True, False])
def test_rows_of_an_open_batch_are_left_out(twins, place, changelog):
    feed = twins(VIEWS, changelog=changelog)
    feed.commit(add(1))
    feed.write(feed.begin(1), [add(5), add(7, "new")])
    reader = feed.readers()[place]

    # Without a changelog the open batch has used up one of the two versions.
    assert versions(reader) == ([(1, 1)], changelog)
    assert versions(reader, ("new",)) == ([], True)


@BOTH
def test_without_a_changelog_the_two_versions_of_the_row_come_as_incomplete(twins, place):
    feed = twins(VIEWS)
    reader = feed.readers()[place]
    assert versions(reader) == ([], True)

    for n, seen in enumerate(([(1, 1)], [(2, 2), (1, 1)], [(3, 3), (2, 2)]), 1):
        feed.commit(add(1))
        # A row with a version before it may have had others before that.
        assert versions(reader) == (seen, n == 1)
    feed.commit(gone=[("a",)])

    assert versions(reader) == ([(4, None), (3, 3)], False)
    assert versions(reader, limit=1) == ([(4, None)], True)
    assert versions(reader, before=4) == ([(3, 3)], False)
    assert versions(reader, before=3) == ([], False)


@pytest.mark.parametrize("kind", ["transactional", "non_transactional"])
@BOTH
def test_kinds_that_keep_one_version_show_that_one(twins, place, kind):
    feed = twins(VIEWS, kind=kind)
    feed.commit(add(1))
    feed.commit(add(1))

    assert versions(feed.readers()[place]) == ([(2 if kind == "transactional" else None, 2)], False)


def test_a_version_that_a_revert_used_up_is_not_taken_for_none(new_feed, fresh, conn):
    feed = new_feed(spec := fresh(VIEWS))
    feed.run(views(("a", 1)))
    feed.run(views(("a", 1)))
    feed.apply(feed.begin(2), spec, views(("a", 1)))
    feed.begin(2)

    assert versions(StateReader(conn, spec)) == ([(2, 2)], False)


@pytest.mark.parametrize("changelog", [True, False])
def test_after_compaction_a_history_is_incomplete(new_feed, fresh, conn, changelog):
    feed = new_feed(spec := fresh(replace(VIEWS, changelog=changelog)))
    for _ in range(4):
        feed.run(views(("a", 1)))
    list(compact(conn, spec, keep=timedelta()))

    shown, complete = versions(StateReader(conn, spec))

    assert (shown[0], complete) == ((4, 4), False)
    assert len(shown) < 4


@BOTH
@pytest.mark.parametrize("changelog", [True, False])
def test_a_global_state_and_one_of_json_values_have_a_history_too(twins, place, changelog):
    totals = twins(StateSpec("totals", measures={"n": Count()}), changelog=changelog)
    totals.commit({"n": 3})
    texts = twins(StateSpec("texts", key={"page": "text"}, value="jsonb"), changelog=changelog)
    batch = texts.begin(0)
    for spec in texts.specs:
        counts = MAPS[spec.kind](texts.logged(spec))
        counts.begin_commit(batch.txid, at=batch.batch_time)
        counts.multi_put([("a",)], [{"x": [1]}])
    texts.ledger.commit(batch)
    texts.rows_in_redis.publish(1)

    assert versions(totals.readers()[place], ()) == ([(1, 3)], True)
    assert texts.readers()[place].history(("a",)).parsed()[0]["value"] == {"x": [1]}


def test_a_row_in_redis_that_moves_on_meanwhile_is_read_again(twins, monkeypatch):
    feed = twins(VIEWS)
    feed.commit(add(1))
    _, reader = feed.readers()
    get, looks = RedisBackingMap.multi_get, []

    def moving(rows, keys):
        looks.append(keys)
        if len(looks) == 1:
            feed.commit(add(1))
            feed.commit(add(1))
        return get(rows, keys)

    monkeypatch.setattr(RedisBackingMap, "multi_get", moving)

    assert versions(reader) == ([(3, 3), (2, 2)], False)

    monkeypatch.setattr(RedisBackingMap, "multi_get_committed", lambda rows, keys: (Published(1), []))
    with pytest.raises(MovedOnError):
        reader.history(("a",))


def test_a_row_in_redis_that_was_reverted_meanwhile_is_read_again(twins, monkeypatch):
    feed = twins(VIEWS)
    feed.commit(add(1))
    _, reader = feed.readers()
    get, looks = RedisBackingMap.multi_get, []

    def reverting(rows, keys):
        looks.append(keys)
        if len(looks) == 1:
            feed.commit(add(1))
            feed.rows_in_redis.multi_put(keys, [Versioned({"n": 9}, 3, {"n": 2}, 2)])
            feed.rows_in_redis.revert(3)
        return get(rows, keys)

    monkeypatch.setattr(RedisBackingMap, "multi_get", reverting)

    assert versions(reader)[0] == [(2, 2)]


@BOTH
def test_wrong_arguments_are_refused(twins, place, conn, client, fresh):
    with pytest.raises(KeyShapeError, match="page must be text, got 7"):
        twins(VIEWS).readers()[place].history((7,))
    unknown = replace(fresh(VIEWS), backend=["postgres", "redis"][place])
    with pytest.raises(UnknownStateError):
        state_reader(conn, unknown).history(("a",))


def test_once_expiry_has_freed_rows_a_history_without_a_changelog_is_incomplete(new_feed, fresh, conn):
    feed = new_feed(spec := fresh(replace(VIEWS, ttl=timedelta(hours=1))))
    feed.run(views(("a", 1)))
    assert versions(StateReader(conn, spec), ("never there",)) == ([], True)
    let_time_pass(conn, feed.specs, feed.pipeline, timedelta(hours=2))
    list(expire(conn, spec))

    assert versions(StateReader(conn, spec)) == ([], False)
