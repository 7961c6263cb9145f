from functools import partial

from tests.harness.budget import SLOWEST, lines, pace, read, slower, table, write
from tests.harness.budget import compared as compared_of

compared = partial(compared_of, processes=2)
LINE = {"tests": 10, "servers": 1, "cpu": 200}
THREE = {"tests/a": LINE, "tests/b": LINE, "tests/c": LINE}


def test_costs_of_the_line_are_no_problem():
    assert compared({"tests/a": LINE}, {"tests/a": LINE}) == []


def test_a_count_may_be_above_its_line_by_one_per_process_and_then_is_named():
    within = compared({"tests/a": LINE | {"servers": 3}}, {"tests/a": LINE})
    above, *_ = compared({"tests/a": LINE | {"servers": 4}}, {"tests/a": LINE})

    assert within == compared({"tests/a": LINE | {"servers": 0}}, {"tests/a": LINE}) == []
    assert above == "tests/a has 4 servers, its line says 1"


def test_one_test_more_and_one_less_are_named():
    more, *_ = compared({"tests/a": LINE | {"tests": 11}}, {"tests/a": LINE})
    less, *_ = compared({"tests/a": LINE | {"tests": 9}}, {"tests/a": LINE})

    assert more == "tests/a has 11 tests, its line says 10"
    assert less == "tests/a has 9 tests, its line says 10"


def test_a_folder_without_a_line_and_a_line_without_a_folder_are_named():
    assert "tests/b has 10 tests, its line says 0" in compared({"tests/b": LINE}, {})
    assert "tests/b has 0 tests, its line says 10" in compared({}, {"tests/b": LINE})


def test_cpu_may_be_a_third_above_its_line_and_less_is_no_problem():
    assert compared(THREE | {"tests/a": LINE | {"cpu": 290}}, THREE) == []
    assert compared(THREE | {"tests/a": LINE | {"cpu": 20}}, THREE) == []
    above, *_ = compared(THREE | {"tests/a": LINE | {"cpu": 353}}, THREE)

    assert above.startswith("tests/a takes 353 units of CPU, its line says 200")


def test_what_all_folders_take_more_is_a_problem_above_two_percent_of_the_tier():
    five = dict.fromkeys(["tests/a", "tests/b", "tests/c", "tests/d", "tests/e"], LINE)
    little, more = (five | {"tests/a": LINE | {"cpu": 350}, "tests/b": LINE | {"cpu": cpu}} for cpu in (350, 351))

    assert [units for _, units in slower(little, five)] == [10, 10]
    assert compared(little, five) == []
    assert [problem.split()[0] for problem in compared(more, five)[:-1]] == ["tests/a", "tests/b"]


def test_a_folder_may_be_as_slow_as_the_others_are_in_the_same_run_and_no_slower():
    slow = {place: LINE | {"cpu": 280} for place in THREE}

    assert pace(slow, THREE) == 1.4
    assert compared(slow, THREE) == []
    above, *_ = compared(slow | {"tests/a": LINE | {"cpu": 457}}, THREE)
    assert above.startswith("tests/a takes 457 units of CPU, its line says 200")


def test_what_makes_every_folder_slower_than_a_busy_machine_does_is_named_for_each():
    slow = {place: LINE | {"cpu": 510} for place in THREE}

    assert pace(slow, THREE) == SLOWEST
    assert [problem.split()[0] for problem in compared(slow, THREE)[:-1]] == sorted(THREE)


def test_a_faster_machine_does_not_tighten_the_lines():
    assert pace({place: LINE | {"cpu": 100} for place in THREE}, THREE) == 1.0
    assert pace({}, {}) == 1.0


def test_the_processes_of_a_run_are_added_up_each_in_units_of_its_own_loop():
    slow = {"counts": [["tests/a", "tests", 3]], "cpu": {"tests/a": 6.0}, "loop": 0.06}
    quick = {"counts": [["tests/a", "tests", 2]], "cpu": {"tests/a": 2.0}, "loop": 0.04}

    assert lines([slow, quick]) == {"tests/a": {"tests": 5, "cpu": 150}}


def test_writing_one_tier_keeps_the_other(tmp_path):
    file = tmp_path / "budget.toml"
    write(file, "rest", {"tests/a": LINE})
    write(file, "quick", {"tests/b": LINE})

    assert read(file) == {"rest": {"tests/a": LINE}, "quick": {"tests/b": LINE}}


def test_the_table_ends_with_the_total():
    *_, total = table({"tests/a": LINE, "tests/b": LINE})

    assert total.split() == ["total", "20", "2", "400"]
