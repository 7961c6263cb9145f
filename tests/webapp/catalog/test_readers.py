import time

import pytest

from tests.webapp.flights import TOTALS
from tidegauge.state_backends import Catalog, Count, StateSpec
from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.webapp.catalog import readers


def measures(connection):
    return list(readers.reader(connection, "totals").spec.measures)


def extend(connection):
    grown = StateSpec("totals", measures={**TOTALS.measures, "late": Count("dep_delay > 0")})
    Catalog(connection).register_states("flights", [grown], {"totals": "exactly once"})


def test_a_spec_is_remembered_for_a_moment(filled, connection):
    measures(connection)
    extend(connection)

    assert measures(connection) == ["flights"]


def test_a_changed_spec_is_seen_when_the_moment_is_over(filled, connection, monkeypatch):
    measures(connection)
    extend(connection)
    later = time.monotonic() + 1.5
    monkeypatch.setattr(time, "monotonic", lambda: later)

    assert measures(connection) == ["flights", "late"]


def asked_on_loop(name):
    """Return whether a lookup on the event loop has to check the reader, and the check, which has asked the catalog."""
    if readers.fresh_reader(name) is not None:
        return None
    check = readers.checking(name)
    return check, next(check)


def answered(connection, check, asked):
    with pytest.raises(StopIteration) as end:
        check.send(connection.execute(asked.statement, asked.parameters).fetchone())
    return end.value.value


def test_one_of_several_lookups_checks_a_reader_before_the_moment_is_over(filled, connection, monkeypatch):
    first = readers.versioned_reader(connection, "totals")[0]
    later = time.monotonic() + readers.CHECK_AHEAD_SECONDS + 0.01
    monkeypatch.setattr(time, "monotonic", lambda: later)

    asked = [asked_on_loop("totals") for _ in range(3)]

    assert [each is None for each in asked] == [False, True, True]
    assert answered(connection, *asked[0])[0] is readers.fresh_reader("totals")[0]
    assert readers.fresh_reader("totals")[0].spec is first.spec


def test_a_check_on_the_loop_leaves_a_changed_spec_to_a_thread(filled, connection, monkeypatch):
    first = readers.versioned_reader(connection, "totals")[0]
    extend(connection)
    later = time.monotonic() + readers.CHECK_AHEAD_SECONDS + 0.01
    monkeypatch.setattr(time, "monotonic", lambda: later)

    assert answered(connection, *asked_on_loop("totals")) is None
    # The others use the old one until a thread has read the new one.
    assert list(readers.fresh_reader("totals")[0].spec.measures) == list(first.spec.measures)
    assert measures(connection) == ["flights", "late"]
    assert list(readers.fresh_reader("totals")[0].spec.measures) == ["flights", "late"]


def test_a_check_on_the_loop_that_ends_late_does_not_bring_an_older_spec_back(filled, connection, monkeypatch):
    readers.versioned_reader(connection, "totals")
    later = time.monotonic() + readers.CHECK_AHEAD_SECONDS + 0.01
    monkeypatch.setattr(time, "monotonic", lambda: later)
    check, asked = asked_on_loop("totals")
    row = connection.execute(asked.statement, asked.parameters).fetchone()
    extend(connection)
    assert measures(connection) == ["flights", "late"]

    with pytest.raises(StopIteration):
        check.send(row)

    assert list(readers.fresh_reader("totals")[0].spec.measures) == ["flights", "late"]


def test_a_check_on_the_loop_that_gets_no_answer_is_repeated_when_the_moment_is_over(filled, connection, monkeypatch):
    readers.versioned_reader(connection, "totals")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + readers.CHECK_AHEAD_SECONDS + 0.01)
    check, _ = asked_on_loop("totals")
    check.close()
    assert asked_on_loop("totals") is None
    monkeypatch.setattr(time, "monotonic", lambda: now + readers.CHECK_SECONDS + 0.01)

    assert answered(connection, *asked_on_loop("totals")) is not None
    assert readers.fresh_reader("totals") is not None


def test_an_unchanged_spec_is_kept(filled, connection, monkeypatch):
    first = readers.reader(connection, "totals").spec
    monkeypatch.setattr(readers, "CHECK_SECONDS", 0)

    assert readers.reader(connection, "totals").spec is first


def test_an_unknown_state_is_refused_with_the_names_there_are(filled, connection):
    with pytest.raises(UnknownStateError, match="there are flights_by_carrier, flights_by_hour, totals"):
        readers.reader(connection, "total")
