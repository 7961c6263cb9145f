"""The wheel, built once, and environments that it is installed into."""

import shutil
import tempfile
import venv
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidegauge.installed import pip
from tidegauge.pipelines.embedded.data_dir import REPOSITORY as CHECKOUT


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder outside the checkout that the embedded PostgreSQL's user may enter, too."""
    made = Path(tempfile.mkdtemp(prefix="tm-wheel-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def wheel(folder: Path) -> Path:
    pip("wheel", "--no-deps", "--wheel-dir", folder, CHECKOUT, cwd=folder)
    [built] = folder.glob("tidegauge-*.whl")
    return built


@pytest.fixture(scope="session")
def environment(folder: Path, wheel: Path) -> Callable[[str], Path]:
    """Makes an environment with the wheel, some extras and nothing else; returns the folder of its programs."""

    @cache
    def environment(extras: str) -> Path:
        home = folder / f"env-{extras or 'alone'}"
        venv.create(home, with_pip=False)
        wanted = [f"{wheel}[{extras}]" if extras else wheel, "--constraint", CHECKOUT / "requirements.txt"]
        pip("--python", home / "bin" / "python", "install", "--no-compile", *wanted, cwd=folder)
        return home / "bin"

    return environment
