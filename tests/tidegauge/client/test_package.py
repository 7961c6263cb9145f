"""What the package `tidegauge.client` is made of, and what it takes to import it."""

import subprocess
import sys

import pytest

from tidegauge import client
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tools.blocking_client import NAMES, blocking, without_await

SERVER = {"django", "pyspark", "psycopg", "webapp", "pipelines", "state_backends", "pyarrow", "pandas", "polars"}


def python(program: str) -> subprocess.CompletedProcess[str]:
    environ = {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_the_blocking_calls_are_the_awaiting_ones_without_await(name):
    assert blocking(name).read_text() == without_await(name)


def test_it_loads_nothing_of_the_server():
    names = "{name.removeprefix('tidegauge.').split('.')[0] for name in sys.modules}"

    told = python(f"import sys, tidegauge.client; print(*{names})").stdout

    assert "httpx" in told.split()
    assert not SERVER & set(told.split())


def test_tidegauge_does_not_load_it():
    assert python("import sys, tidegauge; print('httpx' in sys.modules)").stdout == "False\n"


def test_without_httpx_the_extra_is_named():
    told = python("import sys; sys.modules['httpx'] = None; import tidegauge.client").stderr

    assert told.endswith(
        "MissingPackageError: package 'httpx' is not installed; install tidegauge[client], which has it\n"
    )


@pytest.mark.parametrize("name", client.__all__)
def test_a_public_name_says_what_it_is(name):
    assert getattr(client, name).__doc__
