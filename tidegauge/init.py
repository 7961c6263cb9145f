"""`tidegauge init NAME`: writes a project with one pipeline, its test, and the settings and services that run it.

The files are copied from the folder `project`. In paths and contents, PROJECT stands for the project's name, RANDOM_1
for a new secret, and REQUIREMENT[extras] for the requirement that makes pip install the running Tidegauge.
"""

import keyword
import re
import secrets
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

from tidegauge.distribution import requirement

TEMPLATE = Path(__file__).with_name("project")
SUFFIX = ".txt"  # so that tools such as pytest and ruff do not treat the templates as code of this project
NAME = re.compile(r"[a-z][a-z0-9_]*")
REQUIREMENT = re.compile(r"REQUIREMENT\[([a-z,]+)\]")

USAGE = (
    "usage: tidegauge init NAME\n\nCreate a project in the new folder NAME: a pipeline, its test, settings, services."
)


class InitError(Exception):
    """A project cannot be written; the message says why and what to do."""


def init(name: str, parent: Path) -> Path:
    """Write the project into a new folder of that name, and return the folder. Raises InitError before it writes."""
    folder = parent / name
    _check(name, folder)
    for template in sorted(TEMPLATE.rglob(f"*{SUFFIX}")):
        place = str(template.relative_to(TEMPLATE)).replace("PROJECT", name).removesuffix(SUFFIX)
        _write(folder / place, template.read_text(encoding="utf-8").replace("PROJECT", name))
    return folder


def main(words: list[str]) -> None:
    """Run the command. Exits with status 2 on a usage error."""
    if {"-h", "--help"} & set(words):
        sys.stdout.write(f"{USAGE}\n")
        return
    if len(words) != 1 or words[0].startswith("-"):
        sys.stderr.write(f"{USAGE}\n")
        sys.exit(2)
    try:
        folder = init(words[0], Path.cwd())
    except InitError as error:
        sys.stderr.write(f"tidegauge init: {error}\n")
        sys.exit(2)
    sys.stdout.write(f"created {folder}; see its README.md for how to run it\n")


def _check(name: str, folder: Path) -> None:
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InitError(f"{name!r} is not a package name: use lower-case letters, digits and _, such as 'shop'")
    if name in ("tidegauge", "tests", "sample") or name in sys.stdlib_module_names:
        raise InitError(f"a package {name!r} already exists, which yours would hide; use another name")
    if folder.exists():
        raise InitError(f"{str(folder)!r} already exists; use another name or folder")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = REQUIREMENT.sub(lambda found: requirement(found[1]), text)
    # Hexadecimal, because letters and digits need no quoting in a URL.
    random: dict[str, str] = defaultdict(partial(secrets.token_hex, 24))
    # The mode is set before the content is written, because .env has secrets that other users must never read.
    file.touch(mode=0o600 if file.name == ".env" else 0o666)
    file.write_text(re.sub(r"RANDOM_\d", lambda found: random[found[0]], text), encoding="utf-8")
