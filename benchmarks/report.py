"""Write docs/benchmarks.md and its charts from docs/benchmarks.json: `python -m benchmarks.report`.

The same results give the same page, byte for byte. The module of a benchmark says what it measures, and how a case and
its reference differ apart from that.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.charts import Bar, chart
from benchmarks.headlines import HEADLINES, Headline
from benchmarks.registry import BENCHMARKS, Benchmark
from benchmarks.results import Section, read
from tidegauge.pipelines.embedded.data_dir import REPOSITORY

DOCS = REPOSITORY / "docs"
RESULTS, PAGE, CHARTS = Path("benchmarks.json"), Path("benchmarks.md"), Path("images/benchmarks")  # in docs

TITLE = """\
# Benchmarks

<!-- Written by `python -m benchmarks.report` from benchmarks.json and the modules in benchmarks/: do not edit. -->

How long or how fast Tidegauge is, as a multiple of what it is compared with.
"""

INTRODUCTION = """\
Each benchmark compares Tidegauge with a limit or a peer **in one run**: cases take turns, round by round, so that a
busy machine affects all of them alike. Use the ratios; rates on your own machine will differ.

- A **ratio** is a case's figure divided by the reference's in the same round. Tables and bars show the median of the
  rounds; the line across a bar's end covers half of the rounds, from the lower to the upper quartile.
- **Spread**: half of the rounds lie within this many percent of the median.
- **Rounds**: the number of measurements behind a median. For whole pipelines, each batch after the warm-up is one.

`make bench` runs all benchmarks and writes this page. `make bench ARGS="lookup ingest"` runs two of them and replaces
only their results. `ARGS="--rounds 5 --keys 1000000"` makes a run shorter, and the results say so. To run a benchmark
without writing anything: `.venv/bin/python -m benchmarks lookup`.

