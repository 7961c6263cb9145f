"""Creates and finds the environments of peers, which are separate from Tidegauge's: `python -m benchmarks.peers NAME`.

They are in `.tidegauge/peers`, or in the folder that `TIDEGAUGE_PEERS` names.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tidegauge.pipelines.embedded.data_dir import REPOSITORY

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("TIDEGAUGE_PEERS") or REPOSITORY / ".tidegauge" / "peers").resolve()
FEAST_REQUIREMENTS, TRIDENT_PROJECT = HERE / "feast" / "requirements.txt", HERE / "trident" / "pom.xml"


class MissingPeerError(RuntimeError):
    """A peer's environment does not exist."""

    def __init__(self, name: str, path: Path) -> None:
        make = f"{sys.executable} -m benchmarks.peers {name}"
        super().__init__(f"peer {name!r} has no environment: {str(path)!r} does not exist; create it with `{make}`")


def make_feast() -> None:
    """Install Feast into a virtual environment."""
    venv.create(FOLDER / "feast", clear=True, with_pip=True)
    python = str(FOLDER / "feast" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(FEAST_REQUIREMENTS)]
    subprocess.run(install, check=True)


def feast_program(name: str) -> str:
    """Return the path of a program of Feast's environment."""
    return str(_existing("feast", FOLDER / "feast" / "bin" / name))


def make_trident() -> None:
    """Compile the topology, and copy the jars it needs, with Maven."""
    maven = shutil.which("mvn")
    if maven is None or shutil.which("javac") is None:
        raise RuntimeError(
            "trident is compiled with Maven and javac: install maven and a JDK, such as openjdk-17-jdk-headless"
        )
    target = FOLDER / "trident"
    command = [maven, "--quiet", "--batch-mode", "--file", str(TRIDENT_PROJECT), "package"]
    subprocess.run([*command, f"-DbuildFolder={target}"], check=True)


def trident_classpath() -> str:
    """Return the class path of the topology and its jars."""
    folder = _existing("trident", FOLDER / "trident" / "classes")
    return f"{folder}:{folder.parent / 'lib'}/*"


def pinned(pattern: str, path: Path) -> str:
    """Return the version that a file pins: the group of the pattern, which must match once."""
    [version] = re.findall(pattern, path.read_text(), re.MULTILINE)
    return str(version)


def _existing(name: str, path: Path) -> Path:
    if not path.exists():
        raise MissingPeerError(name, path)
    return path
