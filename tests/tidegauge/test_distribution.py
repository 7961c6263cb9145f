"""The distribution's name, and how a project depends on it."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tidegauge import distribution
from tidegauge.distribution import CHECKOUT, requirement
from tidegauge.state_backends.extras import DISTRIBUTION

PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
FORMER = "kramedit"[::-1]  # the name of another project on the package index; not written here, so that none is found


def tracked() -> list[Path]:
    command = ["git", "ls-files"]
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return [CHECKOUT / name for name in listed.splitlines()]


def texts() -> dict[Path, str]:
    not_text = {".png", ".webp", ".svg", ".woff2", ".xz"}
    return {file: file.read_text() for file in tracked() if file.suffix not in not_text and file.is_file()}


def test_the_constant_is_the_name_of_the_project_and_of_its_command():
    assert [DISTRIBUTION, *PROJECT["scripts"]] == [PROJECT["name"]] * 2


def test_no_file_and_no_text_has_the_former_name():
    found = [str(file) for file, text in texts().items() if FORMER in f"{file.relative_to(CHECKOUT)}\n{text}".lower()]

    assert len(texts()) > 1000
    assert found == []


def test_what_is_to_be_installed_has_the_name_of_the_constant():
    extras = "|".join(PROJECT["optional-dependencies"])
    named = re.compile(rf"[\"'`]([\w.-]+)\[(?:{extras})(?:,(?:{extras}))*\]")
    names = {name for text in texts().values() for name in named.findall(text)}

    # A checkout is installed by its place, and the file of a new project has a placeholder, which `init` fills.
    assert names - {".", "REQUIREMENT"} == {DISTRIBUTION}


def test_the_product_takes_the_name_from_the_constant():
    code = {file: text for file, text in texts().items() if file.suffix == ".py" and "tests" not in file.parts}

    assert [str(file) for file, text in code.items() if re.search(r"(?<!`)tidegauge\[", text)] == []


class Installed:
    """A distribution that pip has installed and noted an address of, or none."""

    def __init__(self, noted: str | None) -> None:
        self.read_text = lambda name: noted if name == "direct_url.json" else None


@pytest.mark.parametrize(
    ("noted", "required"),
    [
        (json.dumps({"url": "file:///dist/it.whl", "archive_info": {}}), "tidegauge[web] @ file:///dist/it.whl"),
        (None, "tidegauge[web]"),
    ],
)
def test_a_project_depends_on_what_was_installed(tmp_path, monkeypatch, noted, required):
    monkeypatch.setattr(distribution, "CHECKOUT", tmp_path)
    monkeypatch.setattr(distribution, "distribution", lambda name: Installed(noted))

    assert requirement("web") == required
