"""An audit finds rows and changelog entries that were changed apart from each other, and nothing else."""

from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg import sql

from tidegauge.state_backends import Count, Max, StateSpec
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.repair.audit import Deviation, audit
from tidegauge.state_backends.spec.table import StateTable

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count(), "top": Max("x")}, changelog=True)


def pages(*numbers):
    return [{"page": f"{number:03}", "n": 1, "top": float("nan")} for number in numbers]


@pytest.fixture(params=["opaque", "transactional"])
def fed(request, new_feed, fresh):
    """A state of 300 pages, all of them counted in batch 1 and some again in batch 2; batch 3 is open."""
    feed = new_feed(fresh(replace(VIEWS, kind=request.param)))
    feed.run(pages(*range(300)))
    feed.run(pages(*range(0, 300, 3)))
    feed.apply(feed.begin(2), feed.specs[0], pages(*range(0, 300, 5), 300))
    return feed


def changed(feed, statement):
    table = StateTable(feed.specs[0])
    feed.conn.execute(sql.SQL(statement).format(rows=table.name, log=table.changelog))
    return audit(feed.conn, feed.specs[0], 1_000)


def test_a_state_beside_its_changelog_has_no_deviation_also_while_a_batch_is_open(fed):
    found = audit(fed.conn, fed.specs[0], 1_000)

    assert (found.txid, found.keys, list(found.deviations)) == (2, 301, [])


def test_a_sample_is_of_the_size_that_was_asked_for(fed):
    assert 10 <= audit(fed.conn, fed.specs[0], 10).keys <= 20


@pytest.mark.parametrize(
    ("statement", "stored", "logged"),
    [
        ("DELETE FROM {rows} WHERE page = '007'", None, 1),
        ("UPDATE {rows} SET n = 5 WHERE page = '007'", 5, 1),
        ("DELETE FROM {log} WHERE page = '007'", 1, None),
        ("UPDATE {log} SET n = 5 WHERE page = '007'", 1, 5),
    ],
)
def test_what_was_changed_apart_is_found(fed, statement, stored, logged):
    found = changed(fed, statement)

    [deviation] = found.deviations
    assert deviation.key == ("007",)
    assert [value and value["n"] for value in (deviation.stored, deviation.counted)] == [stored, logged]


def test_keys_whose_time_to_live_is_over_do_not_deviate(new_feed, fresh):
    feed = new_feed(fresh(replace(VIEWS, ttl=timedelta(microseconds=1))))
    feed.run(pages(1, 2))

    found = changed(feed, "DELETE FROM {rows} WHERE page = '001'")

    assert (found.keys, list(found.deviations)) == (2, [])


def test_a_state_without_a_key_is_compared_as_one(new_feed, fresh):
    feed = new_feed(fresh(StateSpec("all", measures={"n": Count()}, changelog=True)))
    feed.run([{"n": 2}])

    assert changed(feed, "UPDATE {rows} SET n = 3").deviations == [Deviation((), {"n": 3}, {"n": 2})]


def test_a_state_without_a_changelog_is_refused(conn, fresh):
    with pytest.raises(SpecError, match=r"has no changelog to compare with; declare changelog=True$"):
        audit(conn, fresh(replace(VIEWS, changelog=False)), 10)
