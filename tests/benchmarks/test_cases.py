"""A case is the median of its rounds, and its ratios are taken within a round."""

import json

import pytest

from benchmarks.cases import Case, Timed, compared, median_case, percentile, side_by_side

RATES, REFERENCE = [10.0, 20.0, 30.0, 40.0, 50.0], [10.0, 10.0, 10.0, 10.0, 100.0]


def test_a_ratio_is_the_median_of_the_rounds_and_not_the_ratio_of_medians():
    case = median_case("merge", RATES, "keys/s", {"upsert": REFERENCE})

    assert (case.value, case.ratio) == (30.0, {"upsert": 2.0})
    assert case.rounds == 5


def test_half_of_the_rounds_lie_between_the_quartiles_and_within_the_spread():
    case = median_case("merge", RATES, "keys/s", {"upsert": [10.0] * 5})

    assert case.quartiles == {"upsert": (1.5, 4.5)}
    assert case.spread == pytest.approx((45 - 15) / 2 / 30)


def test_a_single_measurement_has_no_spread():
    case = median_case("fill", [7.0], "keys/s", {"upsert": [14.0]})

    assert (case.value, case.spread, case.quartiles) == (7.0, 0.0, {"upsert": (0.5, 0.5)})


def test_rounds_of_different_number_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        median_case("merge", [1.0, 2.0], "keys/s", {"upsert": [1.0]})


def test_a_case_is_compared_with_all_references_but_itself():
    upsert, merge = compared({"upsert": REFERENCE, "merge": RATES}, "keys/s", ["upsert"])

    assert (upsert.ratio, list(merge.ratio)) == ({}, ["upsert"])


def test_cases_take_turns_and_the_first_round_is_not_measured():
    done = []

    cases = side_by_side(
        {name: lambda number, name=name: done.append((number, name)) or 1 for name in "ab"}, "units/s", ["a"], rounds=2
    )

    assert done == [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert [case.rounds for case in cases] == [2, 2]


def test_work_that_measures_its_own_time_is_taken_at_its_word():
    [case] = side_by_side({"pgbench": lambda number: Timed(100, 0.5)}, "units/s", [], rounds=1)

    assert case.value == 200


def test_a_count_is_written_without_decimals_and_a_measurement_below_100_with_three():
    assert [Case("wrong", value, "windows").value_as_text() for value in (0, 12, 1_234)] == ["0", "12", "1,234"]
    assert [Case("p50", value, "ms").value_as_text() for value in (0.5, 99.0, 1_234.5)] == ["0.500", "99.000", "1,234"]


def test_a_case_is_read_back_as_it_was_printed():
    printed = median_case("merge", RATES, "keys/s", {"upsert": REFERENCE}).as_json()

    assert Case.from_dict(json.loads(printed)).as_json() == printed


@pytest.mark.parametrize(
    ("number", "p50", "p99"), [(1, 1, 1), (3, 2, 3), (100, 50, 99), (101, 51, 100), (400, 200, 396)]
)
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(number, p50, p99):
    values = [*range(number, 0, -1)]

    assert (percentile(values, 50), percentile(values, 99)) == (p50, p99)
