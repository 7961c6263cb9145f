"""Shipping: bring this project's code to the executors of a cluster, so that no machine needs a checkout of it.

The packages travel as archives, which Spark unpacks into a folder that every Python worker imports from: real files, so
that code which reads a file beside itself finds it there too, and byte code is kept.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark import SparkContext

from pipelines.runtime.errors import RuntimeSetupError
from pipelines.runtime.home import REPOSITORY

PACKAGES = ("pipelines", "state_backends")
USERS_FILES = (".py", ".zip", ".egg")


def ship(context: SparkContext, files: Iterable[Path] = ()) -> None:
    """Give the executors our packages, and files of the user's: modules, and zips of packages."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for package in PACKAGES:
        # What follows the `#` is the name of the folder that it is unpacked into.
        context.addArchive(f"{pack(REPOSITORY / package, folder)}#{package}")
    for file in files:
        context.addPyFile(str(file))


def pack(package: Path, folder: Path) -> Path:
    """Return a new zip in `folder` of what lies in a package, its data files with it, its byte code without."""
    packed = shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    return Path(shutil.make_archive(str(packed), "zip", packed))


def users_files(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the files that `SPARK_PYFILES` names, parted by commas.

    Raises RuntimeSetupError for one that is not there, or is neither a module nor a zip.
    """
    files = [Path(name.strip()) for name in environ.get("SPARK_PYFILES", "").split(",") if name.strip()]
    for file in files:
        if file.suffix not in USERS_FILES or not file.is_file():
            raise RuntimeSetupError(
                f"SPARK_PYFILES: {str(file)!r} is no {', '.join(USERS_FILES)} file that is there; "
                "name modules, or zips of packages, parted by commas"
            )
    return files
