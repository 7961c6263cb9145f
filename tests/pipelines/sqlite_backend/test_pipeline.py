"""A backend of a user's own, registered by one line: pipelines feed it, the API serves it, maintenance runs on it."""

import sqlite3
from collections import Counter
from datetime import UTC, datetime, timedelta
from io import StringIO
from random import Random

import pytest
from django.core.management import call_command

from tests.pipelines.basket_updater import FillBaskets
from tests.pipelines.fault_injection import FaultAfterCheck, InjectedFault
from tests.pipelines.sqlite_backend.backend import SqliteBackend
from tests.webapp.api.checked_client import CheckedClient
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import BACKENDS, Count, LostBatchesError, SpecError, StateSpec
from tidegauge.state_backends.backends.external_session import ExternalSession
from tidegauge.webapp.accounts.services import create_api_key

pytestmark = pytest.mark.spark

KEY, MEASURES = {"word": "text"}, {"count": Count()}
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def backend(monkeypatch, tmp_path):
    path = tmp_path / "states.sqlite"
    monkeypatch.setitem(BACKENDS, "sqlite", SqliteBackend(path))
    return sqlite3.connect(path, isolation_level=None)


@pytest.fixture
def api(workspace):
    return CheckedClient(create_api_key("keeper", ["read", "maintain"])[1])


class EditedFiles(TextFiles):
    """Files that are rewritten between attempts: a replay may bring other lines."""

    spout = "opaque"


def words(**options):
    return StateSpec("sqlite_words", key=KEY, measures=MEASURES, backend="sqlite", **options)


def word_count(folder, spec, fault=None):
    """Words in SQLite, lines in PostgreSQL; the lines fail while `fault` has something, once the words are written."""

    def strike(lines):
        if fault:
            raise InjectedFault(fault.pop())
        return lines

    lines = Stream.read(EditedFiles(folder, files_per_batch=1))
    counted = lines.each(word="explode(split(line, ' '))").group_by("word").persistent_aggregate(spec)
    after = counted.new_values_stream().where("false").transform(strike)
    total = StateSpec("sqlite_lines", measures=MEASURES)
    return Pipeline("sqlite_words", [lines.merge(after).persistent_aggregate(total)])


def asked(api, state, keys):
    answer = api.ask("POST", f"/states/{state}/lookup", {"keys": [[key] for key in keys]}).json()
    found = {result["key"][0]: result["value"] or result["status"] for result in answer["results"]}
    return answer["txid"], {key: value["count"] if isinstance(value, dict) else value for key, value in found.items()}


def fail(workspace, spec, fault, monkeypatch):
    """Run into a fault: in mid-batch, or between the ledger's commit and the moment the backend is told of it."""

    def die(self, keys):
        raise InjectedFault(fault)

    accident = FaultAfterCheck(skip=1) if fault == "in mid-batch" else None
    with monkeypatch.context() as patch:
        if accident is None:
            patch.setattr(ExternalSession, "publish", die)
        with pytest.raises(InjectedFault):
            workspace.run(word_count(workspace.input, spec, accident))


@pytest.mark.parametrize("changelog", [False, True], ids=["plain", "logged"])
def test_a_pipeline_under_crashes_ends_as_a_recount(workspace, api, monkeypatch, changelog):
    chance, spec, landed = Random(11), words(changelog=changelog), []
    for number in range(5):
        lines = [" ".join(chance.choices(["ant", "bee", "cat", "dog"], k=4)) for _ in range(5)]
        file = workspace.land(f"{number}.txt", *lines)
        for _ in range(chance.randrange(3)):
            fail(workspace, spec, chance.choice(["in mid-batch", "before publishing"]), monkeypatch)
            lines = [" ".join(chance.choices(["ant", "bee", "emu"], k=3)) for _ in range(chance.randint(1, 5))]
            file.write_text("\n".join(lines) + "\n")
        workspace.run(word_count(workspace.input, spec))
        landed += lines

    expected = Counter(word for line in landed for word in line.split())
    assert asked(api, "sqlite_words", sorted(expected)) == (5, dict(sorted(expected.items())))
    assert workspace.values("sqlite_lines") == {(): {"count": len(landed)}}