Two peers need separate environments in `.tidegauge/peers`, and run only if they are named. Install Feast with
`.venv/bin/python -m benchmarks.peers feast`, and compile Storm Trident, which takes Maven and a JDK, with
`.venv/bin/python -m benchmarks.peers trident`. Then run them by name, as `make bench ARGS="feast trident yahoo"`. The
three whose names begin with `yahoo` are compared with Trident too, take half an hour or more, and fetch Kafka from
Maven when they start.
"""

# A ratio in the first table, by the kind of its figure.
RESULTS_IN_WORDS = {
    "rates": "**{:.2f}** times as fast",
    "times": "**{:.2f}** times as long",
    "sizes": "**{:.2f}** times as large",
}

# The note of each kind of chart. A rate's unit ends in "/s".
NOTES = {
    "rates": "rate, divided by that of {}; right of the line is faster",
    "times": "time, divided by that of {}; left of the line is faster",
    "sizes": "size, divided by that of {}; left of the line is smaller",
}


def main() -> None:
    files = pages(read(DOCS / RESULTS))
    (DOCS / CHARTS).mkdir(parents=True, exist_ok=True)
    for path in [*(DOCS / CHARTS).glob("*.svg")]:
        path.unlink()
    for path, text in files.items():
        (DOCS / path).write_text(text)


def pages(sections: Mapping[str, Section]) -> dict[Path, str]:
    """Return the page and its charts: path in docs to text."""
    measured = {name: section for name in BENCHMARKS if (section := sections.get(name))}
    described = [_section(name, measured.get(name)) for name in BENCHMARKS]
    charts = {path: svg for name, section in measured.items() for path, (_, svg) in _charts(name, section).items()}
    parts = [TITLE, _headlines(measured), INTRODUCTION, _contents(), *described, _environments(measured)]
    return {PAGE: "\n".join(parts), **charts}


def _headlines(measured: Mapping[str, Section]) -> str:
    """Return the table of the first comparisons, as far as they are measured, and what is not measured yet."""
    lines = ["| Tidegauge | compared with | result | measured | run it again |", "|---|---|---|---|---|"]
    rows = [_headline(each, measured[each.benchmark]) for each in HEADLINES if each.benchmark in measured]
    missing = ", ".join(f"[{name}](#{name})" for name in BENCHMARKS if name not in measured)
    note = f"\n\nWithout results yet: {missing}." if missing else ""
    return "\n".join([*lines, *filter(None, rows)]) + f"{note}\n"


def _headline(headline: Headline, section: Section) -> str:
    """Return a row of the first table; empty if the results have no such ratio."""
    for case in section.cases:
        if case.name == headline.case and headline.reference in case.ratio:
            result = RESULTS_IN_WORDS[_kind(case.unit)].format(case.ratio[headline.reference])
            name = headline.benchmark
            run = f'[{name}](#{name}), {section.date[:10]} | `make bench ARGS="{name}"`'
            return f"| {headline.what} | {headline.against} | {result} | {run} |"
    return ""


def _contents() -> str:
    return "".join(f"- [{name}](#{name}): {_sentence(each.title)}\n" for name, each in BENCHMARKS.items())


def _section(name: str, section: Section | None) -> str:
    """Return what a benchmark measures and its results, or how to measure it if there are none."""
    benchmark = BENCHMARKS[name]
    results = [] if section is None else [*_charts_shown(name, section), *_tables(section)]
    paragraphs = [
        f"## {name}",
        _sentence(benchmark.title),
        *benchmark.details.split("\n\n"),
        *results,
        _unequal(benchmark),
        _run(name, section) if section else f'It has no results yet. Measure it with `make bench ARGS="{name}"`.',
    ]
    return "\n\n".join(part.strip() for part in paragraphs if part) + "\n"


def _charts_shown(name: str, section: Section) -> list[str]:
    return [f"![{alt}]({path})" for path, (alt, _) in _charts(name, section).items()]


def _charts(name: str, section: Section) -> dict[Path, tuple[str, str]]:
    """Return alternative text and SVG by path, for each kind of unit that has ratios."""
    references = [*BENCHMARKS[name].unequal]
    # A single reference is named in the note instead of in each label.
    of, label = (references[0], "{}") if len(references) == 1 else ("the reference", "{} / {}")
    bars: dict[str, list[Bar]] = {}
    for case in _compared(section.cases):
        for reference, (low, high) in case.quartiles.items():
            bar = Bar(label.format(case.name, reference), case.ratio[reference], low, high)
            bars.setdefault(_kind(case.unit), []).append(bar)
    return {
        CHARTS / f"{name}-{kind}.svg": (_alternative(kind, of, each), chart(each, NOTES[kind].format(of)))
        for kind, each in bars.items()
    }


def _alternative(kind: str, of: str, bars: Iterable[Bar]) -> str:
    return f"Ratios of {kind} to {of}: " + ", ".join(f"{bar.label} {bar.ratio:.2f}" for bar in bars)


def _compared(cases: Iterable[Case]) -> list[Case]:
    """Return the cases that are compared and are not a reference of others."""
    every = list(cases)
    references = {reference for case in every for reference in case.ratio}
    return [case for case in every if case.ratio and case.name not in references]


def _kind(unit: str) -> str:
    if unit.endswith("/s"):
        return "rates"
    return "times" if unit in ("s", "ms") else "sizes"


def _tables(section: Section) -> Iterator[str]:
    """Yield the table of compared figures, and the table of the others, which is collapsed if there are both."""
    references = {reference for case in section.cases for reference in case.ratio}
    compared = [case for case in section.cases if case.ratio or case.name in references]
    others = [case for case in section.cases if case not in compared]
    yield _table(compared or others)
    if compared and others:
        yield f"<details><summary>Other figures</summary>\n\n{_table(others)}\n\n</details>"


def _table(cases: Iterable[Case]) -> str:
    lines = ["| case | median | | spread | ratio | rounds |", "|---|---:|---|---:|---|---:|"]
    return "\n".join([*lines, *map(_row, cases)])


def _row(case: Case) -> str:
    ratios = ", ".join(f"**{ratio:.2f}** of {reference}" for reference, ratio in case.ratio.items())
    spread = f"±{case.spread:.0%}" if case.spread else ""
    return f"| {case.name} | {case.value_as_text()} | {case.unit} | {spread} | {ratios} | {case.rounds} |"


def _unequal(benchmark: Benchmark) -> str:
    if not benchmark.unequal:
        return ""
    return "What is unequal:\n\n" + "\n".join(f"- `{name}`: {text}" for name, text in benchmark.unequal.items())


def _run(name: str, section: Section) -> str:
    options = "".join(f" --{option} {value}" for option, value in section.options.items() if value)
    load = ", ".join(map(str, section.machine["load"]))
    return (
        f'`make bench ARGS="{name}{options}"` on {section.date[:10]}, commit {section.versions["Tidegauge"]}, '
        f"{section.seconds} s, load averages at the start {load}. Seeds: {section.seeds}."
    )


def _environments(measured: Mapping[str, Section]) -> str:
    """Return the machines and versions, each with the benchmarks that were run on it."""
    names: dict[str, list[str]] = {}
    for name, section in measured.items():
        names.setdefault(_environment(section), []).append(name)
    parts = [f"Of {', '.join(of)}:\n\n{environment}\n" for environment, of in names.items()]
    return "\n".join(["## Machine and versions\n", *parts]) if parts else ""


def _environment(section: Section) -> str:
    machine = section.machine
    rows = {"machine": f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['kernel']}"}
    rows |= {name: version for name, version in section.versions.items() if name != "Tidegauge"}
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def _sentence(text: str) -> str:
    """Return the text on one line, with a capital letter and a full stop."""
    line = " ".join(text.split())
    return line[:1].upper() + line[1:].removesuffix(".") + "."


if __name__ == "__main__":
    main()
