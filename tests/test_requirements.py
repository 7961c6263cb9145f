"""The pinned lists belong to pyproject.toml: one that was edited without `make requirements` is found here."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = DECLARED["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Packages that are called otherwise than they are imported, and those that others bring along.
CALLED = {
    "django-environ": "environ", "djangorestframework": "rest_framework", "psycopg[binary]": "psycopg",
    "django-unfold": "unfold", "protobuf": "google", "pyjwt": "jwt", "pyyaml": "yaml",
}  # fmt: skip
BROUGHT = {"pyspark": ["py4j"], "celery": ["kombu"]}

# What runs where only these extras are installed.
RUNS_WITH = {
    "state_backends": ["spark", "redis"],
    "pipelines": ["spark", "redis", "registry"],
    "pipelines/embedded": ["embedded"],
    "webapp": ["web", "oidc"],
    "webapp/commands/management": ["web", "spark", "embedded"],
    "tidegauge": ["web"],
    "tidegauge/testing": ["spark", "embedded"],
    "tidegauge/client": ["client"],
}

# What imports a folder, or asks it for a result of its own kind, and so is there when its code runs.
IMPORTED_BY = {"tidegauge/testing": {"pytest"}, "tidegauge/client": {"pandas", "polars", "pyarrow"}}


def pinned(file: str) -> dict[str, Requirement]:
    lines = [line.partition("#")[0].strip() for line in (ROOT / file).read_text().splitlines()]
    found = [Requirement(line) for line in lines if line]
    return {canonicalize_name(each.name): each for each in found}


@pytest.mark.parametrize(
    ("file", "declared"),
    [
        ("requirements.txt", [*PROJECT["dependencies"], *chain.from_iterable(EXTRAS.values())]),
        ("requirements-dev.txt", DECLARED["dependency-groups"]["dev"]),
    ],
)
def test_what_is_declared_is_pinned_within_its_bounds(file, declared):
    pins = pinned(file)

    for wanted in map(Requirement, declared):
        if wanted.name == "tidegauge":
            continue
        [pin] = pins[canonicalize_name(wanted.name)].specifier
        assert pin.operator == "=="
        assert wanted.specifier.contains(pin.version), wanted


def test_both_lists_pin_the_same_versions():
    runtime, dev = pinned("requirements.txt"), pinned("requirements-dev.txt")

    assert {name: dev[name].specifier for name in runtime.keys() & dev.keys()} == {
        name: runtime[name].specifier for name in runtime.keys() & dev.keys()
    }


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_the_lists_name_no_package_index(file):
    assert not re.search("://|--(extra-)?index-url|--find-links", (ROOT / file).read_text())


def importable(extras: Iterable[str]) -> set[str]:
    """The packages that are there with these extras."""
    called = {canonicalize_name(Requirement(name).name): package for name, package in CALLED.items()}
    names = [
        canonicalize_name(Requirement(each).name) for each in chain(PROJECT["dependencies"], *map(EXTRAS.get, extras))
    ]
    found = {called.get(name, name.replace("-", "_")) for name in names}
    return found.union(*(BROUGHT.get(name, []) for name in names))


def imports(folder: str) -> Iterator[tuple[str, str]]:
    """Every package that the files of a folder import, but Python's own and ours, with the file."""
    others = [other for other in RUNS_WITH if other.startswith(f"{folder}/")]
    for file in (ROOT / folder).rglob("*.py"):
        name = str(file.relative_to(ROOT))
        if name.startswith(tuple(others)):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            roots = {module.partition(".")[0] for module in modules}
            yield from ((root, name) for root in roots - {"tidegauge"} - sys.stdlib_module_names)


@pytest.mark.parametrize("folder", RUNS_WITH)
def test_what_the_code_imports_comes_with_the_extras_that_it_runs_with(folder):
    there = importable(RUNS_WITH[folder]) | IMPORTED_BY.get(folder, set())

    assert [(package, file) for package, file in imports(folder) if package not in there] == []


def test_the_page_about_installing_describes_every_extra():
    page = (ROOT / "docs" / "install.md").read_text()

    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(EXTRAS)
