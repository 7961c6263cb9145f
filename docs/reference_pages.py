"""Writes the reference pages of the site: every public name, every command with its options, every problem.

MkDocs calls `on_files` (`hooks` in mkdocs.yml). A name that is added to `tidegauge/__init__.pyi` or a command to webapp
is in the reference without a line here.
"""

import argparse
import inspect
import os
import re
from collections.abc import Iterator
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import tidegauge
from tidegauge import cli, client
from tidegauge.names import homes
from tidegauge.webapp.api import problems

# Where the modules that a name may live in are described, first match first; errors and aggregators come before.
PAGES = {
    "streams": (
        "Pipelines and streams",
        (
            "tidegauge.pipelines.declare.pipeline",
            "tidegauge.pipelines.declare.stream",
            "tidegauge.pipelines.declare.functions",
        ),
    ),
    "operators": ("Windows and operators", ("tidegauge.pipelines.operators", "tidegauge.pipelines.declare.windows")),
    "sources": ("Sources", ("tidegauge.pipelines.sources",)),
    "running": ("Running pipelines", ("tidegauge.pipelines", "tidegauge.names")),
    "states": (
        "States and backing maps",
        (
            "tidegauge.state_backends.spec.state_spec",
            "tidegauge.state_backends.spec.row",
            "tidegauge.state_backends.maps",
        ),
    ),
    "aggregators": ("Aggregators", ("tidegauge.state_backends.aggregators",)),
    "library": ("Ledger, readers, stores", ("tidegauge.state_backends",)),
    "errors": ("Errors", ()),
}

INTRODUCTION = {
    "aggregators": "Measures of `StateSpec(.., measures={..})`. [Aggregators](../aggregators.md) compares them.",
    "errors": "All derive from `TidegaugeError`. [Recovery](../recovery.md) has the remedies.",
    "sources": "What `Stream.read(..)` takes. [Streams](../streams.md) shows how they are used.",
    "streams": "What a pipeline is declared with. [Streams](../streams.md) has an example of each verb.",
}


CLIENT = (
    "`from tidegauge.client import ..`. [The Python client](../client.md) shows how it is used. `AsyncClient` and "
    "`AsyncState` have the same calls, to await."
)


class Arguments(griffe.Extension):
    """Makes a list of the lines of a docstring that begin with an argument's name, as `schema: the columns`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_list(obj.docstring.value)


def with_list(text: str) -> str:
    """Return a docstring with its arguments as a Markdown list. Several may begin on one line."""
    named = re.compile(r"^(\w+(?:, \w+)*): ", re.MULTILINE)
    lines = (named.sub(r"- `\1`: ", paragraph) for paragraph in text.split("\n\n"))
    return "\n\n".join(re.sub(r"^(?!- )(.*)\n- `", r"\1\n\n- `", each, count=1, flags=re.MULTILINE) for each in lines)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of the folder."""
    for name, (title, _) in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=_page(name, title)))
    files.append(File.generated(config, "reference/client.md", content=_client()))
    files.append(File.generated(config, "reference/commands.md", content="\n".join(_commands())))
    files.append(File.generated(config, "reference/problems.md", content=problems.markdown()))
    return files


def _client() -> str:
    """Return the page of the client, its two classes first."""
    names = ["Client", "State", *(name for name in client.__all__ if not name.endswith(("Client", "State")))]
    parts = ["# Client", CLIENT, *(f"::: {getattr(client, name).__module__}.{name}" for name in names)]
    return "\n\n".join(parts)


def page_of(name: str) -> str:
    """Return the reference page that a public name is on."""
    thing = getattr(tidegauge, name)
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return "errors"
    home = _module(name)
    return next(page for page, (_, modules) in PAGES.items() if any(_within(home, module) for module in modules))


def _page(page: str, title: str) -> str:
    names = sorted((name for name in homes() if page_of(name) == page), key=lambda name: _rank(name, PAGES[page][1]))
    parts = [f"# {title}", INTRODUCTION.get(page, ""), *(f"::: {_path(name)}" for name in names)]
    return "\n\n".join(part for part in parts if part)


def _rank(name: str, modules: tuple[str, ...]) -> int:
    """Return which of a page's modules a name is of; those of the first come first."""
    return next((rank for rank, module in enumerate(modules) if _within(_module(name), module)), 0)


def _path(name: str) -> str:
    return f"{_module(name)}.{getattr(getattr(tidegauge, name), '__qualname__', name)}"


def _module(name: str) -> str:
    """Return the module that defines a public name; `tidegauge` may know the package that passes it on."""
    return str(getattr(getattr(tidegauge, name), "__module__", None) or homes()[name])


def _within(home: str, module: str) -> bool:
    return home == module or home.startswith(f"{module}.")


def _commands() -> Iterator[str]:
    """Yield the lines of the page of commands."""
    yield "# Commands\n"
    yield "In a checkout, `tidegauge` is `.venv/bin/tidegauge`. `tidegauge COMMAND --help` prints the same.\n"
    for name, summary in sorted(cli.own_commands()):
        yield f"## {name}\n\n{summary}\n"
        yield from _options(parser_of(name))


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of one of Tidegauge's commands."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tidegauge.webapp.settings")
    import django
    from django.core.management import get_commands, load_command_class

    django.setup()
    return load_command_class(get_commands()[command], command).create_parser("tidegauge", command)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a table of the arguments that are the command's own."""
    from django.core.management.base import DjangoHelpFormatter

    shared = {"-h", "--help", *DjangoHelpFormatter.show_last}
    own = [each for each in parser._actions if not shared & set(each.option_strings)]
    yield "| argument | |\n|---|---|"
    for each in own:
        help = parser._get_formatter()._expand_help(each) if each.help else ""
        yield f"| `{_spelling(each)}` | {help.replace('|', chr(92) + '|')} |"
    yield ""


def _spelling(argument: argparse.Action) -> str:
    value = argument.metavar or (",".join(map(str, argument.choices)) if argument.choices else argument.dest.upper())
    if not argument.option_strings:
        return str(value)
    return argument.option_strings[-1] + (f" {value}" if argument.nargs != 0 else "")
