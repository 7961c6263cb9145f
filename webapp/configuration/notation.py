"""Reads and writes the text of a configuration: JSON, or the part of YAML 1.2 that means the same in every parser.

PyYAML reads YAML 1.1, where the carrier code NO is false, 12:30 is a number and a date is no text; here they are text.
Refused are repeated names, of which one would be lost without a word, and aliases, because nested ones expand to
gigabytes. It imports no models, so that commands can check their files early.
"""

import json
import re
from typing import Any

import yaml

BOOL, INT, FLOAT, NULL = (f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "null"))
# What plain text stands for something else than itself: the core schema of YAML 1.2, without octal and hexadecimal.
RESOLVED = [
    (BOOL, re.compile(r"^(?:true|false)$"), "tf"),
    (INT, re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), "-+0123456789"),
    (FLOAT, re.compile(r"^[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)$"), "-+0123456789"),
    (NULL, re.compile(r"^(?:null|~|)$"), ["n", "~", ""]),
]


class NotationError(ValueError):
    """The text is neither JSON nor YAML as far as it is read here; the message has the place."""


def parse(text: str) -> Any:
    """Return the value that a text of JSON or YAML stands for. Raises NotationError."""
    try:
        if text.lstrip().startswith("{"):
            return json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
        return yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise NotationError(f"{place}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise NotationError(str(error)) from None
    except RecursionError:
        raise NotationError("it is nested too deeply") from None


def as_yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="an alias is not allowed; write the value again", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value:
            if name.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{name.value!r} is there twice", problem_mark=name.start_mark)
            seen.add(name.value if isinstance(name.value, str) else str(name.value))
        return super().construct_mapping(node, deep=deep)


for tag, pattern, first in RESOLVED:
    _Loader.add_implicit_resolver(tag, pattern, list(first))


class _Dumper(yaml.SafeDumper):
    """Quotes what any version of YAML would read as something else than text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        # In double quotes, because PyYAML folds a key with a line separator of Unicode into a blank.
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')


for tag, pattern, first in RESOLVED:
    _Dumper.add_implicit_resolver(tag, pattern, list(first))


_Dumper.add_representer(str, _Dumper.represent_str)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")
