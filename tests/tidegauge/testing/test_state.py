from datetime import UTC, date, datetime

import pytest

from tidegauge.state_backends import Count, StateSpec
from tidegauge.testing import State

BY_DAY = StateSpec("by_day", key={"day": "date"}, measures={"orders": Count()})
BY_HOUR = StateSpec("by_hour", key={"shop": "text", "hour": "timestamptz"}, measures={"orders": Count()})
BY_NUMBER = StateSpec("by_number", key={"x": "double precision"}, measures={"orders": Count()})
DAYS = State(BY_DAY, {(date(2026, 1, 1),): {"orders": 3}})


@pytest.mark.parametrize("key", [(date(2026, 1, 1),), date(2026, 1, 1), "2026-01-01", ("2026-01-01",)])
def test_a_key_is_found_typed_or_as_text_alone_or_as_a_tuple(key):
    assert DAYS[key] == DAYS.get(key) == {"orders": 3}
    assert key in DAYS


def test_a_key_of_several_parts_is_a_tuple():
    hours = State(BY_HOUR, {("a", datetime(2026, 1, 1, 9, tzinfo=UTC)): {"orders": 1}})

    assert hours["a", "2026-01-01T10:00:00+01:00"] == {"orders": 1}


def test_an_absent_key_is_named():
    with pytest.raises(KeyError, match=r"state 'by_day' has no key \(datetime.date\(2026, 1, 2\),\)"):
        DAYS["2026-01-02"]
    assert DAYS.get("2026-01-02") is None
    assert "no date" not in DAYS


def test_a_state_equals_a_dict_with_the_same_keys_in_any_form():
    assert DAYS == {"2026-01-01": {"orders": 3}}
    assert {(date(2026, 1, 1),): {"orders": 3}} == DAYS
    assert DAYS != {"2026-01-01": {"orders": 4}}
    assert DAYS != {"2026-01-02": {"orders": 3}}
    assert DAYS != {"no date": {"orders": 3}}


def test_a_key_that_is_not_a_number_is_found_and_equals_itself():
    state = State(BY_NUMBER, {(float("nan"),): {"orders": 3}})

    assert state[float("nan")] == state["NaN"] == {"orders": 3}
    assert state == {"NaN": {"orders": 3}}
