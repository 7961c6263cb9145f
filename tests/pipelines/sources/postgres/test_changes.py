"""A table's rows and changes through Spark: every one counts once, also after failures."""

import os
import subprocess
import sys
import time
from datetime import date
from decimal import Decimal
from urllib.parse import urlsplit

import pytest

from tests.harness.process_tree import signal_all
from tests.pipelines.sources.changes_process import net
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.sources.postgres.changes import PostgresChanges
from tidegauge.state_backends import Count, StateSpec, Sum

pytestmark = pytest.mark.spark

TABLE = "CREATE TABLE flown (id int PRIMARY KEY, carrier text NOT NULL, miles int)"
FLOWN = StateSpec(
    "flown",
    key={"carrier": "text"},
    measures={
        "rows": Count(where="_change = 'snapshot'"),
        "changes": Count(),
        "miles": Sum("miles", "double precision"),
    },
)
DELETED = "coalesce(carrier, 'deleted')"
MAX_WAIT_SECONDS = 120


@pytest.fixture
def table(conn, database_url):
    conn.execute("DROP TABLE IF EXISTS flown")
    conn.execute(TABLE)
    yield conn
    PostgresChanges("flown", url=database_url).drop()


def flown(workspace, step=lambda events: events, **options):
    source = PostgresChanges("flown", url=workspace.dsn, **options)
    stream = Stream.read(source).transform(step).each(carrier=DELETED).group_by("carrier")
    return Pipeline("flown", [stream.persistent_aggregate(FLOWN)])


def counted(workspace):
    held = workspace.values("flown")
    return {carrier: (value["rows"], value["changes"], value["miles"]) for carrier, value in held.items()}


@pytest.mark.core
def test_rows_and_changes_count_once_over_batches_and_runs_and_a_delete_leaves_a_tombstone(workspace, table):
    table.execute("INSERT INTO flown VALUES (1, 'AA', 10), (2, 'UA', 20)")
    first = workspace.run(flown(workspace))
    table.execute("INSERT INTO flown VALUES (3, 'AA', 5)")
    table.execute("UPDATE flown SET miles = 7 WHERE id = 2")
    table.execute("DELETE FROM flown WHERE id = 1")
    tombstones = []

    def note(events):
        tombstones.extend(events.where("_deleted").select("id", "carrier", "miles", "_change").collect())
        return events

    second = workspace.run(flown(workspace, note))
    third = workspace.run(flown(workspace))

    assert (first, second, third) == ([(1, 1)], [(2, 1)], [])
    assert [tuple(row) for row in tombstones] == [(1, None, None, "delete")]
    assert counted(workspace) == {"AA": (1, 2, 15), "UA": (1, 2, 27), "deleted": (0, 1, 0)}


def test_a_committed_batch_that_is_replayed_is_skipped_and_the_next_one_counts(workspace, table):
    table.execute("INSERT INTO flown VALUES (1, 'AA', 10)")
    workspace.run(flown(workspace))
    table.execute("INSERT INTO flown VALUES (2, 'AA', 1)")
    workspace.run(flown(workspace))
    workspace.forget_last_commit()
    table.execute("INSERT INTO flown VALUES (3, 'AA', 2)")

    batches = workspace.run(flown(workspace))

    assert batches == [(3, 1)]
    assert counted(workspace) == {"AA": (1, 3, 13)}


def test_a_batch_that_failed_is_read_again_without_change(workspace, table):
    """In the copy and in the changes: rows that changed since come in the next batch."""
    seen, failures = [], []

    def note(events):
        rows = sorted(map(str, events.collect()))
        if rows:  # the check of the pipeline has none
            seen.append(rows)
            if failures:
                raise ConnectionError(failures.pop())
        return events

    for first in (0, 9):
        table.execute("INSERT INTO flown SELECT i, 'AA', i FROM generate_series(%s::int, %s) i", [first, first + 8])
        failures.append("failed by the test")
        with pytest.raises(Exception, match="failed by the test"):
            workspace.run(flown(workspace, note))
        table.execute("UPDATE flown SET miles = miles + 1000")
        workspace.run(flown(workspace, note))

    copy, copy_again, updated, inserted, inserted_again, _ = seen
    assert (copy, inserted) == (copy_again, inserted_again)
    assert (len(copy), len(updated), len(inserted)) == (9, 9, 9)


