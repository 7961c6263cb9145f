"""Files of a configuration on the command line, and the file that secrets are written to. It loads no models."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from tidegauge.webapp.configuration.notation import NotationError, as_yaml, parse

STANDARD_INPUT = "-"


def add_arguments(parser: CommandParser) -> None:
    """Add the arguments that `apply` and `diff` share."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="YAML or JSON; -: standard input")
    parser.add_argument(
        "--prune", action="store_true", help="also remove what the files do not have, of the kinds that they have"
    )
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")


def read(files: list[str]) -> list[tuple[str, Any]]:
    """Return the content of each file with its name. Raises CommandError with the exit status 2."""
    return [(_shown(file), _content(file)) for file in files]


def check(files: list[str]) -> None:
    """Raises CommandError if a file cannot be read. Standard input can be read only once, so it is not checked."""
    read([file for file in files if file != STANDARD_INPUT])
    if len({*files}) < len(files):
        raise CommandError("a file is named twice", returncode=2)


@contextmanager
def new_secrets_file(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Create a file that only its owner may read, and yield what writes secrets into it; an empty one is removed.

    Raises CommandError if it exists.
    """
    try:
        # Created before anything is applied, because secrets that could not be written would be lost.
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandError(f"--secrets {str(path)!r}: {error.strerror}; name a new file", returncode=2) from error
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            yield lambda secrets: _write(file, secrets)
    except BaseException:
        # Nothing was applied, so the secrets are of objects that do not exist.
        path.unlink()
        raise
    if not path.stat().st_size:
        path.unlink()


def _write(file: Any, secrets: dict[str, Any]) -> None:
    if secrets:
        file.write(as_yaml(secrets))
        file.flush()
        with suppress(OSError):  # not all file systems can
            os.fsync(file.fileno())


def _shown(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _content(file: str) -> Any:
    try:
        raw = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
        return parse(raw.decode("utf-8-sig"))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", returncode=2) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{_shown(file)}: it is not UTF-8: {error}", returncode=2) from error
    except NotationError as error:
        raise CommandError(f"{_shown(file)}: {error}", returncode=2) from error
