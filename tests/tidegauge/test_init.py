import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tidegauge.init import InitError, init

CHECKOUT = Path(__file__).resolve().parents[2]
FILES = [
    ".dockerignore", ".env", ".gitignore", "Dockerfile", "README.md", "compose.yaml", "pyproject.toml",
    "sample/orders.json", "shop/__init__.py", "shop/orders.py", "tests/conftest.py", "tests/test_orders.py",
]  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return init("shop", tmp_path)


def typed(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": str(CHECKOUT)} | environ
    return subprocess.run([sys.executable, *words], cwd=cwd, env=os.environ | path, capture_output=True, text=True)


def test_a_project_has_a_pipeline_its_test_settings_and_services(shop):
    assert sorted(str(file.relative_to(shop)) for file in shop.rglob("*") if file.is_file()) == FILES


def test_no_placeholder_is_left(shop):
    text = "".join(str(file) + file.read_text() for file in shop.rglob("*") if file.is_file())

    assert not [word for word in ("PROJECT", "RANDOM", "REQUIREMENT") if word in text]


def test_the_project_file_names_the_pipelines_module(shop):
    project = tomllib.loads((shop / "pyproject.toml").read_text())

    assert project["tool"]["tidegauge"]["pipelines"] == ["shop.orders"]
    assert project["project"]["dependencies"] == [f"tidegauge[spark,web,embedded] @ {CHECKOUT.as_uri()}"]


def test_every_project_has_secrets_of_its_own_that_others_cannot_read(shop, tmp_path):
    other = init("other", tmp_path)
    lines = [re.findall(r"^\w+=(.+)$", (each / ".env").read_text(), re.MULTILINE) for each in (shop, other)]

    assert len({*lines[0], *lines[1]}) == 6
    assert (shop / ".env").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["Shop", "my-shop", "2shops", "", "../shop", "class"])
def test_a_name_that_no_package_can_have_is_refused(tmp_path, name):
    with pytest.raises(InitError, match="is not a package name: use lower-case letters, digits and _"):
        init(name, tmp_path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["tests", "tidegauge", "json"])
def test_a_name_that_would_hide_another_package_is_refused(tmp_path, name):
    with pytest.raises(InitError, match=f"a package '{name}' already exists, which yours would hide"):
        init(name, tmp_path)


def test_an_existing_folder_is_left_alone(tmp_path):
    (tmp_path / "shop").mkdir()

    told = typed("-m", "tidegauge", "init", "shop", cwd=tmp_path)

    assert told.returncode == 2
    assert told.stderr == f"tidegauge init: '{tmp_path}/shop' already exists; use another name or folder\n"
    assert list((tmp_path / "shop").iterdir()) == []


def test_the_command_writes_the_project_into_the_working_folder(tmp_path):
    told = typed("-m", "tidegauge", "init", "shop", cwd=tmp_path)

    assert told.stdout == f"created {tmp_path}/shop; see its README.md for how to run it\n"
    assert (tmp_path / "shop" / "shop" / "orders.py").exists()


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--force"]])
def test_a_wrong_use_shows_the_right_one(tmp_path, words):
    told = typed("-m", "tidegauge", "init", *words, cwd=tmp_path)

    assert (told.returncode, told.stderr.partition("\n")[0]) == (2, "usage: tidegauge init NAME")


def test_a_command_reads_the_settings_of_the_project_and_those_of_the_environment_go_first(tmp_path):
    (tmp_path / ".env").write_text("SECRET_KEY=from-the-file-0123456789-abcdefgh\nTIDEGAUGE_KEEP_DAYS=3\n")
    show = "from django.conf import settings as s; print(s.SECRET_KEY, s.TIDEGAUGE_KEEP_DAYS)"

    told = typed("-m", "tidegauge", "shell", "-v0", "-c", show, cwd=tmp_path, TIDEGAUGE_KEEP_DAYS="5")

    assert told.stdout == "from-the-file-0123456789-abcdefgh 5\n"


@pytest.mark.spark
def test_the_projects_own_test_passes(shop):
    assert "1 passed" in typed("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=shop).stdout
