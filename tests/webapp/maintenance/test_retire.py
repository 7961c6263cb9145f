"""`tidegauge retire`, and what the API and the dashboard say of what was retired."""

import json
import re
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command

from tests.webapp.flights import BY_CARRIER, SPECS
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.postgres.changes import PostgresChanges
from tidegauge.pipelines.sources.postgres.slot import Slot
from tidegauge.state_backends import Count, StateSpec
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.services import create_api_key

PAGE = (REPOSITORY / "docs" / "life-of-a-pipeline.md").read_text()
CARRIERS = BY_CARRIER.name
DECLARATIONS = "tidegauge.pipelines.repair.life._declared"


@pytest.fixture
def stopped(lasting, monkeypatch):
    """A filled pipeline whose driver was stopped, and which is not declared any more."""
    monkeypatch.setattr(DECLARATIONS, list)
    lasting.die()
    return lasting


def retire(*words):
    out = StringIO()
    call_command("retire", *map(str, words), stdout=out)
    return out.getvalue().splitlines()


def api(client, path):
    return client.get(path, headers={"Authorization": f"Bearer {create_api_key('reader', ['read'])[1]}"})


def checkpoint(folder: Path, query: str) -> Path:
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "0").write_text("v1")
    (folder / "metadata").write_text(json.dumps({"id": query}))
    return folder


def test_a_state_is_archived_and_answers_with_410_and_where_it_is(stopped, tmp_path, client, reader):
    said = retire(CARRIERS, "--archive", tmp_path, "--yes")

    assert (
        said[0]
        == f"state {CARRIERS!r}: rows and changelog are written to {tmp_path} as Parquet, read back, and dropped"
    )
    assert said[1:] == [
        f"state {CARRIERS!r}: archived in '{tmp_path / CARRIERS}', 60 rows in rows.parquet, "
        "61 rows in changelog.parquet",
        f"state {CARRIERS!r}: archived at batch 2",
    ]
    assert pq.read_table(tmp_path / CARRIERS / "rows.parquet").num_rows == 60
    answer = api(client, f"/api/v1/states/{CARRIERS}")
    assert answer.status_code == 410
    assert answer.json()["detail"].endswith(f"at batch 2, and is archived in '{tmp_path / CARRIERS}'")
    page = reader.get(f"/states/{CARRIERS}/")
    assert (page.status_code, f"archived in &#x27;{tmp_path / CARRIERS}" in page.text) == (410, True)
    assert AuditEntry.objects.get(action="state.retire").detail["fate"] == "archived"


def test_an_api_key_that_may_not_see_a_state_does_not_learn_of_its_end(stopped, client):
    retire(CARRIERS, "--drop", "--yes")
    _, secret = create_api_key("confined", ["read"], states=["totals"])

    answer = client.get(f"/api/v1/states/{CARRIERS}", headers={"Authorization": f"Bearer {secret}"})

    assert answer.status_code in (403, 404)
    assert "retired" not in answer.json()["detail"]


def test_nothing_goes_without_a_yes(stopped):
    with pytest.raises(CommandError, match="there is no terminal to confirm it; run it with --yes"):
        retire(CARRIERS, "--drop")
    assert stopped.conn.execute(f"SELECT count(*) FROM tidegauge_live.{CARRIERS}").fetchone() == (60,)


def test_a_state_that_is_declared_or_looked_up_in_is_not_retired(stopped, monkeypatch):
    class Declared:
        def __init__(self, pipeline):
            self.pipeline = lambda: pipeline

        def __str__(self):
            return "acme.orders:orders"

    looked = Stream((), lambda context: None).state_query(BY_CARRIER, ["origin", "carrier"], flights="bigint")
    orders = Pipeline("orders", [looked.persistent_aggregate(StateSpec("orders", measures={"n": Count()}))])
    monkeypatch.setattr(DECLARATIONS, lambda: [Declared(orders)])

    with pytest.raises(CommandError, match=r"pipeline 'orders' \(acme.orders:orders\) looks up in it; take it out"):
        retire(CARRIERS, "--drop", "--yes")
    with pytest.raises(CommandError, match=r"pipeline 'orders' \(acme.orders:orders\) declares it; take it out"):
        retire("orders", "--drop", "--yes")
    with pytest.raises(CommandError, match=f"state '{CARRIERS}': pipeline 'orders' .* looks up in it"):
        retire("--pipeline", "flights", "--drop", "--no-sources", "--yes")


