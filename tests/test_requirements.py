"""The pinned lists belong to pyproject.toml: one that was edited without `make requirements` is found here."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned(file: str) -> dict[str, Requirement]:
    lines = [line.partition("#")[0].strip() for line in (ROOT / file).read_text().splitlines()]
    found = [Requirement(line) for line in lines if line]
    return {canonicalize_name(each.name): each for each in found}


@pytest.mark.parametrize(
    ("file", "declared"),
    [
        ("requirements.txt", DECLARED["project"]["dependencies"]),
        ("requirements-dev.txt", DECLARED["dependency-groups"]["dev"]),
    ],
)
def test_what_is_declared_is_pinned_within_its_bounds(file, declared):
    pins = pinned(file)

    for wanted in map(Requirement, declared):
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
