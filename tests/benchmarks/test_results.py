"""The file of results: a run replaces its own section, with its options, machine and versions."""

from types import ModuleType

import pytest

from benchmarks.cases import median_case
from benchmarks.registry import Benchmark
from benchmarks.results import measure, read, replace_section

CASES = [
    median_case("upsert", [8.0, 9.0, 10.0], "keys/s"),
    median_case("merge", [4.0, 5.0, 4.0], "keys/s", {"upsert": [8.0, 9.0, 10.0]}),
]


def benchmark(name):
    module = ModuleType(name, f"{name}: what it measures")
    module.SEEDS = "none"
    module.run = lambda keys=100, rounds=5: CASES
    return Benchmark(name, module)


@pytest.fixture(scope="module")
def section():
    return measure(benchmark("merge"), {"rounds": 3, "events": 20}, say=lambda case: None)


def test_a_section_has_the_options_as_given_and_the_others_defaults(section):
    assert section.options == {"keys": 100, "rounds": 3}


def test_a_section_says_what_it_was_measured_on(section):
    assert section.machine.keys() == {"cpu", "cores", "memory_gb", "kernel", "load"}
    assert len(section.machine["load"]) == 3
    assert all(section.versions.values())
    assert {"Tidegauge", "Python", "Java", "Spark", "PostgreSQL", "Redis", "Django", "DRF"} <= section.versions.keys()
    assert "fsync" in section.versions["PostgreSQL"]


def test_each_case_is_said_as_it_is_measured():
    said = []

    measure(benchmark("merge"), {}, said.append)

    assert said == CASES


def test_a_run_replaces_its_own_section_only(section, tmp_path):
    path = tmp_path / "results.json"
    replace_section(path, "merge", section)
    replace_section(path, "lookup", section)
    before = path.read_text()

    replace_section(path, "merge", measure(benchmark("merge"), {"keys": 7}, say=lambda case: None))

    assert {name: each.options["keys"] for name, each in read(path).items()} == {"lookup": 100, "merge": 7}
    assert before.partition('"merge"')[0] == path.read_text().partition('"merge"')[0]


def test_a_section_is_read_back_as_it_was_written(section, tmp_path):
    path = tmp_path / "results.json"
    replace_section(path, "merge", section)
    written = path.read_text()

    replace_section(path, "merge", read(path)["merge"])

    assert path.read_text() == written
