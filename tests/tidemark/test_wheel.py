"""The wheel: it holds every file that the code reads, and works where nothing else was installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("tidemark", "webapp", "pipelines", "state_backends")
README = (CHECKOUT / "README.md").read_text()
[QUICKSTART] = re.findall(r"```sh\n(pip install .*?)```", README, re.DOTALL)
JOB, LIBRARY = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

# What a user's shell has and an installation may not rely on.
OF_THE_TESTS = re.compile("PYTHON|TIDEMARK_|SPARK_|DJANGO_|DATABASE_URL|REDIS_URL|JAVA_HOME|VIRTUAL_ENV")

COUNTED = {"tea": 6.75, "bread": 3.2}
ASK = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT json_object_agg(product, revenue)::text FROM tidemark_live.revenue")
    print(cursor.fetchone()[0])
"""
PAGES = """
from django.test import Client
from webapp.celery import app
app.connection().ensure_connection(max_retries=1)
pages = "/healthz /login /admin/login/ /api/schema /api/docs /metrics /static/dashboard/tidemark.css".split()
print(*(Client().get(page, secure=True, headers={"host": "localhost"}).status_code for page in pages))
"""


def run(*words: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not OF_THE_TESTS.match(name)}
    ran = subprocess.run(list(map(str, words)), cwd=cwd, env=environ, capture_output=True, text=True)
    assert not check or ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def pip(*words: str | Path, cwd: Path) -> None:
    """Run pip; without a way to packages the test is skipped, but not in CI."""
    ran = run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words, cwd=cwd, check=False)
    if ran.returncode and "connection broken by" in ran.stdout + ran.stderr and not os.environ.get("CI"):
        pytest.skip("no wheel for the tests: pip cannot reach the packages")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder outside the checkout that the embedded PostgreSQL's user may enter, too."""
    made = Path(tempfile.mkdtemp(prefix="tm-wheel-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    pip("wheel", "--no-deps", "--wheel-dir", folder, CHECKOUT, cwd=folder)
    [built] = folder.glob("tidemark-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(folder: Path, wheel: Path) -> Callable[[str], Path]:
    """Makes an environment with the wheel, some extras and nothing else; returns the folder of its programs."""

    def environment(extras: str) -> Path:
        home = folder / f"env-{extras or 'alone'}"
        venv.create(home, with_pip=False)
        wanted = [f"{wheel}[{extras}]" if extras else wheel, "--constraint", CHECKOUT / "requirements.txt"]
        pip("--python", home / "bin" / "python", "install", "--no-compile", *wanted, cwd=folder)
        return home / "bin"

    return environment


@pytest.fixture(scope="module")
def alone(environment: Callable[[str], Path]) -> Path:
    return environment("")


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("tidemark-")}

    files = (file for package in PACKAGES for file in (CHECKOUT / package).rglob("*") if file.is_file())
    assert held == {str(file.relative_to(CHECKOUT)) for file in files if "__pycache__" not in file.parts}


def test_the_library_alone_brings_psycopg_and_nothing_else(alone):
    listed = "import importlib.metadata as m; print(*sorted(each.name for each in m.distributions()))"

    assert run(alone / "python", "-c", listed, cwd=alone).stdout.split() == [
        "psycopg", "psycopg-binary", "tidemark", "typing_extensions",
    ]  # fmt: skip


def test_the_library_alone_does_what_the_readme_shows(alone):
    assert run(alone / "python", "-c", LIBRARY, cwd=alone).stdout == f"{LIBRARY.splitlines()[-1].split('# ')[1]}\n"


def test_the_library_alone_names_the_extra_of_what_it_lacks(alone):
    imported = run(alone / "python", "-c", "from tidemark import Stream", cwd=alone, check=False)
    command = run(alone / "tidemark", "check", cwd=alone, check=False)

    assert "package 'pyspark' is not installed; install tidemark[spark], which has it" in imported.stderr
    assert "package 'django' is not installed; install tidemark[web], which has it" in command.stderr
    assert "  run_pipeline " in run(alone / "tidemark", "--help", cwd=alone).stdout


def test_the_public_names_are_typed_for_users(alone, tmp_path):
    used = tmp_path / "used.py"
    used.write_text("from tidemark import Count, StateSpec\nStateSpec(1, key={}, measures={'n': Count()})\n")

    checked = run(
        sys.executable, "-m", "mypy", "--python-executable", alone / "python", used, cwd=tmp_path, check=False
    )

    assert 'Argument 1 to "StateSpec" has incompatible type "int"; expected "str"' in checked.stdout
    assert checked.stdout.endswith("Found 1 error in 1 file (checked 1 source file)\n")


@pytest.mark.spark
def test_the_quickstart_runs_where_the_wheel_was_installed(environment, folder):
    tidemark = environment("spark,web,embedded") / "tidemark"
    project = folder / "shop"
    install, *commands = re.split(" && |\n", QUICKSTART.strip())

    for command in commands:
        program, *words = command.split()
        if program == "tidemark":
            run(tidemark, *words, cwd=project if project.exists() else folder)

    assert install == "pip install '.[spark,web,embedded]'"
    assert json.loads(run(tidemark, "shell", "-v0", "-c", ASK, cwd=project).stdout) == COUNTED
    assert run(tidemark, "shell", "-v0", "-c", PAGES, cwd=project).stdout.split() == ["200"] * 7
    assert (project / ".tidemark").is_dir()