def test_values_have_the_types_of_their_columns_in_rows_and_changes_alike(workspace, table):
    columns = "id int PRIMARY KEY, carrier char(3), miles int, fare numeric(8,2), day date, at timestamptz, raw bytea"
    row = "'AA', 5, 12.50, '2013-01-02', '2013-01-02 03:04:05+01', '\\x00ff', true"
    table.execute("DROP TABLE flown")
    table.execute(f"CREATE TABLE flown ({columns}, ok bool)")
    table.execute(f"INSERT INTO flown VALUES (1, {row})")
    seen = []

    def note(events):
        seen.extend(events.drop("id", "_change", "_lsn", "_at", "_deleted").collect())
        return events

    workspace.run(flown(workspace, note))
    table.execute(f"INSERT INTO flown VALUES (2, {row})")
    workspace.run(flown(workspace, note))

    [of_the_copy, of_the_log] = seen
    assert of_the_copy == of_the_log
    assert tuple(of_the_log)[:4] == ("AA ", 5, Decimal("12.50"), date(2013, 1, 2))
    assert (of_the_log.raw, of_the_log.ok) == (bytearray(b"\x00\xff"), True)


def test_a_value_that_its_column_cannot_hold_is_a_dead_letter_with_its_place(workspace, table):
    table.execute("ALTER TABLE flown ADD day date")
    table.execute("INSERT INTO flown VALUES (1, 'AA', 5, 'infinity'), (2, 'AA', 6, '2013-01-01')")

    workspace.run(flown(workspace))

    assert workspace.rows("SELECT source, line, reason FROM tidegauge.dead_letter") == [
        (
            "table flown, snapshot at LSN 0/0",
            '{"id":"1","carrier":"AA","miles":"5","day":"infinity"}',
            "day: expected date, got infinity",
        )
    ]
    assert counted(workspace) == {"AA": (1, 1, 6)}


def test_the_password_is_in_no_file_of_the_checkpoint_no_plan_and_no_error(workspace, table, capfd):
    password = urlsplit(workspace.dsn).password
    table.execute("INSERT INTO flown VALUES (1, 'AA', 10)")
    workspace.run(flown(workspace))
    source = PostgresChanges("flown", url=workspace.dsn)
    frame = source.load(workspace.spark)
    plan = frame._jdf.queryExecution().toString() + str(frame._jdf.queryExecution().analyzed().toJSON())
    table.execute("TRUNCATE flown")

    with pytest.raises(Exception, match=r"InputLostError: table '\w+.flown': was truncated at LSN") as refused:
        workspace.run(flown(workspace))

    files = [path.read_bytes() for path in workspace.checkpoint.rglob("*") if path.is_file()]
    texts = "".join([plan, str(refused.value), repr(source), *capfd.readouterr()])
    assert password
    assert len(files) > 4
    assert not any(password.encode() in held for held in files)
    assert password not in texts


class Victim:
    """The pipeline of `changes_process.py` in a process of its own."""

    def __init__(self, workspace):
        self.log = workspace.checkpoint.with_name("log")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipelines.sources.changes_process", str(workspace.checkpoint)],
                cwd=REPOSITORY,
                env=os.environ | {"DATABASE_URL": workspace.dsn},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self):
        signal_all(self.process.pid)
        self.process.wait()


def await_rows(workspace, victim, number):
    """Wait until more than `number` rows are committed and the next batch is open."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    query = f"SELECT sum(rows_in) > {number}, (SELECT open_txid FROM tidegauge.pipeline) > 0 FROM tidegauge.batch"
    while workspace.rows(query) != [(True, True)]:
        assert victim.process.poll() is None, victim.log.read_text()[-3000:]
        assert time.monotonic() < deadline, f"at most {number} rows: {victim.log.read_text()[-3000:]}"
        time.sleep(0.005)


def test_a_driver_killed_in_the_copy_and_in_the_changes_counts_every_row_once(workspace, table):
    table.execute("INSERT INTO flown SELECT i, 'c' || i % 3, i FROM generate_series(1, 370) i")
    expected = "SELECT carrier, count(*), sum(miles) FROM flown GROUP BY 1"
    victims = []

    for number, rows in enumerate([0, 370], start=1):
        victims.append(Victim(workspace))
        await_rows(workspace, victims[-1], rows)
        victims[-1].kill()
        for row in range(60):
            table.execute("INSERT INTO flown VALUES (%s, 'new', 1)", [10_000 * number + row])
    workspace.run(net(workspace.dsn))

    net_values = {key: (value["rows"], value["miles"]) for key, value in workspace.values("net").items()}
    assert net_values == {carrier: (rows, miles) for carrier, rows, miles in workspace.rows(expected)}
    assert workspace.rows("SELECT count(*) > 0 FROM tidegauge.batch WHERE attempt > 1") == [(True,)]
