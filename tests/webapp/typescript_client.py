"""TypeScript clients that openapi-ts makes of OpenAPI documents, compiled and run as in a program of a user."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typescript"
PACKAGES = HERE / "node_modules"
GENERATOR = "node_modules/@hey-api/openapi-ts/bin/run.js"
COMPILER = "node_modules/typescript/bin/tsc"


class Project:
    """A folder with programs and clients. Skips the test if Node's packages are not installed, but not in CI."""

    def __init__(self, folder: Path) -> None:
        if not (PACKAGES / ".package-lock.json").exists() and not os.environ.get("CI"):
            pytest.skip(f"no packages of Node in {PACKAGES}: make node-packages")
        self._folder = folder
        for name in ("package.json", "tsconfig.json"):
            shutil.copy(HERE / name, folder)
        (folder / "node_modules").symlink_to(PACKAGES)

    def add(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def generate(self, name: str, document: bytes) -> None:
        """Make the client `name` of an OpenAPI document."""
        (self._folder / f"{name}.json").write_bytes(document)
        self._node(GENERATOR, "--input", f"{name}.json", "--output", name, "--silent", "--no-log-file")

    def compile(self) -> None:
        self._node(COMPILER)

    def run(self, program: str, **environ: str) -> str:
        """Return what a compiled program prints."""
        return self._node(f"built/{program}", **environ)

    def _node(self, *command: str, **environ: str) -> str:
        ran = subprocess.run(
            [_find_node(), *command], cwd=self._folder, env={"PATH": os.environ["PATH"]} | environ,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def _find_node() -> str:
    # The one of the virtual environment before that of the machine, which may be too old for the generator.
    found = shutil.which("node", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert found is not None, "there is no Node: pip install -r requirements-dev.txt"
    return found
