"""Totals over changing tables equal a GROUP BY of them, wherever a batch ends, fails or comes again."""

import random
import threading
from dataclasses import replace
from decimal import Decimal

import psycopg
import pytest

import tidegauge
from tests.docs.blocks import blocks, program
from tests.pipelines.jobs.job_input import refusing
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.jobs.order_totals import order_totals
from tidegauge.pipelines.operators.old_rows import with_old_rows
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.postgres.changes import PostgresChanges
from tidegauge.state_backends import Count, RowCount, StateSpec, Sum

pytestmark = pytest.mark.spark

COLUMNS = "id bigint PRIMARY KEY, status text NOT NULL, amount numeric(12,2), note text"
# One whose log has the rows as they were, and one whose log has not even the large values that stay.
FULL, DEFAULT = "public.orders", "public.notes"
TABLES = (FULL, DEFAULT)
PAGE = "changing-tables.md"

ROWS = StateSpec("noted_rows", key={"id": "bigint"}, value="jsonb")
NOTED = StateSpec(
    "noted",
    key={"status": "text"},
    measures={
        "orders": RowCount(),
        "large": Count(where="amount > 50"),
        "revenue": Sum("amount", type="numeric(38, 2)"),
        "letters": Sum("letters", type="bigint"),
    },
)
TOTALS = (
    "SELECT status, count(*) AS orders, coalesce(sum(amount), 0) AS revenue, avg(amount)::float AS mean, "
    "min(amount) AS smallest, max(amount) AS largest FROM public.orders GROUP BY 1"
)
OF_NOTES = (
    "SELECT status, count(*) AS orders, count(*) FILTER (WHERE amount > 50) AS large, coalesce(sum(amount), 0) AS "
    "revenue, coalesce(sum(length(note)), 0) AS letters FROM public.notes GROUP BY 1"
)


def both(dsn):
    """The job, and totals over a table whose log has no old rows, in one pipeline."""
    notes = Stream.read(PostgresChanges(DEFAULT, url=dsn, old_rows="key", max_changes_per_batch=100))
    counted = with_old_rows(notes, ROWS).each(letters="length(note)").group_by("status").persistent_aggregate(NOTED)
    return Pipeline("order_totals", [*order_totals(FULL).feeds, counted])


class Tables:
    """The two tables, changed alike by random statements. numbers: the source of chance."""

    def __init__(self, conn, numbers):
        self.conn, self.numbers, self.newest = conn, numbers, 0
        for table in TABLES:
            conn.execute(f"DROP TABLE IF EXISTS {table}")
            conn.execute(f"CREATE TABLE {table} ({COLUMNS})")
            conn.execute(f"ALTER TABLE {table} ALTER note SET STORAGE EXTERNAL")
        conn.execute(f"ALTER TABLE {FULL} REPLICA IDENTITY FULL")

    def insert(self, n):
        for _ in range(n):
            self.newest += 1
            amount = self.numbers.choice([None, self.numbers.randrange(-9999, 9999) / 100])
            note = "x" * self.numbers.choice([1, 9, 5000])
            self.execute("INSERT INTO {} VALUES (%s, %s, %s, %s)", self.newest, self.status(), amount, note)

    def status(self):
        return self.numbers.choice(["open", "paid", "sent"])

    def some(self):
        return self.numbers.randrange(1, self.newest + 1)

    def change(self, n):
        """A few changes per transaction, of which some are rolled back."""
        while n > 0:
            size = self.numbers.randrange(1, 5)
            try:
                with self.conn.transaction():
                    for _ in range(size):
                        self.numbers.choice([self.pay, self.pay, self.price, self.renumber, self.delete, self.again])()
                    if self.numbers.random() < 0.15:
                        raise psycopg.Rollback
            except psycopg.errors.UniqueViolation:
                pass
            n -= size

    def pay(self):
        self.execute("UPDATE {} SET status = %s WHERE id = %s", self.status(), self.some())

    def price(self):
        self.execute("UPDATE {} SET amount = amount + %s WHERE mod(id, 3) = %s", self.some(), self.some() % 3)

    def renumber(self):
        # A key cannot change under a large value that is not in the log.
        self.newest += 1
        self.execute("UPDATE {} SET id = %s, note = note || 'y' WHERE id = %s", self.newest, self.some())

    def delete(self):
        self.execute("DELETE FROM {} WHERE id = %s", self.some())

    def again(self):
        self.delete()
        self.insert(1)

    def execute(self, statement, *values):
        for table in TABLES:
            self.conn.execute(statement.replace("{}", table), values)


