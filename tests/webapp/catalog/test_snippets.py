"""Each snippet runs as it is printed, and all of one question give the same rows: with bash, Python, Node and psql."""

import ast
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial

import pytest

from tests.webapp.api.saved_queries.published import SHARE, TOP, published
from tests.webapp.api.states import add_state
from tests.webapp.committed_flights import committed_flights
from tests.webapp.flights import BY_CARRIER, TOTALS
from tests.webapp.web_server import database_url
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.state_backends import Count, StateSpec
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import snippets
from tidegauge.webapp.catalog.programs import Server
from tidegauge.webapp.catalog.snippets import LANGUAGES, Wanted

KEYS = [["JFK", "C01"], ["EWR", "C00"]]

# What a shell, JavaScript, Python, SQL, psql, curl or an address may read as something else.
STRANGE = [
    ["""it's "$HOME" `id` $(id) \\ ${1} !! #{x}""", "ü\n\t😀"],
    ["';DROP TABLE x;--", ":carrier :'carrier' {a,b} [1-2]"],
    ["@/etc/passwd", "a=b&c=d+e%41;f?g#h"],
    ["</script>\u2028", "*"],
]
IN_NO_PATH = [["a/b", "c"], ["..", "."], ["", "C01"]]

LARGE = StateSpec("large_numbers", key={"id": "bigint", "share": "double precision"}, measures={"n": Count()})

PROGRAMS = {
    "curl": ["/bin/bash", "-e", "-c"],
    "Python": [sys.executable, "-c"],
    "JavaScript": ["node", "--input-type=module", "-e"],
}
NEEDED = {"curl": "curl", "JavaScript": "node"}


@pytest.fixture(params=LANGUAGES)
def language(request):
    program = NEEDED.get(request.param)
    if program is not None and shutil.which(program) is None:
        assert "CI" not in os.environ, f"there is no {program} here"
        pytest.skip(f"there is no {program} here")
    return request.param


@pytest.fixture
def server(web_process):
    return Server(web_process.url)


@pytest.fixture(scope="module")
def shown(module_database):
    """A key to read committed flights and two saved queries, which the tests with `run` leave as they are."""
    with committed_flights() as pipeline:
        published("top", TOP)
        published("share", SHARE)
        yield Runner(pipeline.conn)


@pytest.fixture
def run(shown, language, tmp_path):
    """Runs the program of the language, without a word of it changed; returns what it printed, as CSV for SQL."""
    return partial(shown.run, language, tmp_path)


@pytest.fixture
def run_own(lasting, language, tmp_path):
    """As `run`, for a test that commits more."""
    return partial(Runner(lasting.conn).run, language, tmp_path)