def test_a_pipeline_goes_with_its_checkpoint_and_what_is_not_ours_stays(stopped, tmp_path):
    folder = checkpoint(tmp_path / "checkpoint", "checkpoint")
    (folder / "notes.txt").write_text("mine")
    command = ["--pipeline", "flights", "--drop", "--no-sources", "--checkpoint", folder, "--yes"]

    said = retire(*command)

    assert said[-2:] == [
        f"checkpoint {str(folder)!r}: removed, but for notes.txt",
        "pipeline 'flights': nothing else is left of it",
    ]
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    for spec in SPECS:
        assert stopped.conn.execute("SELECT to_regclass(%s)", [f"tidegauge_state.{spec.name}"]).fetchone() == (None,)
    with pytest.raises(CommandError, match="pipeline 'flights' was retired"):
        retire(*command)


def test_the_checkpoint_of_another_query_stays(stopped, tmp_path):
    folder = checkpoint(tmp_path / "checkpoint", "another")

    said = retire("--pipeline", "flights", "--drop", "--no-sources", "--checkpoint", folder, "--yes")

    assert f"checkpoint {str(folder)!r}: is not the one that the ledger was bound to, so it is kept" in said
    assert (folder / "metadata").exists()


def test_the_slot_and_publication_of_a_pipeline_go_with_it_also_after_a_crash(stopped, tmp_path, monkeypatch):
    url = stopped.conn.info.dsn + f" password={stopped.conn.info.password}"
    source = PostgresChanges("flown", url=url, slot="retired_flown")
    stopped.conn.execute("DROP TABLE IF EXISTS flown; CREATE TABLE flown (id int PRIMARY KEY)")
    Slot(stopped.conn, source.slot, source.publication).create(source._table, truncates=True)
    pipeline = Pipeline("flights", [Stream.read(source).persistent_aggregate(StateSpec("x", measures={"n": Count()}))])
    monkeypatch.setattr("tidegauge.webapp.commands.management.commands.retire._declared", lambda name: pipeline)
    slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'retired_flown'"
    command = ["--pipeline", "flights", "--keep", "--checkpoint", tmp_path / "none", "--yes"]
    with monkeypatch.context() as patch:
        patch.setattr(PostgresChanges, "drop", lambda source: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            retire(*command)
    assert stopped.conn.execute(slots).fetchone() == (1,)

    said = retire(*command)

    assert "changes of table 'flown': dropped what its server kept for the pipeline" in said
    assert stopped.conn.execute(slots).fetchone() == (0,)
    assert stopped.conn.execute("SELECT count(*) FROM pg_publication WHERE pubname = 'retired_flown'").fetchone() == (
        0,
    )
    assert stopped.conn.execute(f"SELECT count(*) FROM tidegauge_live.{CARRIERS}").fetchone() == (60,)
    stopped.conn.execute("DROP TABLE flown")


def test_the_sql_of_the_page_drops_the_slot_of_a_pipeline_that_nobody_declares_any_more(stopped):
    url = stopped.conn.info.dsn + f" password={stopped.conn.info.password}"
    source = PostgresChanges("flown", url=url, slot="tidegauge_public_orders")
    stopped.conn.execute("DROP TABLE IF EXISTS flown; CREATE TABLE flown (id int PRIMARY KEY)")
    Slot(stopped.conn, source.slot, source.publication).create(source._table, truncates=True)

    for statement in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)[0].strip().splitlines():
        stopped.conn.execute(statement)

    assert stopped.conn.execute("SELECT count(*) FROM pg_replication_slots WHERE slot_name ~ 'orders'").fetchone() == (
        0,
    )
    assert stopped.conn.execute("SELECT count(*) FROM pg_publication WHERE pubname ~ 'orders'").fetchone() == (0,)
    stopped.conn.execute("DROP TABLE flown")


def test_a_pipeline_without_its_declaration_is_not_retired_unless_its_sources_are_left(stopped, monkeypatch):
    def find(name):
        raise PipelineError(f"pipeline {name!r} not found")

    monkeypatch.setattr("tidegauge.pipelines.driver.discovery.find", find)

    with pytest.raises(CommandError, match="restore the declaration, or use --no-sources"):
        retire("--pipeline", "flights", "--drop", "--yes", "--checkpoint", "none")


def test_a_pipeline_that_was_kept_can_be_archived_later(stopped, tmp_path):
    command = ["--pipeline", "flights", "--no-sources", "--checkpoint", tmp_path / "none", "--yes"]
    retire(*command, "--keep")

    said = retire(*command, "--archive", tmp_path)

    assert f"'{CARRIERS}'" in said[0]
    assert pq.read_table(tmp_path / CARRIERS / "rows.parquet").num_rows == 60


def test_a_name_that_is_forgotten_is_free(stopped, client):
    retire(CARRIERS, "--drop", "--yes")

    assert retire(CARRIERS, "--forget") == [f"state {CARRIERS!r}: its name is free"]
    assert api(client, f"/api/v1/states/{CARRIERS}").status_code == 404
    with pytest.raises(CommandError, match="is not a former name"):
        retire(CARRIERS, "--forget")
