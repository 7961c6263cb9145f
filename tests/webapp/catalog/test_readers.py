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


def test_one_of_several_requests_checks_a_reader_before_the_moment_is_over(filled, connection, monkeypatch):
    first = readers.versioned_reader(connection, "totals")[0]
    extend(connection)
    later = time.monotonic() + readers.CHECK_AHEAD_SECONDS + 0.01
    monkeypatch.setattr(time, "monotonic", lambda: later)

    assert [readers.checked_reader("totals") is None for _ in range(3)] == [True, False, False]
    assert list(readers.checked_reader("totals")[0].spec.measures) == list(first.spec.measures)
    assert measures(connection) == ["flights", "late"]
    assert list(readers.checked_reader("totals")[0].spec.measures) == ["flights", "late"]


def test_an_unchanged_spec_is_kept(filled, connection, monkeypatch):
    first = readers.reader(connection, "totals").spec
    monkeypatch.setattr(readers, "CHECK_SECONDS", 0)

    assert readers.reader(connection, "totals").spec is first


def test_an_unknown_state_is_refused_with_the_names_there_are(filled, connection):
    with pytest.raises(UnknownStateError, match="there are flights_by_carrier, flights_by_hour, totals"):
        readers.reader(connection, "total")