class Runner:
    """Runs snippets with an API key of its own. conn: for SQL where there is no psql."""

    def __init__(self, conn):
        self._conn = conn
        _, self._key = create_api_key("reader of a page", ["read"], rate=0)

    def run(self, language, folder, made, *, fails=False):
        assert list(made) == [each for each in LANGUAGES if each in made]
        if language == "SQL":
            return self._in_psql(made["SQL"])
        paths = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": "/"}
        ran = subprocess.run(
            [*PROGRAMS[language], made[language]],
            env={"TIDEGAUGE_API_KEY": self._key, **paths},
            cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (ran.returncode != 0, ran.stderr != "") == (fails, fails), ran.stderr
        return ran.stdout + ran.stderr

    def _in_psql(self, text):
        if shutil.which("psql") is None:
            rows = self._conn.execute(text).fetchall()
            return "\n".join(json.dumps(row, default=str) for row in rows)
        command = ["psql", "-X", "--csv", "--tuples-only", "-v", "ON_ERROR_STOP=1", database_url()]
        ran = subprocess.run(command, input=text + ";\n", capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        return "\n".join(json.dumps(row) for row in csv.reader(io.StringIO(ran.stdout)))


def found(language, printed, name):
    """Return the keys and the numbers of flights that a snippet has printed. name: of the list in the API's answer."""
    if language == "SQL":
        rows = [json.loads(line) for line in printed.splitlines()]
        return {tuple(row[:2]): int(row[2]) for row in rows}
    if language == "Python":
        lines = [ast.literal_eval(f"[{_with_commas(line)}]") for line in printed.splitlines()]
        return {line[0]: line[-1]["flights"] for line in lines}
    rows = json.loads(printed)
    rows = rows if isinstance(rows, list) else rows[name]
    return {tuple(row["key"]): row["value"]["flights"] for row in rows}


def _with_commas(line):
    """`('a', 'b') found {..}` as a list of literals."""
    key, _, rest = line.rpartition(") ")
    return f"{key}), {rest[rest.index('{') :]}"


def value(language, printed):
    """Return the number of flights of the one key that a snippet has printed."""
    if language == "SQL":
        return int(json.loads(printed)[-1])
    if language == "Python":
        return ast.literal_eval(printed)["flights"]
    document = json.loads(printed)
    return document.get("value", document)["flights"]


def test_a_lookup(run, language, server):
    printed = run(snippets.lookup(server, BY_CARRIER, KEYS, ["flights"]))

    assert found(language, printed, "results") == {("JFK", "C01"): 99, ("EWR", "C00"): 1100}


def test_one_key(run, language, server):
    assert value(language, run(snippets.one_key(server, BY_CARRIER, KEYS[1], ["flights"]))) == 1100


def test_the_first_entries(run, language, server):
    rows = found(language, run(snippets.entries(server, BY_CARRIER, Wanted("-flights", limit=3))), "entries")

    assert list(rows.values()) == [1100, 100, 99]
    assert list(rows)[:2] == [("EWR", "C00"), ("JFK", "C00")]


@pytest.mark.parametrize(
    ("where", "count"),
    [
        (["flights>=99"], 4),
        (["flights>98", 'carrier in ["C00", "it\'s \\"$x\\""]', "origin != EWR"], 1),
        (["max_delay is not null", "mean_delay=12.5", "carrier<C03", "flights>97"], 6),
        (["max_delay is null"], 0),
        (['origin="=$HOME"'], 0),
    ],
)
def test_entries_that_meet_conditions(run, language, server, where, count):
    rows = found(language, run(snippets.entries(server, BY_CARRIER, Wanted(where=where, limit=100))), "entries")

    assert len(rows) == count


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        (Wanted(prefix=["EWR"], where=["flights>1000"]), {("EWR", "C00")}),
        (
            Wanted("flights", ["flights<75"], limit=5, prefix=["JFK"], search="c2"),
            {("JFK", f"C{n}") for n in range(26, 30)},
        ),
        (Wanted(search="ew", where=["flights=1100"]), {("EWR", "C00")}),
        (Wanted(search="%"), set()),
    ],
)
def test_entries_with_a_prefix_and_those_that_a_search_finds(run, language, server, wanted, keys):
    rows = found(language, run(snippets.entries(server, BY_CARRIER, wanted)), "entries")

    assert set(rows) == keys


def test_a_lookup_in_an_earlier_batch(run, language, server):
    made = snippets.lookup(server, BY_CARRIER, [["EWR", "C00"]], ["flights"], at_txid=1)

    if language == "SQL":
        assert "SQL" not in made
    else:
        assert found(language, run(made), "results") == {("EWR", "C00"): 100}


def test_entries_of_an_earlier_batch(run, language, server):
    made = snippets.entries(server, BY_CARRIER, Wanted("-flights", ["carrier=C00"], at_txid=1, limit=3))

    if language == "SQL":
        assert "SQL" not in made
    else:
        rows = found(language, run(made), "entries")
        assert rows == {("EWR", "C00"): 100, ("JFK", "C00"): 100}


@pytest.mark.parametrize(
    ("wanted", "first"),
    [(Wanted(), ["EWR", "C00", "1100"]), (Wanted(where=["flights<99", "origin=JFK"], limit=2), ["JFK", "C02", "98"])],
)
def test_an_export(run, language, server, tmp_path, wanted, first):
    printed, file = run(snippets.export(server, BY_CARRIER, wanted)), tmp_path / "flights_by_carrier.csv"

    if language == "SQL":
        rows = [json.loads(line) for line in printed.splitlines()]
    else:
        text = file.read_text() if file.exists() else printed
        rows = [row for row in csv.reader(text.splitlines()[1:]) if row]
    assert (len(rows), rows[0][:3]) == (wanted.limit or 60, first)


def test_a_saved_query(run, language, server):
    made = snippets.saved_query(server, "top", {"origin": "EWR", "least": "99"}, version=1)

    if language == "SQL":
        assert "SQL" not in made
    else:
        printed = run(made)
        assert (printed.count("1100"), printed.count("C01"), printed.count("C02")) == (1, 1, 0)


def test_a_saved_query_with_strange_and_repeated_values(run, language, server):
    made = snippets.saved_query(server, "share", {"carrier": ["C01", *(part for key in STRANGE for part in key)]})

    if language != "SQL":
        assert "198" in run(made)


