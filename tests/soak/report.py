"""Report: one line per fault while it runs, and a table of all of them.

`python -m tests.soak.report A.json B.json` prints the table of several runs, as `--json` has written them.
"""

import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.soak.run import Record, Result


def print_record(record: Record) -> None:
    verdict = "DEVIATION " + record.deviation if record.deviation else ""
    verdict = verdict or ("UNEXPLAINED " + record.unexplained if record.unexplained else "exact")
    refused = "".join(f"\n    refused: {error}\n    remedy: {remedy}" for error, remedy in record.refusals)
    what = f"{record.pipeline} {record.number:2} {record.name} ({record.note})"
    print(f"{what}: {record.seconds:.1f} s, {verdict}{refused}", flush=True)


def table(results: Sequence[Result]) -> str:
    """Return a Markdown table: fault, how often, refusals, deviations, seconds to recover (median, longest)."""
    records = [record for result in results for record in result.records]
    lines = [
        "| fault | times | refused, then mended | deviations | unexplained | seconds to recover: median | longest |",
        "|---|---|---|---|---|---|---|",
    ]
    for group, name in sorted({(record.group, record.name) for record in records}):
        lines.append(_row(f"{group}: {name}", [record for record in records if record.name == name]))
    lines.append(_row("all", records))
    return "\n".join(lines)


def _row(name: str, records: Iterable[Record]) -> str:
    found = list(records)
    seconds = [record.seconds for record in found] or [0.0]
    cells = [
        name,
        len(found),
        sum(bool(record.refusals) for record in found),
        sum(bool(record.deviation) for record in found),
        sum(bool(record.unexplained) for record in found),
        f"{statistics.median(seconds):.1f}",
        f"{max(seconds):.1f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def read(file: Path) -> Result:
    """Return a run as `--json` has written it."""
    fields = json.loads(file.read_text())
    return Result(**fields | {"records": [Record(**record) for record in fields["records"]]})


def figures(results: Sequence[Result]) -> str:
    """Return what the checkers have read, and what they were refused, as a line each."""
    answers, refused = (sum((Counter(part) for part in parts), Counter()) for parts in (
        [result.answers for result in results], [result.refused for result in results]))  # fmt: skip
    names = [f"{result.seed}: {len(result.records)} faults in {result.seconds / 60:.0f} min" for result in results]
    return "\n".join([
        f"seeds {'; '.join(names)}",
        f"transfers {sum(result.transfers for result in results)}, "
        f"upkeep {sum(result.upkeep_runs for result in results)}, "
        f"unavailable {sum(result.unavailable for result in results)}",
        f"answers {answers.total()}: {dict(answers)}",
        f"refused {refused.total()}: {dict(refused)}",
    ])  # fmt: skip


if __name__ == "__main__":
    runs = [read(Path(name)) for name in sys.argv[1:]]
    print(table(runs), figures(runs), sep="\n\n")
