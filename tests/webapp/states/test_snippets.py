"""Each snippet asks a real server or the database, and all of one question give the same rows."""

import ast
import csv
import json
import shutil
import subprocess
import sys

import pytest

from pipelines.embedded.data_dir import REPOSITORY
from tests.webapp.flights import BY_CARRIER, TOTALS
from tests.webapp.web_server import web_server
from webapp.accounts.services import create_api_key
from webapp.states import snippets
from webapp.states.snippets import Where

KEYS = [["JFK", "C01"], ["EWR", "C00"]]

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")

PROGRAMS = {
    "curl": ["/bin/bash", "-e", "-c"],
    "Python": [sys.executable, "-c"],
    "JavaScript": ["node", "--input-type=module", "-e"],
}


@pytest.fixture
def run(lasting, tmp_path):
    """Runs a snippet; returns what it printed, or the rows of SQL."""
    _, key = create_api_key("reader of a page", ["read"])
    with web_server(tmp_path) as server:

        def run(language, text):
            if language == "SQL":
                return lasting.conn.execute(text).fetchall()
            text = text.replace("http://localhost:8000", server.url)
            ran = subprocess.run(
                [*PROGRAMS[language], text],
                env={"TIDEMARK_API_KEY": key, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)},
                cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert (ran.returncode, ran.stderr) == (0, "")
            return ran.stdout

        yield run


WHERE = Where("http://localhost:8000")


def available(made):
    """The languages of a question; without Node there is no JavaScript here."""
    assert list(made) == list(snippets.LANGUAGES)
    return [language for language in made if language != "JavaScript" or shutil.which("node")]


def found(language, printed, list_name):
    """Return the keys and values that a snippet has printed."""
    if language == "SQL":
        return {tuple(row[:2]): row[2] for row in printed}
    if language == "Python":
        lines = [ast.literal_eval(f"[{_with_commas(line)}]") for line in printed.splitlines()]
        return {line[0]: line[-1]["flights"] for line in lines}
    rows = json.loads(printed)
    rows = rows if isinstance(rows, list) else rows[list_name]
    return {tuple(row["key"]): row["value"]["flights"] for row in rows}


def _with_commas(line):
    """`('a', 'b') found {..}` as a list of literals."""
    key, _, rest = line.partition(") ")
    return f"{key}), {rest[rest.index('{') :]}"


def test_a_lookup(run):
    made = snippets.lookup(WHERE, BY_CARRIER, KEYS, ["flights"])

    for language in available(made):
        rows = found(language, run(language, made[language]), "results")
        assert rows == {("JFK", "C01"): 99, ("EWR", "C00"): 1100}, language


def test_the_first_entries(run):
    made = snippets.entries(WHERE, BY_CARRIER, "-flights", 3)

    for language in available(made):
        rows = found(language, run(language, made[language]), "entries")
        assert list(rows.values()) == [1100, 100, 99], language
        assert list(rows)[:2] == [("EWR", "C00"), ("JFK", "C00")], language


def test_an_export(run, tmp_path):
    made = snippets.export(WHERE, BY_CARRIER)

    for language in available(made):
        printed, file = run(language, made[language]), tmp_path / "flights_by_carrier.csv"
        if language == "SQL":
            rows = [[*row[:2], str(row[2])] for row in printed]
        else:
            text = file.read_text() if file.exists() else printed
            rows = [row[:3] for row in csv.reader(text.splitlines()[1:]) if row]
        file.unlink(missing_ok=True)
        assert (len(rows), rows[0]) == (60, ["EWR", "C00", "1100"]), language


def test_a_state_without_key_columns(run):
    made = snippets.lookup(WHERE, TOTALS, [[]])

    assert run("SQL", made["SQL"]) == [(6130,)]
    assert run("Python", made["Python"]) == "() found {'flights': 6130}\n"
    assert json.loads(run("curl", made["curl"]))["results"][0]["value"] == {"flights": 6130}


def test_keys_with_quotes_stay_one_key(run):
    key = ["""it's "$HOME" `x` \\ ${1}""", "ü\n"]
    made = snippets.lookup(WHERE, BY_CARRIER, [key])

    assert run("SQL", made["SQL"]) == []
    for language in available(made)[1:-1]:
        assert "missing" in run(language, made[language])
    assert json.loads(run("curl", made["curl"]))["results"][0]["key"] == key


def test_the_page_of_the_api_shows_the_same_commands():
    page, where = (REPOSITORY / "docs" / "api.md").read_text(), Where("$URL", "KEY")

    lookup = snippets.lookup(where, BY_CARRIER, [["JFK", "C01"], ["JFK", "ZZ"]], ["flights"])
    assert lookup["curl"] in page
    assert lookup["SQL"] in page
    assert snippets.entries(where, BY_CARRIER, "-flights", 10)["curl"] in page
