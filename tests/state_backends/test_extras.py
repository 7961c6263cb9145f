import importlib
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import psutil
import psycopg
import pytest

from tidegauge.state_backends import Max, MissingPackageError, PostgresBackingMap, StateSpec, Versioned
from tidegauge.state_backends.extras import EXTRAS, OptionalModule, naming_the_extra

OPTIONAL = ("pyarrow", "datasketches", "redis", "orjson", "structlog")
DECLARED = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]


def run_without(packages: tuple[str, ...], program: str) -> subprocess.CompletedProcess[str]:
    absent = "import sys\n" + "".join(f"sys.modules[{package!r}] = None\n" for package in packages)
    return subprocess.run([sys.executable, "-c", absent + program], capture_output=True, text=True)


def test_the_extras_that_are_named_exist():
    assert set(EXTRAS.values()) <= set(DECLARED["optional-dependencies"])


def test_the_library_depends_on_psycopg_alone():
    assert DECLARED["dependencies"] == ["psycopg[binary]"]


def test_a_module_is_loaded_at_its_first_use():
    program = (
        "from tidegauge.state_backends.extras import OptionalModule; module = OptionalModule('orjson'); "
        "before = 'orjson' in sys.modules; print(before, module.loads('[1]'), 'orjson' in sys.modules)"
    )

    assert run_without((), program).stdout == "False [1] True\n"


def test_an_attribute_is_looked_up_once():
    module = OptionalModule("decimal")

    found = module.Decimal

    assert vars(module)["Decimal"] is found is Decimal


def test_a_missing_package_that_no_extra_has_is_the_ordinary_error():
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'") as raised, naming_the_extra():
        import no_such_package  # noqa: F401

    assert not isinstance(raised.value, MissingPackageError)


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        ("pyarrow", "from tidegauge.state_backends.spec.types import type_of; type_of('text').arrow", "spark"),
        ("datasketches", "from state_backends import TopK; TopK('x').fold({}, {'sketch': b'..'})", "spark"),
        (
            "redis",
            "from state_backends import BACKENDS; import os; os.environ['REDIS_URL'] = 'redis://localhost'; "
            "BACKENDS['redis'].check()",
            "redis",
        ),
    ],
)
def test_what_needs_a_missing_package_names_the_extra(package, use, extra):
    told = run_without((package,), f"import tidegauge.state_backends.backends; {use}").stderr

    assert told.endswith(
        f"MissingPackageError: package {package!r} is not installed; install tidegauge[{extra}], which has it\n"
    )


def test_rows_are_kept_in_postgresql_with_psycopg_alone(database_url):
    program = f"""
import psycopg
from tidegauge.state_backends import *
spec = StateSpec("kept", key={{"page": "text"}}, measures={{"views": Count(), "users": DistinctCount("user")}})
with psycopg.connect({database_url!r}, autocommit=True) as conn:
    rows = PostgresBackingMap(conn, spec, create=True)
    values = [dict.fromkeys(spec.value_columns) | {{"views": n}} for n in (1, 2)]
    rows.multi_put([("/a",), ('/"b"',)], [Versioned(value, txid=1) for value in values])
    print(*(row.value["views"] for row in rows.multi_get([('/"b"',), ("/a",)])))
"""

    ran = run_without(OPTIONAL, program)

    assert (ran.stdout, ran.stderr) == ("2 1\n", "")


def test_a_time_without_a_zone_is_utc_whatever_the_sessions_is(database_url):
    spec = StateSpec("seen", key={"user": "text"}, measures={"last": Max("at", "timestamptz")})
    with psycopg.connect(database_url, autocommit=True, options="-c timezone=Asia/Tokyo") as conn:
        rows = PostgresBackingMap(conn, spec, create=True)

        rows.multi_put([("ann",)], [Versioned({"last": datetime(2026, 1, 1, 12)}, txid=1)])

        [row] = rows.multi_get([("ann",)])
    assert row.value == {"last": datetime(2026, 1, 1, 12, tzinfo=UTC)}


def test_a_package_of_another_version_is_named_with_what_it_lacks():
    with pytest.raises(MissingPackageError) as caught, naming_the_extra():
        importlib.import_module("psutil.no_such_module")

    assert str(caught.value) == (
        f"package 'psutil' has version {psutil.__version__!r}, which lacks what is needed (No module named "
        "'psutil.no_such_module'); install the one from tidegauge[embedded], which has it"
    )
