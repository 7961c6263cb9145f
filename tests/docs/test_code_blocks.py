"""Every code block of the documentation: run here, or by a test that is named here, or at least read as what it is."""

import doctest
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import pytest
import yaml
from django.core.management import CommandError

import tidegauge
from docs.reference_pages import PAGES, page_of, parser_of
from tests.docs.blocks import Block, blocks, program
from tidegauge import cli
from tidegauge.pipelines.embedded.data_dir import REPOSITORY

# The tests that run the Python, SQL and shell of a page. Those that are absent are run in this file.
RUN_BY = {
    "README.md": "tests/test_readme.py",
    "aggregators.md": "tests/pipelines/test_docs.py",
    "api.md": "tests/webapp/api/test_examples.py",
    "client.md": "tests/webapp/client/test_page.py",
    "changing-tables.md": "tests/pipelines/jobs/test_order_totals.py",
    "configuration-as-files.md": "tests/webapp/configuration/test_page.py",
    "dashboard.md": "tests/webapp/console/sql/test_sql.py",
    "dead_letters.md": "tests/state_backends/dead_letters/test_replay.py",
    "events.md": "tests/webapp/events/test_documented.py",
    "generated-clients.md": "tests/webapp/api/test_typescript_client.py",
    "library.md": "tests/test_readme.py",
    "life-of-a-pipeline.md": "tests/webapp/maintenance/test_retire.py",
    "read-from-spark.md": "tests/pipelines/spark/test_state_source.py",
    "quickstart.md": "tests/tidegauge/test_stranger.py",
    "recovery.md": "tests/test_recovery_page.py",
    "spark-application.md": "tests/pipelines/driver/test_application_example.py",
    "search_index.md": "tests/pipelines/jobs/test_search_page.py",
    "streams.md": "tests/pipelines/test_docs.py",
    "testing.md": "tests/tidegauge/testing/test_page.py",
    "time.md": "tests/pipelines/declare/test_time_page.py",
    "webhooks.md": "tests/webapp/notify/webhooks/test_documented.py",
    "write-a-backend.md": "tests/pipelines/sqlite_backend/test_contract.py",
}

# Languages of text that is shown and not typed.
SHOWN = {"text", "console", "ini"}
READ = {"json": json.loads, "toml": tomllib.loads, "yaml": lambda text: list(yaml.safe_load_all(text))}

PROGRAMS = re.compile(r"^(?:python3? |\.venv/bin/(?:python )?|sudo )?(?:manage\.py|tidegauge) (.+)$")


def named(all_blocks: list[Block]) -> list[object]:
    return [pytest.param(block, id=str(block)) for block in all_blocks]


def test_there_are_blocks_of_each_language_that_is_checked():
    languages = {block.language for block in blocks()}

    assert languages - SHOWN == {"python", "pycon", "sh", "sql", "ts", *READ} & languages
    assert {"python", "pycon", "sh", "json", "toml"} <= languages


@pytest.mark.parametrize(("page", "test"), RUN_BY.items())
def test_a_test_that_is_named_reads_its_page(page, test):
    file = REPOSITORY / test

    assert page in file.read_text() + "".join(each.read_text() for each in file.parent.glob("*.py"))


@pytest.mark.parametrize("page", sorted({block.page for block in blocks("python")} - set(RUN_BY)))
def test_the_python_of_a_page_runs(page, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", program(page)], cwd=tmp_path, env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", sorted({block.page for block in blocks("pycon")}))
def test_the_sessions_of_a_page_print_what_it_shows(page):
    text = "\n".join(block.text for block in blocks("pycon") if block.page == page)
    session = doctest.DocTestParser().get_doctest(text, {}, page, page, 0)
    told: list[str] = []

    failed = doctest.DocTestRunner(verbose=False).run(session, out=told.append)

    assert failed.failed == 0, "".join(told)
    assert failed.attempted > 0


@pytest.mark.parametrize("block", named(blocks(*READ)))
def test_data_can_be_read(block):
    READ[block.language](block.text)


@pytest.mark.parametrize("block", named(blocks("sql", "ts")))
def test_sql_and_typescript_are_run_by_a_test_of_its_page(block):
    assert block.page in RUN_BY


@pytest.mark.parametrize("block", named(blocks("sh")))
def test_commands_are_ones_that_exist(block):
    checked = subprocess.run(["/bin/bash", "-n", "-c", block.text], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr

    for words in command_lines(block.text):
        check_command(words)


def command_lines(text: str) -> list[list[str]]:
    """Return each command of a script, without what is set before it."""
    joined = text.replace("\\\n", " ")
    parts = [part for line in joined.splitlines() for part in re.split(r" (?:&&|\|\|?|;) ", line)]
    words = [shlex.split(part, comments=True, posix=True) for part in parts if part.count("'") % 2 == 0]
    return [[word for word in each if not re.fullmatch(r"\w+=.*", word)] for each in words if each]


def check_command(words: list[str]) -> None:
    found = PROGRAMS.match(shlex.join(words))
    if found:
        name, *arguments = shlex.split(found[1])
        check_ours(cli.named(name), [word for word in arguments if word != "&"])
    elif words[:1] == ["make"]:
        assert re.search(rf"^{words[1]}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE), words
    elif words[:2] == ["python", "-m"]:
        assert find_spec(words[2]), words


def check_ours(name: str, arguments: list[str]) -> None:
    if name.startswith("-") or name in cli.OTHERS:
        return
    if "--help" not in arguments:
        parser_of(name).parse_args(arguments)


def test_a_command_that_is_not_ours_is_found():
    with pytest.raises(KeyError):
        check_command(["tidegauge", "run_pipelines", "orders"])


def test_an_option_that_a_command_lacks_is_found():
    with pytest.raises(CommandError):
        check_command(["tidegauge", "run", "orders", "--onse"])


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_a_line_that_bash_cannot_read_is_found():
    assert subprocess.run(["/bin/bash", "-n", "-c", "echo '"], capture_output=True, check=False).returncode


def test_every_public_name_is_on_a_page_of_the_reference():
    assert {page_of(name) for name in tidegauge.__all__ if name != "__version__"} == set(PAGES)
