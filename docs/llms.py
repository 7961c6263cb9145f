"""Writes llms.txt into the site: the pages in the order of the navigation, each with its first sentence.

MkDocs calls `on_post_build` (`hooks` in mkdocs.yml). Language models read this file first, to find the page that
answers a question (llmstxt.org).
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig

FOLDER = Path(__file__).parent
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def on_post_build(config: MkDocsConfig) -> None:
    assert config.nav is not None
    text = "\n".join(listing(str(config.site_name), config.nav)) + "\n"
    Path(config.site_dir, "llms.txt").write_text(text, encoding="utf-8")


def listing(name: str, nav: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the file. nav: as in mkdocs.yml, one page or one list of pages under each title."""
    yield f"# {name}\n"
    yield f"> {about(FOLDER / 'index.md')[1]}"
    for section in nav:
        for title, pages in section.items():
            yield f"\n## {title}\n"
            yield from map(_entry, [pages] if isinstance(pages, str) else pages)


def _entry(page: str) -> str:
    title, sentence = about(FOLDER / page)
    address = f"{page.removesuffix('.md')}.html".replace("README.html", "index.html")
    return f"- [{title}]({address})" + (f": {sentence}" if sentence else "")


def about(file: Path) -> tuple[str, str]:
    """Return the title and the first sentence of a page; of a generated page, only a title made from its name."""
    if not file.exists():
        return file.stem.capitalize(), ""
    heading, *paragraphs = file.read_text(encoding="utf-8").split("\n\n")
    prose = (paragraph for paragraph in paragraphs if re.match(r"(?!```)[\w`*\[]", paragraph))
    text = LINK.sub(r"\1", " ".join(next(prose, "").split()))
    sentence = re.split(r"(?<=\.) (?=[A-Z`])", text, maxsplit=1)[0]
    return heading.splitlines()[0].removeprefix("# "), sentence.removesuffix(":")
