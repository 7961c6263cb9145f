import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import state_backends
import tidegauge
from tidegauge.names import PACKAGES, check_packages, homes

CHECKOUT = Path(__file__).resolve().parents[2]


def python(program: str, cwd: Path = CHECKOUT, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a user would: what is in the working folder comes first."""
    path = {"PYTHONPATH": str(CHECKOUT)}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, env=os.environ | path | environ, capture_output=True, text=True
    )


@pytest.mark.parametrize("name", tidegauge.__all__)
def test_a_public_name_is_what_its_module_has(name):
    assert getattr(tidegauge, name) is getattr(import_module(homes()[name]), name)


def test_all_of_the_library_is_public():
    assert set(state_backends.__all__) < set(tidegauge.__all__)


def test_no_name_stands_for_two_things():
    stub = (CHECKOUT / "tidegauge" / "__init__.pyi").read_text()
    names = [line.rpartition(" ")[2] for line in stub.splitlines() if line.startswith("from ")]

    assert sorted(names) == tidegauge.__all__


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tidegauge' has no attribute 'Steam'"):
        tidegauge.Steam  # noqa: B018


def test_a_declaration_loads_neither_a_driver_nor_an_extra():
    program = (
        "import sys; from tidegauge import Count, DistinctCount, StateSpec; "
        "StateSpec('s', key={'k': 'text'}, measures={'n': Count(), 'd': DistinctCount('x')}); "
        "print(*{name.split('.')[0] for name in sys.modules})"
    )

    loaded = set(python(program).stdout.split())

    assert "state_backends" in loaded
    assert not loaded & {"psycopg", "pyspark", "pyarrow", "datasketches", "redis", "orjson", "django", "structlog"}


def test_a_missing_extra_is_named():
    program = "import sys; sys.modules['pyspark'] = None; from tidegauge import Stream, JsonFiles"

    told = python(program).stderr

    assert told.endswith(
        "MissingPackageError: package 'pyspark' is not installed; install tidegauge[spark], which has it\n"
    )


@pytest.mark.parametrize(("package", "program"), [
    ("pipelines", "from tidegauge import Stream"),
    ("state_backends", "from tidegauge import Stream"),
    ("state_backends", "from tidegauge import Count"),
    ("webapp", "import sys; sys.argv = ['tidegauge', 'migrate']; from tidegauge.cli import main; main()"),
])  # fmt: skip
@pytest.mark.parametrize("file", ["{}.py", "{}/__init__.py"])
def test_a_package_of_the_users_that_hides_ours_is_named(tmp_path, package, program, file):
    hiding = tmp_path / file.format(package)
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("")

    told = python(program, tmp_path).stderr

    place = str(hiding if file == "{}.py" else hiding.parent)
    assert told.endswith(
        f"Tidegauge's package {package!r} is found at {place!r} instead of at {str(CHECKOUT / package)!r}; "
        "rename your module of that name, or take its folder off Python's path\n"
    )


def test_a_users_package_of_another_name_hides_nothing():
    check_packages(*PACKAGES)


def test_a_folder_of_data_with_the_name_of_a_package_hides_nothing(tmp_path):
    (tmp_path / "pipelines").mkdir()

    assert python("from tidegauge import Stream", tmp_path).returncode == 0
