"""What a task writes together: all its states that are in the ledger's database, and no other store's."""

from dataclasses import replace
from tempfile import TemporaryFile

import psycopg
import pyarrow as pa
import pytest

from tests.pipelines.fault_injection import InjectedFault
from tests.redis_without import redis_without
from tidegauge.pipelines import connections
from tidegauge.pipelines.batch import tasks
from tidegauge.pipelines.batch.tasks import MergeTask, UpdateTask, written
from tidegauge.pipelines.connections import lent
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.operators.counts import RunningTotal
from tidegauge.state_backends import BatchLedger, Catalog, Count, RedisBackingMap, StateSpec, Sum
from tidegauge.state_backends.errors import DuplicateKeyError

PIPELINE = "task_words"
KEY = {"word": "text"}
FIRST = StateSpec("task_first", key=KEY, measures={"count": Count()})
SECOND = StateSpec("task_second", key=KEY, measures={"count": Count()})
READINGS = StateSpec("task_readings", key={"x": "double precision"}, measures={"n": Sum("one", type="bigint")})
LOGGED = StateSpec("task_logged", key=KEY, measures={"count": Count()}, backend="redis", changelog=True)
ONCE = pa.RecordBatch.from_pydict({"word": ["dog"], "count": [1]})
TWICE = pa.RecordBatch.from_pydict({"word": ["dog", "dog"], "count": [1, 1]})


@pytest.fixture
def client():
    """Redis, without what earlier tests have left."""
    with redis_without(LOGGED.name) as client:
        yield client


@pytest.fixture
def context(database_url, client):
    """The first batch of three states, under way."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        catalog = Catalog(conn)
        catalog.install()
        catalog.register_pipeline(PIPELINE, spout="opaque")
        ledger = BatchLedger(conn, PIPELINE)
        ledger.acquire()
        specs = [FIRST, SECOND, READINGS, LOGGED]
        catalog.register_states(PIPELINE, specs, {spec.name: "" for spec in specs})
        ledger.bind("checkpoint")
        context = BatchContext(ledger.begin(0), database_url, frozenset(spec.name for spec in specs))
        context.session(conn, LOGGED).admit()
        for spec in specs:
            context.session(conn, spec).revert()  # what the test before has written
        yield context
        ledger.release()


@pytest.fixture
def kept(context, monkeypatch):
    """The same for a worker that keeps its connection, and has one."""
    monkeypatch.setattr(connections, "_kept", {})
    with lent(context.dsn, "before"):
        pass
    yield replace(context, keeps_connections=True)
    for conn in connections._kept.values():
        conn.close()


def written_of(context, *states):
    """Run one task over states and their rows; return how many keys it wrote of each."""
    run = [MergeTask(spec, context) for spec, _ in states]
    return [done.keys for _, done in written(run, enumerate(rows for _, rows in states))]


def stored(context, name):
    with psycopg.connect(context.dsn) as conn:
        return conn.execute(f"SELECT word, count FROM {name}").fetchall()


def test_states_in_the_ledgers_database_are_written_all_or_none(context, kept):
    # The second time over the connection that was kept, and the third time over another, because the error closed it.
    for each in (context, kept, kept):
        with pytest.raises(DuplicateKeyError):
            written_of(each, (FIRST, ONCE), (SECOND, TWICE))

        assert stored(context, "tidegauge_state.task_first") == []


def test_nothing_is_yielded_before_it_is_committed(context):
    results = written([MergeTask(FIRST, context), MergeTask(SECOND, context)], enumerate([ONCE, ONCE]))

    place, done = next(results)

    assert (place, done.keys) == (0, 1)
    assert (
        stored(context, "tidegauge_state.task_first") == stored(context, "tidegauge_state.task_second") == [("dog", 1)]
    )


def test_states_beside_another_stores_are_committed_before_it_writes(context):
    with pytest.raises(DuplicateKeyError):
        written_of(context, (FIRST, ONCE), (LOGGED, ONCE), (SECOND, TWICE))

    assert stored(context, "tidegauge_state.task_first") == [("dog", 1)]
    assert stored(context, "tidegauge_state.task_second") == []


def test_another_stores_entries_are_committed_before_its_rows_are_put(context, client, monkeypatch):
    def fail(*_):
        raise InjectedFault("the rows are put")

    monkeypatch.setattr(tasks, "_write_dead_letters", fail)
    with pytest.raises(InjectedFault):
        written_of(context, (LOGGED, ONCE))

    # Rows in Redis without an entry could not be rebuilt.
    [row] = RedisBackingMap(client, LOGGED).multi_get([("dog",)])
    assert row.value == {"count": 1}
    assert stored(context, "tidegauge_changelog.task_logged") == [("dog", 1)]


def test_an_updater_is_given_all_tuples_of_a_key_that_is_not_a_number(context):
    tuples = pa.RecordBatch.from_pydict({"x": [float("nan")] * 5, "one": [1] * 5})
    update = UpdateTask(READINGS, RunningTotal(("x",), total="n", change="one"), context, pa.schema([]))

    [(_, done)] = written([update], [(0, tuples)])

    assert done.keys == 1
    with psycopg.connect(context.dsn) as conn:
        assert conn.execute("SELECT n FROM tidegauge_state.task_readings").fetchall() == [(5,)]


def round_trips(context, *states):
    """Write states over the connection that the worker has kept; return how often the task waited for the database."""
    with TemporaryFile("w+") as trace:
        connections._kept[context.dsn].pgconn.trace(trace.fileno())
        written_of(context, *states)
        connections._kept[context.dsn].pgconn.untrace()
        trace.seek(0)
        messages = [line.split("\t")[3].strip() for line in trace]
    # What ends an answer that the client waits for.
    return messages.count("ReadyForQuery") + messages.count("CopyInResponse")


def test_a_task_waits_for_the_database_six_times_and_four_times_more_for_each_further_state(kept):
    assert round_trips(kept, (FIRST, ONCE)) == 6
    assert round_trips(kept, (FIRST, ONCE), (SECOND, ONCE)) == 10


def test_a_partition_without_rows_needs_no_connection(context):
    unreachable = replace(context, dsn="postgresql://nobody@127.0.0.1:1/none")

    assert list(written([MergeTask(FIRST, unreachable)], [])) == []
