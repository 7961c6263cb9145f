import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tidegauge
from tidegauge import state_backends
from tidegauge.names import homes

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
        "print(*{name.removeprefix('tidegauge.').split('.')[0] for name in sys.modules})"
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


@pytest.mark.parametrize("program", [
    "from tidegauge import Count, Stream",
    "import sys; sys.argv = ['tidegauge', 'check']; from tidegauge.cli import main; main()",
])  # fmt: skip
def test_packages_of_the_users_with_the_names_of_our_folders_are_not_in_the_way(tmp_path, program):
    for name in ("webapp", "pipelines", "state_backends"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('this is the {name} of the user')")

    ran = python(program, tmp_path)

    assert ran.returncode == 0, ran.stderr
