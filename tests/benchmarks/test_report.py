"""The committed page and charts are what the committed results give, and say what is unequal in each pair."""

import re

from benchmarks.cases import Case, median_case
from benchmarks.headlines import HEADLINES
from benchmarks.registry import BENCHMARKS
from benchmarks.report import CHARTS, DOCS, PAGE, RESULTS, pages
from benchmarks.results import Section, read

SECTIONS = read(DOCS / RESULTS)
REWRITE = "run `python -m benchmarks.report` and commit what it writes"


def section(*cases: Case) -> Section:
    machine = {"cpu": "CPU", "cores": 2, "memory_gb": 24.0, "kernel": "Linux", "load": [0.1, 0.2, 0.3]}
    return Section("2026-11-22T10:00:00+00:00", 60, {"rounds": 3}, "none", machine, {"Tidegauge": "abc"}, [*cases])


def test_the_committed_page_and_charts_are_those_of_the_committed_results():
    files = pages(SECTIONS)

    for path, text in files.items():
        assert (DOCS / path).read_text() == text, f"docs/{path}: {REWRITE}"
    assert {path for path in files if path != PAGE} == {path.relative_to(DOCS) for path in (DOCS / CHARTS).glob("*")}


def test_the_committed_results_are_of_five_rounds_or_more():
    assert SECTIONS.keys() <= BENCHMARKS.keys()
    assert {name: each.options["rounds"] for name, each in SECTIONS.items() if each.options["rounds"] < 5} == {}


def test_the_first_table_has_a_row_for_each_headline_that_is_measured():
    headlines = [each for each in HEADLINES if each.benchmark in SECTIONS]
    rows = {f"| {each.what} | {each.against} | **": each.benchmark for each in headlines}

    page = {name: pages({name: SECTIONS[name]})[PAGE] for name in SECTIONS}

    assert len(rows) == len(headlines) > 0
    assert [row for row, name in rows.items() if row not in page[name]] == []


def test_what_is_unequal_is_said_of_each_reference():
    references = {
        name: {reference for case in section.cases for reference in case.ratio} for name, section in SECTIONS.items()
    }

    assert {
        (name, each)
        for name, named in references.items()
        for each in named
        if not BENCHMARKS[name].says_what_is_unequal_to(each)
    } == set()
    assert {name for name, named in references.items() if bool(named) != bool(BENCHMARKS[name].unequal)} == set()


def test_the_page_shows_all_charts():
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (DOCS / PAGE).read_text())

    assert sorted(DOCS / path for path in shown) == sorted((DOCS / CHARTS).glob("*.svg"))


def test_rates_and_times_have_a_chart_each_and_references_no_bar():
    cases = [
        median_case("merge_100000_keys", [1.0, 2.0, 3.0], "keys/s"),
        median_case("merge_1000000_keys", [1.0, 1.0, 1.0], "keys/s", {"merge_100000_keys": [1.0, 2.0, 3.0]}),
        median_case("revert_1000000_keys", [9.0, 9.0, 9.0], "ms", {"revert_100000_keys": [3.0, 3.0, 3.0]}),
    ]

    files = pages({"scaling": section(*cases)})

    assert files.keys() == {PAGE, CHARTS / "scaling-rates.svg", CHARTS / "scaling-times.svg"}
    assert ">merge_1000000_keys<" in files[CHARTS / "scaling-rates.svg"]
    assert files[CHARTS / "scaling-rates.svg"].count('class="bar"') == 1


def test_figures_that_nothing_is_compared_with_are_collapsed():
    compared = median_case("lookup", [3.0, 4.0], "requests/s", {"bare_django": [4.0, 4.0]})
    alone = median_case("lookup_server_ms", [3.0, 4.0], "ms")

    page = pages({"lookup": section(compared, alone)})[PAGE]

    assert page.index("| lookup |") < page.index("<details>") < page.index("| lookup_server_ms |")
    assert "<details>" not in pages({"bulk": section(alone)})[PAGE]


def test_a_headline_says_rate_or_time_and_how_to_run_it_again():
    rate = median_case("lookup", [3.0], "requests/s", {"bare_django": [4.0]})
    time = median_case("tidegauge_1_20", [5.0], "ms", {"noop": [4.0]})

    page = pages({"lookup": section(rate), "batch-cost": section(time)})[PAGE]

    assert page.index("**1.25** times as long") < page.index("**0.75** times as fast") < page.index("## lookup")
    assert '| [lookup](#lookup), 2026-11-22 | `make bench ARGS="lookup"` |' in page
    assert "Without results yet: [merge](#merge), " in page


def test_a_benchmark_without_results_is_described_with_the_command_that_measures_it():
    page = pages({})[PAGE]

    assert 'It has no results yet. Measure it with `make bench ARGS="yahoo"`.' in page
    assert f"`trident`: {BENCHMARKS['yahoo'].unequal['trident']}" in page


def test_a_section_has_the_command_the_commit_and_the_load():
    page = pages({"lookup": section(median_case("lookup", [3.0], "requests/s", {"bare_django": [4.0]}))})[PAGE]

    assert '`make bench ARGS="lookup --rounds 3"`' in page
    assert "commit abc" in page
    assert "0.1, 0.2, 0.3" in page