@pytest.fixture
def tables(conn, database_url, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", database_url)
    conn.execute("DROP SCHEMA IF EXISTS tidegauge_source CASCADE")
    yield Tables(conn, random.Random(20130101))
    for table in TABLES:
        PostgresChanges(table, url=database_url).drop()
        conn.execute(f"DROP TABLE IF EXISTS {table}")
    PostgresChanges(FULL, url=database_url, slot="order_notes").drop()


def check(workspace):
    """Compare what readers see with the tables as they are."""
    found = workspace.values("orders_by_status")
    for key, value in workspace.values("order_extremes").items():
        found[key] |= value
    assert found == grouped(workspace, TOTALS)
    assert workspace.values("noted") == grouped(workspace, OF_NOTES)


def grouped(workspace, query):
    """Return what readers should see: numbers as JSON has them, and a mean to a double's digits."""
    cursor = workspace.conn.execute(query)
    names = [column.name for column in cursor.description]
    rows = (dict(zip(names, row, strict=True)) for row in cursor.fetchall())
    return {row.pop("status"): {name: as_read(name, value) for name, value in row.items()} for row in rows}


def as_read(name, value):
    number = float(value) if isinstance(value, Decimal) else value
    return pytest.approx(number, rel=1e-14) if name == "mean" and number is not None else number


def test_every_batch_ends_as_a_group_by_of_the_tables_after_failures_and_replays_too(workspace, tables):
    pipeline = both(workspace.dsn)
    tables.insert(40)
    workspace.run(pipeline)
    check(workspace)

    tables.change(60)
    with refusing(workspace.conn, "noted"), pytest.raises(Exception, match="failed by the test"):
        workspace.run(both(workspace.dsn))
    tables.change(20)
    workspace.run(both(workspace.dsn))
    check(workspace)

    workspace.forget_last_commit()
    tables.execute("DELETE FROM {} WHERE status = 'sent'")
    workspace.run(both(workspace.dsn))
    check(workspace)
    assert "sent" not in workspace.values("noted")
    assert "sent" not in workspace.values("orders_by_status")
    assert "sent" not in workspace.values("order_extremes")

    tables.execute("UPDATE {} SET status = 'sent' WHERE mod(id, %s) = 0", 2)
    workspace.run(both(workspace.dsn))
    check(workspace)


def test_the_page_s_code_runs_and_its_remedy_counts_a_truncated_table_anew(workspace, tables):
    create, group_by = (block.text for block in blocks("sql") if block.page == PAGE)
    tables.conn.execute(f"DROP TABLE {FULL}; {create}")
    tables.conn.execute(
        "INSERT INTO public.orders VALUES (1, 'open', 5.25, 'a'), (2, 'open', 1.5, 'bc'), (3, 'paid', 9, NULL)"
    )
    image = {"before": {"status": "open", "amount": 5.25}, "after": {"status": "paid", "amount": 5.25}}
    workspace.land("debezium.json", {"after": image["before"]}, image)
    pipeline = documented(workspace)

    workspace.run(pipeline)
    tables.conn.execute("UPDATE public.orders SET status = 'paid' WHERE id = 2")
    workspace.run(pipeline)

    assert workspace.values("orders_by_status") == grouped(workspace, group_by)
    assert workspace.values("notes") == {"open": {"orders": 1, "letters": 1}, "paid": {"orders": 2, "letters": 2}}
    assert workspace.values("debezium") == {"paid": {"orders": 1, "revenue": 5.25, "mean": 5.25}}

    tables.conn.execute("TRUNCATE public.orders; INSERT INTO public.orders VALUES (9, 'sent', 4, NULL)")
    with pytest.raises(Exception, match=r"was truncated at LSN .*--reprocess"):
        workspace.run(pipeline)
    for slot in (None, "order_notes"):
        PostgresChanges(FULL, slot=slot).drop()
    place = workspace.spark, workspace.dsn, workspace.checkpoint
    Reprocess(documented(workspace), *place, lambda batch: None, threading.Event(), accept_shorter=True).run()
    assert workspace.values("orders_by_status") == grouped(workspace, group_by)


def documented(workspace):
    """Return the pipelines of the page as one."""
    names = {name: getattr(tidegauge, name) for name in tidegauge.__all__} | {"folder": workspace.input}
    exec(compile(program(PAGE), f"docs/{PAGE}", "exec"), names)  # noqa: S102
    totals = replace(names["totals"], spec=replace(names["BY_STATUS"], name="debezium"))
    return Pipeline("order_totals", [*names["order_totals"].feeds, names["notes"], totals])
