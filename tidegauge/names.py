"""Finds the module of each public name, as `__init__.pyi` lists them."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def imported(name: str) -> Any:
    """Return the object with this public name. Raises AttributeError, and MissingPackageError that names the extra."""
    if name not in homes():
        raise AttributeError(f"module 'tidegauge' has no attribute {name!r}")
    # Imported here, because this module is loaded before `tidegauge` itself is complete.
    from tidegauge.state_backends.extras import naming_the_extra

    with naming_the_extra():
        return getattr(import_module(homes()[name]), name)


def public_names() -> list[str]:
    return sorted(homes())


@cache
def homes() -> dict[str, str]:
    """Return each public name and its module, as `__init__.pyi` has them."""
    stub = ast.parse(Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8"))
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(each.module) for each in imports for alias in each.names}
