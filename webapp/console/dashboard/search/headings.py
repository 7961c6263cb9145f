"""Headings of the documentation for the search: read from docs/, or in a wheel from an index that was made from it.

hatch_build.py loads only this file to make the index, so it must not import the project.
"""

import json
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

INDEX = Path(__file__).with_name("headings.json")
DOCS = Path(__file__).absolute().parents[5] / "docs"

HEADING = re.compile(r"(#{1,3}) (.+)")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class Heading(NamedTuple):
    """page: title of its page. path: of the section in the built site, `api.html#series`."""

    title: str
    page: str
    path: str


@cache
def headings() -> list[Heading]:
    """Return the headings of this version's documentation; none if there is neither a docs folder nor an index."""
    if INDEX.exists():
        return [Heading(*each) for each in json.loads(INDEX.read_text(encoding="utf-8"))]
    return list(read(DOCS))


def read(docs: Path) -> Iterator[Heading]:
    """Yield the headings of the pages in a folder, of three levels, with the anchors that MkDocs gives them."""
    for file in sorted(docs.glob("*.md")):
        page, anchors = "", set[str]()
        for level, title in _headings(file.read_text(encoding="utf-8")):
            page = page or title
            anchor = _unique(_slug(title), anchors)
            yield Heading(title, page, f"{file.stem}.html" + ("" if len(level) == 1 else f"#{anchor}"))


def _headings(text: str) -> Iterator[tuple[str, str]]:
    in_code = False
    for line in text.splitlines():
        in_code ^= line.lstrip().startswith("```")
        if not in_code and (found := HEADING.fullmatch(line)):
            yield found[1], LINK.sub(r"\1", found[2]).replace("`", "").strip()


def _slug(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def _unique(anchor: str, taken: set[str]) -> str:
    """Return an anchor that is not taken, numbered from `_1` on, and take it."""
    number, found = 0, anchor
    while found in taken:
        number += 1
        found = f"{anchor}_{number}"
    taken.add(found)
    return found
