"""The option --checkpoint NAME=DIR of `backup` and `restore`."""

from argparse import ArgumentParser
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from django.core.management.base import CommandError


def add_checkpoint_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="where the checkpoint of a pipeline is, if its driver runs with --checkpoint; may be repeated (default: "
        "DATA/checkpoints/NAME)",
    )


def check_names(given: Mapping[str, Path], names: Collection[str]) -> None:
    """Raise CommandError if a folder is given for a pipeline that there is not."""
    if unknown := [name for name in given if name not in names]:
        raise CommandError(f"--checkpoint {unknown[0]}=..: there is no such pipeline; there are {', '.join(names)}")


def checkpoint_targets(given: Sequence[str]) -> dict[str, Path]:
    """Return the folders by pipeline. Raises CommandError for words of another form, and for a store's address."""
    found = {}
    for words in given:
        name, _, folder = words.partition("=")
        if not name or not folder or "://" in folder:
            raise CommandError(
                f"--checkpoint {words!r}: write it as NAME=DIR, with a folder of this machine", returncode=2
            )
        found[name] = Path(folder).absolute()
    return found
