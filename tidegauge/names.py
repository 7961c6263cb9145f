"""Finds the public names: which module has one, and whether that module is Tidegauge's.

`state_backends`, `pipelines` and `webapp` are common names. A package of the user's that comes before ours on Python's
path hides it, and what fails then is an import somewhere inside.
"""

import ast
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = ("state_backends", "pipelines", "webapp")
SITE = Path(__file__).resolve().parents[1]


class HiddenPackageError(ImportError):
    """Another package has the name of one of Tidegauge's and comes first: rename it, or change Python's path."""


def check_packages(*packages: str) -> None:
    """Raise HiddenPackageError unless these are the packages that were installed with this one."""
    for package in packages:
        place = _place(package)
        if place != SITE / package:
            found = f"is found at {str(place)!r}" if place else "is not found"
            raise HiddenPackageError(
                f"Tidegauge's package {package!r} {found} instead of at {str(SITE / package)!r}; rename your module of "
                "that name, or take its folder off Python's path",
                name=package,
            )


def imported(name: str) -> Any:
    """Return the public name. Raises AttributeError, HiddenPackageError, and MissingPackageError naming the extra."""
    if name not in homes():
        raise AttributeError(f"module 'tidegauge' has no attribute {name!r}")
    home = homes()[name]
    check_packages("state_backends", home.partition(".")[0])
    # Not above: it may be another package's.
    from state_backends.extras import naming_the_extra

    with naming_the_extra():
        return getattr(import_module(home), name)


def public_names() -> list[str]:
    return sorted(homes())


@cache
def homes() -> dict[str, str]:
    """Return each public name and its module, as `__init__.pyi` has them."""
    stub = ast.parse(Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8"))
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(each.module) for each in imports for alias in each.names}


def _place(package: str) -> Path | None:
    spec = find_spec(package)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or [])
    return Path(folders[0] if folders else spec.origin or "").resolve()
