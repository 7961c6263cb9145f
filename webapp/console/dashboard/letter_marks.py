"""Marks the part of a dead letter's input that its reason is about, so that people see it without reading the line."""

import re
from dataclasses import dataclass

# Reasons begin with the column; see pipelines/sources/parsing.py and pipelines/batch/misfits.py.
COLUMN = re.compile(r"(?:measure \w+: |key column )?(?P<column>\w+)(?:: | does not fit | is null)")
GOT = re.compile(r", got (?P<value>.+)$|: required, and ", re.DOTALL)
POSITION = re.compile(r"not JSON: .* at column (?P<place>\d+)$")

# Rows show this much of a line: what is marked, and this many characters before it, because a row may be narrow.
SHOWN_CHARACTERS, BEFORE_CHARACTERS = 160, 12


@dataclass(frozen=True)
class MarkedLine:
    """A line in three parts, of which the second is marked; it may be empty. The first and the last may be cut."""

    before: str
    marked: str
    after: str


def marked_line(line: str, reason: str) -> MarkedLine:
    """Return an excerpt of a line around the field that the reason names; its beginning if it names none."""
    begin, end = _span(line, reason)
    start = begin - BEFORE_CHARACTERS if begin > 2 * BEFORE_CHARACTERS else 0
    marked = line[begin : min(end, begin + SHOWN_CHARACTERS)]
    stop = max(start + SHOWN_CHARACTERS, begin + len(marked))
    before = f"{'…' if start else ''}{line[start:begin]}"
    return MarkedLine(before, marked, f"{line[begin + len(marked) : stop]}{'…' if stop < len(line) else ''}")


def _span(line: str, reason: str) -> tuple[int, int]:
    if found := POSITION.match(reason):
        place = int(found["place"]) - 1
        return (place, place + 1) if place < len(line) else (max(0, len(line) - 1), len(line))
    if not (column := COLUMN.match(reason)):
        return 0, 0
    # The name with its value, a text, a number or a word; objects and lists are marked up to their first comma.
    field = rf'"{re.escape(column["column"])}"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[^,}}\]]*)'
    if found := re.search(field, line):
        return found.span()
    got = GOT.search(reason)
    value = ((got and got["value"]) or "").strip("'\"")
    # Only if it occurs once, because a line of CSV has no names.
    if value and line.count(value) == 1:
        begin = line.index(value)
        return begin, begin + len(value)
    return 0, 0
