"""The wheel: it holds every file that the code reads, and works where nothing else was installed."""

import json
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tidegauge.installed import run

pytestmark = pytest.mark.processes

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("tidegauge", "webapp", "pipelines", "state_backends")
README = (CHECKOUT / "README.md").read_text()
[QUICKSTART] = re.findall(r"```sh\n(pip install .*?)```", README, re.DOTALL)
JOB, LIBRARY = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

COUNTED = {"tea": 6.75, "bread": 3.2}
ASK = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT json_object_agg(product, revenue)::text FROM tidegauge_live.revenue")
    print(cursor.fetchone()[0])
"""
PAGES = """
from django.test import Client
from webapp.celery import app
app.connection().ensure_connection(max_retries=1)
pages = "/healthz /login /api/schema /api/docs /metrics /static/dashboard/shell.css".split()
print(*(Client().get(page, secure=True, headers={"host": "localhost"}).status_code for page in pages))
"""


@pytest.fixture(scope="module")
def alone(environment: Callable[[str], Path]) -> Path:
    return environment("")


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("tidegauge-")}

    files = (file for package in PACKAGES for file in (CHECKOUT / package).rglob("*") if file.is_file())
    # Where Spark looks for the format "tidegauge", and what hatch_build.py makes.
    beside = {"pyspark_tidegauge.py", "webapp/dashboard/search/headings.json"}
    assert held - beside == {str(file.relative_to(CHECKOUT)) for file in files if "__pycache__" not in file.parts}
    assert beside < held


def test_the_library_alone_brings_psycopg_and_nothing_else(alone):
    listed = "import importlib.metadata as m; print(*sorted(each.name for each in m.distributions()))"

    assert run(alone / "python", "-c", listed, cwd=alone).stdout.split() == [
        "psycopg", "psycopg-binary", "tidegauge", "typing_extensions",
    ]  # fmt: skip


def test_the_library_alone_does_what_the_readme_shows(alone):
    assert run(alone / "python", "-c", LIBRARY, cwd=alone).stdout == f"{LIBRARY.splitlines()[-1].split('# ')[1]}\n"


def test_the_library_alone_names_the_extra_of_what_it_lacks(alone):
    imported = run(alone / "python", "-c", "from tidegauge import Stream", cwd=alone, check=False)
    command = run(alone / "tidegauge", "check", cwd=alone, check=False)

    assert "package 'pyspark' is not installed; install tidegauge[spark], which has it" in imported.stderr
    assert "package 'django' is not installed; install tidegauge[web], which has it" in command.stderr
    assert "  run_pipeline " in run(alone / "tidegauge", "--help", cwd=alone).stdout


def test_the_public_names_are_typed_for_users(alone, tmp_path):
    used = tmp_path / "used.py"
    used.write_text("from tidegauge import Count, StateSpec\nStateSpec(1, key={}, measures={'n': Count()})\n")

    checked = run(
        sys.executable, "-m", "mypy", "--python-executable", alone / "python", used, cwd=tmp_path, check=False
    )

    assert 'Argument 1 to "StateSpec" has incompatible type "int"; expected "str"' in checked.stdout
    assert checked.stdout.endswith("Found 1 error in 1 file (checked 1 source file)\n")


@pytest.mark.spark
def test_the_quickstart_runs_where_the_wheel_was_installed(environment, folder):
    tidegauge = environment("spark,web,embedded") / "tidegauge"
    project = folder / "shop"
    install, *commands = re.split(" && |\n", QUICKSTART.strip())

    for command in commands:
        program, *words = command.split()
        if program == "tidegauge":
            run(tidegauge, *words, cwd=project if project.exists() else folder)

    assert install == "pip install '.[spark,web,embedded]'"
    assert json.loads(run(tidegauge, "shell", "-v0", "-c", ASK, cwd=project).stdout) == COUNTED
    assert run(tidegauge, "shell", "-v0", "-c", PAGES, cwd=project).stdout.split() == ["200"] * 6
    assert (project / ".tidegauge").is_dir()
