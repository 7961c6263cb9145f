"""Wrong words of a command are refused before anything is loaded or started for its work.

What is checked is which modules a process has loaded, and not how long it took, which depends on the machine.
"""

import json
import os
import subprocess
import sys

import pytest

from tidegauge.pipelines.embedded.addresses import ADDRESSES
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.words import PARSED, own_apps

# What takes most of the time of a start: Spark, Celery, what travels between them and us, and Django's applications.
HEAVY = {"pyspark", "py4j", "pandas", "pyarrow", "numpy", "celery", "kombu", "rest_framework", "unfold", "structlog"}

COMMANDS = [*own_apps(), *PARSED]
WRONG = {
    "run_pipeline": 2,
    "run_pipeline nope": 2,
    "run_pipeline flights --trigger x": 2,
    "run_pipeline flights --once --trigger 5seconds": 2,
    "run_pipeline flights --max-failures 0": 2,
    "run_pipeline flights --conf spark.master=local": 2,
    "run_pipeline flights --files-per-batch many": 2,
    "run_pipeline flights flights": 2,
    "run_pipeline flights traffic --rebind": 2,
    "run_pipeline flights --state routes": 2,
    "run_pipeline flights --keep-old long": 2,
    "run nope": 2,
    "audit": 2,
    "audit flights --sample 0": 2,
    "backfill flights": 2,
    "create_api_key ann --scope nope": 2,
    "create_api_key ann --key-prefix 7": 2,
    "create_api_key ann --days -1": 2,
    "api_keys": 2,
    "demo --json": 2,
    "demo flights --once": 2,
    "move flights": 2,
    "pipelines pause": 2,
    "pipelines rewind flights": 2,
    "rebuild": 2,
    "rename flights": 2,
    "replay_dead_letters flights --since never": 2,
    "retire --drop": 2,
    "retire flights": 2,
    "set_state flights": 2,
    "set_state flights --ttl long": 2,
    "migrate --database other": 2,
    "web --port 0": 2,
    "worker --concurrency 0": 2,
    "backup saved --checkpoint orders": 2,
    "restore saved --checkpoint orders=s3://bucket/orders": 2,
    "nope": 1,
    "help nope": 1,
    **{f"{command} --no-such-option": 2 for command in COMMANDS},
    **{f"{command} --help": 0 for command in COMMANDS},
}

# Runs each line in one process, with the exit codes and the loaded packages as its result.
PROGRAM = """
import contextlib, io, json, os, sys
from tidegauge.cli import main
process, codes = os.getpid(), {}
for line in json.loads(sys.argv[1]):
    sys.argv[1:] = line.split()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main()
        except SystemExit as exit:
            codes[line] = exit.code or 0
    if os.getpid() != process:
        os._exit(codes[line])
print(json.dumps([codes, sorted({name.removeprefix("tidegauge.").partition(".")[0] for name in sys.modules})]))
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory) -> tuple[dict[str, int], set[str]]:
    """The exit code of each wrong line, and what the process that checked them all has loaded."""
    servers = dict.fromkeys(ADDRESSES, "postgresql://nobody@127.0.0.1:1/none")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([*WRONG])],
        cwd=REPOSITORY,
        env=os.environ | servers | {"TIDEGAUGE_HOME": str(tmp_path_factory.mktemp("home"))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    codes, loaded = json.loads(done.stdout)
    return codes, set(loaded)


def test_each_kind_of_wrong_word_has_its_exit_code_without_a_database(checked):
    codes, _ = checked

    assert codes == WRONG


def test_wrong_words_are_refused_before_spark_celery_and_djangos_applications_are_loaded(checked):
    _, loaded = checked

    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("run_pipeline nope", 2, "CommandError: pipeline 'nope' not found; there are ad_clicks, aircraft, "),
        ("compact --nope", 2, "usage: manage.py compact "),
        ("createsuperuser --nope", 2, "usage: manage.py createsuperuser "),
        (
            "run_pipelines",
            1,
            "Unknown command: 'run_pipelines'. Did you mean run_pipeline?\nType 'manage.py help' for ",
        ),
        ("migrate --help", 0, ""),
    ],
)
def test_no_server_is_started_for_wrong_words(tmp_path, line, code, said):
    environ = {name: value for name, value in os.environ.items() if name not in ADDRESSES}

    done = subprocess.run(
        [sys.executable, "manage.py", *line.split()],
        cwd=REPOSITORY,
        env=environ | {"TIDEGAUGE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr[: len(said)]) == (code, said)
    assert done.stdout.count("usage: manage.py migrate") == (code == 0)
    assert {path.name for path in tmp_path.iterdir()} <= {"secret_key"}
