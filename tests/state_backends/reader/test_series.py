"""Versions of one key in a range of time, of a state in a table and of its twin in Redis."""

from datetime import timedelta

import pytest

from tests.state_backends.reader.test_history import BOTH, VIEWS, add
from tidegauge.state_backends.errors import KeyShapeError

EACH, ALL = 1e-6, 1e12
SECOND = timedelta(seconds=1)


def series(reader, since, until, step_seconds=EACH):
    answer = reader.series(("a",), since=since, until=until, step_seconds=step_seconds)
    return [(each["txid"], each["value"] and each["value"]["n"]) for each in answer.parsed()]


@BOTH
def test_versions_come_oldest_first_after_the_last_one_before_the_range(twins, place):
    feed = twins(VIEWS, changelog=True)
    batches = [feed.commit(add(1)), feed.commit(add(2)), feed.commit(gone=[("a",)]), feed.commit(add(4))]
    reader = feed.readers()[place]
    times = [batch.batch_time for batch in batches]

    assert series(reader, times[0], times[-1] + SECOND) == [(1, 1), (2, 3), (3, None), (4, 4)]
    assert series(reader, times[2], times[3]) == [(2, 3), (3, None)]
    assert series(reader, times[3] + SECOND, times[3] + 2 * SECOND) == [(4, 4)]
    assert series(reader, times[0] - 2 * SECOND, times[0]) == []


@BOTH
def test_of_the_versions_in_a_step_the_last_one_is_left(twins, place):
    feed = twins(VIEWS, changelog=True)
    first, *_, last = [feed.commit(add(1)) for _ in range(5)]
    reader = feed.readers()[place]

    assert series(reader, first.batch_time, last.batch_time + SECOND, ALL) == [(5, 5)]
    assert series(reader, last.batch_time, last.batch_time + SECOND, ALL) == [(4, 4), (5, 5)]


@BOTH
@pytest.mark.parametrize("changelog", [True, False])
def test_rows_of_an_open_batch_are_left_out(twins, place, changelog):
    feed = twins(VIEWS, changelog=changelog)
    first = feed.commit(add(1))
    feed.write(feed.begin(1), [add(5)])

    assert series(feed.readers()[place], first.batch_time, first.batch_time + timedelta(hours=1)) == [(1, 1)]


@BOTH
def test_without_a_changelog_the_row_has_two_versions(twins, place):
    feed = twins(VIEWS, changelog=False)
    batches = [feed.commit(add(1)) for _ in range(3)]
    reader = feed.readers()[place]
    since = batches[0].batch_time

    assert series(reader, since, since + timedelta(hours=1)) == [(2, 2), (3, 3)]
    assert series(reader, batches[2].batch_time, since + timedelta(hours=1)) == [(2, 2), (3, 3)]
    assert series(reader, batches[2].batch_time + SECOND, since + timedelta(hours=1)) == [(3, 3)]


@BOTH
def test_a_wrong_key_is_an_error(twins, place):
    feed = twins(VIEWS, changelog=True)
    at = feed.commit(add(1)).batch_time

    with pytest.raises(KeyShapeError):
        feed.readers()[place].series(("a", "b"), since=at, until=at + SECOND, step_seconds=1)