def test_the_api_pages_exports_and_describes_it(workspace, api):
    workspace.land("1.txt", "ant bee bee cat cat cat")
    workspace.run(word_count(workspace.input, words()))

    page = api.ask("GET", "/states/sqlite_words/entries?order_by=-count&limit=2").json()
    exported = api.get("/api/v1/states/sqlite_words/export?format=csv")
    state = api.ask("GET", "/states/sqlite_words").json()

    assert [(entry["key"], entry["value"]) for entry in page["entries"]] == [
        (["cat"], {"count": 3}),
        (["bee"], {"count": 2}),
    ]
    assert b"".join(exported).decode().split() == ["word,count", "ant,1", "bee,2", "cat,3"]
    assert (state["backend"], state["keys_estimate"], state["txid"]) == ("sqlite", 3, 1)


def test_expired_rows_are_answered_as_expired_and_freed(workspace, api, backend):
    workspace.land("1.txt", "old new")
    workspace.run(word_count(workspace.input, words(ttl=HOUR)))
    backend.execute(
        "UPDATE state_sqlite_words SET at = ? WHERE key = (SELECT max(key) FROM state_sqlite_words)",
        [(datetime.now(UTC) - 2 * HOUR).isoformat()],
    )

    before = asked(api, "sqlite_words", ["old", "new"])
    out = StringIO()
    call_command("expire", "sqlite_words", "--json", stdout=out, stderr=StringIO())

    assert before == (1, {"old": "expired", "new": 1})
    assert asked(api, "sqlite_words", ["old", "new"]) == (1, {"old": "missing", "new": 1})
    assert '"removed": 1' in out.getvalue()


def test_compaction_frees_tombstones_once_their_batch_cannot_come_again(workspace, backend):
    spec = StateSpec("sqlite_baskets", key={"user": "text"}, value="jsonb", backend="sqlite")
    events = Stream.read(TextFiles(workspace.input, files_per_batch=1))
    events = events.each(user="split(line, ' ')[0]", item="split(line, ' ')[1]")
    filled = events.partition_persist(spec, FillBaskets(), emits={"user": "string", "items": "int"})
    pipeline = Pipeline("sqlite_words", [filled])
    for number, line in enumerate(["ann pear", "ann done", "bob plum"]):
        workspace.land(f"{number}.txt", line)
    workspace.run(pipeline)
    before = backend.execute("SELECT count(*) FROM state_sqlite_baskets").fetchone()

    call_command("compact", "sqlite_baskets", stdout=StringIO(), stderr=StringIO())

    assert (before, backend.execute("SELECT count(*) FROM state_sqlite_baskets").fetchone()) == ((2,), (1,))


def test_a_store_that_lost_its_rows_is_refused_and_rebuilt_from_the_changelog(workspace, api, backend):
    spec = words(changelog=True)
    workspace.land("1.txt", "ant bee bee")
    workspace.run(word_count(workspace.input, spec))
    workspace.land("2.txt", "ant")
    backend.execute("DELETE FROM state_sqlite_words")
    backend.execute("DELETE FROM guard")
    backend.execute("DELETE FROM record")

    with pytest.raises(LostBatchesError, match=r"run `tidegauge rebuild sqlite_words --to sqlite`"):
        workspace.run(word_count(workspace.input, spec))
    call_command("rebuild", "sqlite_words", stdout=StringIO(), stderr=StringIO())
    workspace.run(word_count(workspace.input, spec))

    assert asked(api, "sqlite_words", ["ant", "bee"]) == (2, {"ant": 2, "bee": 2})


def test_what_it_cannot_do_is_refused_by_name(workspace):
    with pytest.raises(SpecError, match="partitions 4, but a state in sqlite cannot be divided"):
        words(partitions=4)
    with pytest.raises(PipelineError, match="state 'sqlite_words' lives in sqlite, which cannot be fed again"):
        Reprocess(word_count(workspace.input, words()), workspace.spark, workspace.dsn, workspace.checkpoint)
