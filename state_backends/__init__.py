"""Keyed state whose every update counts exactly once: maps, ledger, changelog, snapshot reads, trimming.

Knows neither Spark nor Django and needs psycopg only; extras.py has what is loaded at first use. `__init__.pyi` lists
the public names. A name is imported from where it lives when it is first used, because all of them take 0.4 s of CPU,
and a command that is used wrongly needs the errors alone.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {
    alias.name: str(each.module) for each in _STUB.body if isinstance(each, ast.ImportFrom) for alias in each.names
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
