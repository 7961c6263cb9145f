"""The wheel: it holds every file that the code reads, and works where nothing else was installed."""

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.waiting import eventually
from tests.tidegauge.installed import pip, run, users_environ
from tidegauge.pipelines.embedded.data_dir import free_port
from tidegauge.pipelines.embedded.postgres import EmbeddedPostgres

pytestmark = pytest.mark.processes

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "README.md").read_text()
[QUICKSTART] = re.findall(r"```sh\n(pip install .*?)```", README, re.DOTALL)
[LIBRARY] = re.findall(r"```python\n(.*?)```", (CHECKOUT / "docs" / "library.md").read_text(), re.DOTALL)

COUNTED = {"tea": 6.75, "bread": 3.2}
ASK = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT json_object_agg(product, revenue)::text FROM tidegauge_live.revenue")
    print(cursor.fetchone()[0])
"""
PAGES = """
from django.test import Client
from tidegauge.webapp.celery import app
app.connection().ensure_connection(max_retries=1)
pages = "/healthz /login /api/schema /api/docs /metrics /static/dashboard/shell.css".split()
print(*(Client().get(page, secure=True, headers={"host": "localhost"}).status_code for page in pages))
"""


@pytest.fixture(scope="module")
def alone(environment: Callable[[str], Path]) -> Path:
    return environment("")


def files_of(package: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(package, followlinks=True):
        yield from (Path(folder, name) for name in names if Path(folder).name != "__pycache__")


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("tidegauge-")}

    # Where Spark looks for the format "tidegauge", and what hatch_build.py makes.
    beside = {"pyspark_tidegauge.py", "tidegauge/webapp/console/dashboard/search/headings.json"}
    assert held - beside == {str(file.relative_to(CHECKOUT)) for file in files_of(CHECKOUT / "tidegauge")}
    assert beside < held


def test_another_checkout_at_another_time_builds_the_same_wheel_and_sdist(wheel, folder):
    copied, here = folder / "another place", folder / "sdist"
    environ = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=CHECKOUT).stdout
    # In another order, because a build may list folders as the disk does.
    for name in reversed(listed.splitlines()):
        if (CHECKOUT / name).exists():
            (copied / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CHECKOUT / name, copied / name, follow_symlinks=False)
            if not (copied / name).is_symlink():
                (copied / name).chmod(0o600)

    uv_build("--sdist", CHECKOUT, here)
    uv_build(copied, folder / "copied", **environ)

    assert digests(folder / "copied") == {**digests(here), wheel.name: digest(wheel)}


def uv_build(*words: str | Path, **environ: str) -> None:
    *options, target = words
    run(sys.executable, "-m", "uv", "build", "--quiet", *options, "--out-dir", target, cwd=CHECKOUT, **environ)


def digests(built: Path) -> dict[str, str]:
    return {file.name: digest(file) for file in built.iterdir() if file.name != ".gitignore"}


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_the_wheel_is_installed_beside_one_with_packages_of_the_same_names_as_our_folders(alone, folder):
    shop = folder / "shop-1.0-py3-none-any.whl"
    with zipfile.ZipFile(shop, "w") as file:
        for name in ("webapp", "pipelines", "state_backends"):
            file.writestr(f"{name}/__init__.py", "OWNER = 'shop'")
        file.writestr("shop-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
        file.writestr("shop-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("shop-1.0.dist-info/RECORD", "")
    pip("--python", alone / "python", "install", "--no-deps", shop, cwd=folder)
    program = "import pipelines, state_backends, webapp; from tidegauge import Count, StateSpec; print(webapp.OWNER)"

    ran = run(alone / "python", "-c", program, cwd=folder)
    pip("--python", alone / "python", "uninstall", "--yes", "shop", cwd=folder)

    assert ran.stdout == "shop\n"
    assert run(alone / "python", "-c", "from tidegauge import Count", cwd=folder).returncode == 0


def test_the_library_alone_brings_psycopg_and_nothing_else(alone):
    listed = "import importlib.metadata as m; print(*sorted(each.name for each in m.distributions()))"

    assert run(alone / "python", "-c", listed, cwd=alone).stdout.split() == [
        "psycopg", "psycopg-binary", "tidegauge", "typing_extensions",
    ]  # fmt: skip


def test_the_library_alone_does_what_its_page_shows(alone):
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
    served_and_stopped(tidegauge, project)


def served_and_stopped(tidegauge: Path, project: Path) -> None:
    """Run the web process in a folder without a Procfile; SIGTERM ends it, and the embedded servers after it."""
    port = free_port()
    with (project / "web.log").open("w") as log:
        web = subprocess.Popen(
            [tidegauge, "web", "--port", str(port)], cwd=project, env=users_environ(), stdout=log, stderr=log
        )
    eventually(lambda: connects(port), 60)
    web.terminate()

    assert web.wait(60) == 0, (project / "web.log").read_text()
    assert '"event":"Started worker-1"' in (project / "web.log").read_text()
    assert EmbeddedPostgres(project / ".tidegauge").process() is None


def connects(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
