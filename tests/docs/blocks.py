"""The code blocks of the documentation."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tidegauge.pipelines.embedded.data_dir import REPOSITORY

DOCS = REPOSITORY / "docs"
FENCED = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)

# Decisions are history: what they show need not run any more.
PAGES = sorted(
    [REPOSITORY / "README.md", *(page for page in DOCS.rglob("*.md") if page.parent.name not in ("adr", "project"))]
)


class Block(NamedTuple):
    """A block and its place. page: its path within docs, or README.md; line: where its text begins."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """Return the blocks of all pages in these languages, or in any."""
    return [block for block in _blocks() if not languages or block.language in languages]


def program(page: str) -> str:
    """Return the Python blocks of a page as one program, each at the lines that it has on the page."""
    lines: list[str] = []
    for block in blocks("python"):
        if block.page == page:
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n"


def _blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        name = page.name if page.parent == REPOSITORY else page.relative_to(DOCS).as_posix()
        for found in FENCED.finditer(text):
            indent, language, body = found.groups()
            line = text.count("\n", 0, found.start(3)) + 1
            yield Block(name, line, language, re.sub(f"^{indent}", "", body, flags=re.MULTILINE))
