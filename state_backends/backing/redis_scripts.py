"""The scripts that Redis runs for one state: the files in lua/, after the state's own words.

Every script names each key it touches in KEYS, and all of them share one hash tag, as a cluster asks.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from state_backends.spec import StateSpec, stored_column
from state_backends.table import StateTable, previous

# What goes before the script of that name.
NEEDS = {
    "admit": [],
    "committed": ["common", "packing"],
    "get": ["packing"],
    "merge": ["common", "packing", "arithmetic"],
    "publish": ["common"],
    "put": ["common", "packing"],
    "remove": ["common"],
    "revert": ["common"],
    "trim": ["common"],
}


def script_text(spec: StateSpec, name: str) -> str:
    """Return the text of one script for one state."""
    parts = [_words(spec), *map(file_text, NEEDS[name])]
    if name == "merge":
        parts.append(_fold(spec))
    return "\n".join([*parts, file_text(name)])


def fields(spec: StateSpec) -> list[str]:
    """Return the fields of a row's hash: a version's, its txid, and the same again as `prev_*`, as the kind keeps."""
    table = StateTable(spec)
    version = [*table.version, *(["txid"] if table.keeps_txid else [])]
    return [*version, *(previous(version) if table.keeps_previous else [])]


def _words(spec: StateSpec) -> str:
    table = StateTable(spec)
    lists = {"VALUES": table.values, "VERSION": table.version, "FIELDS": fields(spec)}
    return "\n".join([f'local KIND = "{spec.kind}"', *(f"local {name} = {_list(of)}" for name, of in lists.items())])


def _list(names: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{name}"' for name in names) + "}"


def _fold(spec: StateSpec) -> str:
    places = {name: place for place, name in enumerate(spec.value_columns, start=1)}
    folded = [
        aggregator.fold_lua[suffix].format(**_places(measure, aggregator.columns, places))
        for measure, aggregator in spec.measures.items()
        for suffix in aggregator.columns
    ]
    return f"local function fold(stored, columns, i)\n  return {{{', '.join(folded)}}}\nend"


def _places(measure: str, suffixes: Iterable[str], places: dict[str, int]) -> dict[str, str]:
    names = {}
    for suffix in suffixes:
        place = places[stored_column(measure, suffix)]
        tail = f"_{suffix}" if suffix else ""
        names[f"stored{tail}"] = f"(stored[{place}] or nil)"
        names[f"partial{tail}"] = f"columns[{place}][i]"
    return names


@cache
def file_text(name: str) -> str:
    return (Path(__file__).parent / "lua" / f"{name}.lua").read_text(encoding="utf-8")
