"""Checks that a tag can be released: `make release-check TAG=v1.2.3`. Needs no installed package."""

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def problems(tag: str, root: Path = ROOT) -> Iterator[str]:
    """Yield what has to be done before the tag can be released."""
    version = re.findall(r'^__version__ = "(.+)"', (root / "tidegauge/__init__.py").read_text(), re.MULTILINE)[0]
    if tag != f"v{version}":
        yield f"tag {tag!r} is not 'v{version}', the version in tidegauge/__init__.py; correct one of them"
    unreleased, *released = re.split(r"^## ", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    if unreleased.split() != ["Unreleased", "Nothing", "yet."]:
        yield f"CHANGELOG.md has unreleased changes; move them below '## {version}', and leave 'Nothing yet.'"
    if not any(section.split()[0] == version for section in released):
        yield f"CHANGELOG.md has no section '## {version}'"
    urls = tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]
    yield from (f"pyproject.toml: {name} is {url!r}; replace OWNER" for name, url in urls.items() if "OWNER" in url)


def main() -> None:
    found = list(problems(os.environ.get("TAG", "")))
    sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