def test_strange_keys_are_found(run_own, lasting, language, server):
    keys = [*STRANGE, *IN_NO_PATH]
    lasting.commit({tuple(key): 7 for key in keys})

    for key in keys:
        wanted = Wanted(where=[f"carrier={json.dumps(key[1])}", "flights=7"], limit=3)
        assert value(language, run_own(snippets.one_key(server, BY_CARRIER, key, ["flights"]))) == 7
        printed = run_own(snippets.lookup(server, BY_CARRIER, [key], ["flights"]))
        assert found(language, printed, "results") == {tuple(key): 7}
        printed = run_own(snippets.entries(server, BY_CARRIER, wanted))
        assert found(language, printed, "entries") == {tuple(key): 7}


def test_keys_that_are_numbers_are_found_to_the_last_digit(run_own, lasting, language, server):
    key = [2**53 + 1, 0.1]
    add_state(lasting.conn, LARGE, {tuple(key): {"n": 5}})
    printed = [run_own(snippets.lookup(server, LARGE, [key])), run_own(snippets.one_key(server, LARGE, key))]

    assert all(each.rstrip(']}\n"').endswith("5") for each in printed)


def test_a_state_without_key_columns(run, language, server):
    assert "6130" in run(snippets.lookup(server, TOTALS, [[]]))
    assert value(language, run(snippets.one_key(server, TOTALS, []))) == 6130


def numbers(language, printed, name):
    """Return the numbers over time that a snippet has printed."""
    if language == "Python":
        return [ast.literal_eval(line[line.index("{") :])[name] for line in printed.splitlines()]
    document = json.loads(printed)
    return document.get("series", document)[name]


@pytest.mark.parametrize(
    "wanted", [Wanted("-flights", ["carrier<C03"], limit=2, prefix=["EWR"], measures=["flights"]), Wanted(at_txid=1)]
)
def test_groups(run, language, server, wanted):
    made = snippets.groups(server, BY_CARRIER, ["origin"], wanted)
    if language not in made:
        return
    printed = run(made)

    if language == "Python":
        first = [ast.literal_eval(part) for part in re.match(r"(\(.*\)) (\d+) (.*)", printed).groups()]
    else:
        document = json.loads(printed)
        [row, *_] = document if isinstance(document, list) else document["groups"]
        first = [tuple(row["key"]), row["keys"], row["value"]]
    assert (first[0], first[1], first[2]["flights"]) == (("EWR",), *((30, 2_565) if wanted.at_txid else (3, 1_297)))


SPANS = [{"last": "900"}, {"from": "2013-01-01T10:00:00+05:30", "to": "9000-01-01T00:00:00+00:00"}]


@pytest.mark.parametrize("span", SPANS)
def test_a_pipeline_over_time(run, language, server, span):
    made = snippets.pipeline_series(server, "flights", span)
    if language not in made:
        return

    assert sum(numbers(language, run(made), "batches")) == 2


@pytest.mark.parametrize("span", SPANS)
def test_a_key_over_time(run, language, server, span):
    made = snippets.key_series(server, BY_CARRIER, KEYS[1], ["flights"], span)
    if language not in made:
        return

    assert numbers(language, run(made), "flights")[-1] == 1100


def test_the_newest_batches(run, language, server):
    made = snippets.batches(server, "flights", 1)
    if language not in made:
        return
    printed = run(made)

    if language == "Python":
        assert printed.startswith("2 committed ")
    else:
        [batch] = json.loads(printed)["batches"] if language == "curl" else json.loads(printed)
        assert batch["txid"] == 2


def test_a_refusal_is_said(run, language, server):
    made = snippets.entries(server, BY_CARRIER, Wanted("-nothing"))

    if language != "SQL":
        assert "400" in run(made, fails=True)


def test_the_pages_of_the_documentation_show_the_same_commands():
    api, saved = ((REPOSITORY / "docs" / page).read_text() for page in ("api.md", "saved-queries.md"))
    server = Server("$URL", "KEY")

    lookup = snippets.lookup(server, BY_CARRIER, [["JFK", "C01"], ["JFK", "ZZ"]], ["flights"])
    assert lookup["curl"] in api
    assert lookup["SQL"] in api
    assert snippets.one_key(server, BY_CARRIER, ["JFK", "C01"], ["flights"])["curl"] in api
    assert snippets.entries(server, BY_CARRIER, Wanted("-flights", limit=10))["curl"] in api
    filtered = Wanted("-flights", ["flights>1000", 'carrier in ["C00", "C01"]'])
    assert snippets.entries(server, BY_CARRIER, filtered)["curl"] in api
    assert snippets.export(server, BY_CARRIER)["curl"] in api
    assert snippets.saved_query(server, "busiest", {"origin": "EWR", "least": "50"})["curl"] in saved
