"""What each benchmark says of itself, and that its medians are of five rounds or more unless told otherwise."""

import pytest

from benchmarks.registry import BENCHMARKS


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=BENCHMARKS)
def test_a_benchmark_says_what_it_measures_and_with_which_seeds(benchmark):
    assert benchmark.module.__doc__.startswith(f"{benchmark.name}: ")
    assert benchmark.title
    assert benchmark.seeds


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=BENCHMARKS)
def test_a_benchmark_has_five_rounds_or_more_by_default(benchmark):
    assert benchmark.options["rounds"] >= 5


def test_options_of_other_benchmarks_are_ignored(monkeypatch):
    events = BENCHMARKS["events"]
    monkeypatch.setattr(events.module, "run", lambda rounds=5: [rounds])

    assert list(events.run({"rounds": 7, "keys": 1_000})) == [7]


def test_a_pattern_stands_for_several_references():
    freshness = BENCHMARKS["freshness"]

    assert freshness.says_what_is_unequal_to("limit_p99")
    assert not freshness.says_what_is_unequal_to("noop")
