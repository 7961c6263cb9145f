"""The client runs on later versions of Python than the server's: against a real server, sync and async."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tidegauge.pipelines.embedded.data_dir import REPOSITORY

# What httpx needs, all of it without compiled parts.
PACKAGES = ("httpx", "httpcore", "h11", "idna", "certifi", "anyio", "typing_extensions")

PROGRAM = """
import asyncio, os, sys
from tidegauge.client import AsyncClient, Client, NotFoundError

where = os.environ["TIDEGAUGE_URL"], os.environ["TIDEGAUGE_API_KEY"]
keys = [("JFK", f"C{n:02}") for n in range(30)]

def blocking():
    with Client(*where) as client:
        flights = client.state("flights_by_carrier")
        found = flights.get_many(keys, measures="flights").found
        try:
            client.state("nothing").info()
        except NotFoundError:
            return len(found), sum(1 for _ in flights.entries(page_size=25)), flights.export_to("flights.csv", "csv")

async def awaiting():
    async with AsyncClient(*where) as client:
        flights = client.state("flights_by_carrier")
        found = (await flights.get_many(keys, measures="flights")).found
        count = sum([1 async for _ in flights.entries(page_size=25)])
        return len(found), count, await flights.export_to("flights.csv", "csv")

print(sys.version_info[:2], blocking(), asyncio.run(awaiting()))
"""


def interpreter(version: str) -> str | None:
    """Return the program of a version; one that does not start, as pyenv leaves them, is none."""
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
        return None
    return found


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with the client and its packages, and nothing else that is installed here."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "tidegauge").symlink_to(REPOSITORY / "tidegauge")
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        installed = origin.parent if origin.name == "__init__.py" else origin
        (folder / installed.name).symlink_to(installed)
    return folder


@pytest.mark.parametrize("version", ["3.12", "3.13"])
@pytest.mark.usefixtures("flights")
def test_it_runs_on(version, web, api_key, packages, tmp_path):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")

    environ = {"TIDEGAUGE_URL": web.url, "TIDEGAUGE_API_KEY": api_key, "PYTHONPATH": str(packages)}
    ran = subprocess.run(
        [python, "-W", "error", "-c", PROGRAM], env=environ | {"PATH": os.environ["PATH"]},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    major, minor = version.split(".")
    assert (ran.stderr, ran.stdout) == ("", f"({major}, {minor}) (30, 60, 2) (30, 60, 2)\n")
