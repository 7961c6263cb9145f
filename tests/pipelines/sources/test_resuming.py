"""A checkpoint that was lost is written again from the ledger, for every kind of source: each event counts once."""

import shutil

import pytest

from tests.pipelines.fault_injection import FaultAfterCheck, InjectedFault
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import InputLostError
from tidegauge.pipelines.repair.recovery import Recovery
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.pipelines.sources.postgres.changes import PostgresChanges
from tidegauge.pipelines.sources.redis.streams import RedisStreams
from tidegauge.pipelines.sources.simple import Rate
from tidegauge.state_backends import Count, StateSpec

pytestmark = pytest.mark.spark

SCHEMA = "origin string, delay int"
FLIGHTS = StateSpec("flights", key={"origin": "text"}, measures={"flights": Count()}, changelog=True)


@pytest.fixture
def table(conn, database_url):
    conn.execute("DROP TABLE IF EXISTS flown")
    conn.execute("CREATE TABLE flown (id int PRIMARY KEY, origin text NOT NULL)")
    yield conn
    PostgresChanges("flown", url=database_url).drop()


def counting(*sources, fault=None):
    def fail(events):
        if fault:
            raise InjectedFault(fault.pop())
        return events

    first, *others = (Stream.read(source).project("origin") for source in sources)
    events = first.merge(*others) if others else first
    return Pipeline("flights", [events.transform(fail).group_by("origin").persistent_aggregate(FLIGHTS)])


def changes(workspace, **options):
    return PostgresChanges("flown", url=workspace.dsn, **options)


def recovery(workspace, pipeline):
    return Recovery(pipeline, workspace.dsn, workspace.checkpoint, lambda: workspace.spark)


def restore(workspace, *sources):
    shutil.rmtree(workspace.checkpoint)
    return list(recovery(workspace, counting(*sources)).restore_checkpoint())


def counts(workspace):
    return {origin: value["flights"] for origin, value in workspace.values("flights").items()}


def test_redis_streams(workspace, client, stream, add):
    source = RedisStreams([stream, f"{stream}:2"], schema=SCHEMA, max_entries_per_batch=2)
    add(1, 2, 3)
    add(1, origin="LGA", to=f"{stream}:2")
    workspace.run(counting(source))
    add(4)

    restore(workspace, source)
    batches = workspace.run(counting(source))
    nothing = workspace.run(counting(source))

    assert (len(batches), nothing) == (1, [])
    assert counts(workspace) == {"JFK": 4, "LGA": 1}
    client.delete(f"{stream}:2")


def test_redis_streams_whose_entries_are_gone_refuse_before_anything_is_touched(workspace, client, stream, add):
    source = RedisStreams(stream, schema=SCHEMA)
    add(1)
    workspace.run(counting(source))
    add(2)
    workspace.run(counting(source))
    client.xtrim(stream, maxlen=1, approximate=False)

    with pytest.raises(InputLostError, match=f"cannot read on from batch 1: stream '{stream}': the oldest entry left"):
        list(recovery(workspace, counting(source)).rewind(1))

    assert counts(workspace) == {"JFK": 2}
    assert workspace.run(counting(source)) == []


def test_a_table_amid_its_first_copy_and_amid_its_changes(workspace, table):
    table.execute("INSERT INTO flown SELECT n, 'JFK' FROM generate_series(1, 2000) n")
    source = changes(workspace, max_changes_per_batch=700)
    with pytest.raises(InjectedFault):
        workspace.run(counting(source, fault=FaultAfterCheck(skip=2)))
    copied = counts(workspace)

    restore(workspace, changes(workspace, max_changes_per_batch=700))
    workspace.run(counting(changes(workspace, max_changes_per_batch=700)))
    whole = counts(workspace)
    table.execute("INSERT INTO flown VALUES (0, 'LGA')")
    workspace.run(counting(changes(workspace)))
    table.execute("INSERT INTO flown VALUES (-1, 'LGA')")
    restore(workspace, changes(workspace))
    batches = workspace.run(counting(changes(workspace)))

    assert 0 < copied["JFK"] < 2000
    assert whole == {"JFK": 2000}
    assert len(batches) == 1
    assert counts(workspace) == {"JFK": 2000, "LGA": 2}


def test_a_slot_that_is_past_the_batch_refuses_before_anything_is_touched(workspace, table):
    for number in range(3):
        table.execute("INSERT INTO flown VALUES (%s, 'JFK')", [number])
        workspace.run(counting(changes(workspace)))

    with pytest.raises(
        InputLostError,
        match=r"cannot read on from batch 1: slot 'tidegauge_flown': is at .*, but this pipeline has read only up to ",
    ):
        list(recovery(workspace, counting(changes(workspace))).rewind(1))

    assert counts(workspace) == {"JFK": 3}


def test_several_sources_of_one_pipeline(workspace, table, stream, add):
    def sources():
        return (
            JsonFiles(workspace.input, schema=SCHEMA, files_per_batch=1),
            RedisStreams(stream, schema=SCHEMA),
            changes(workspace),
        )

    workspace.land("1.json", {"origin": "file"})
    workspace.land("2.json", {"origin": "file"})
    add(1, origin="stream")
    table.execute("INSERT INTO flown VALUES (1, 'table')")
    workspace.run(counting(*sources()))
    workspace.land("3.json", {"origin": "file"})
    add(2, origin="stream")
    with pytest.raises(InjectedFault):
        workspace.run(counting(*sources(), fault=FaultAfterCheck(skip=1)))
    workspace.land("4.json", {"origin": "file"})
    add(3, origin="stream")
    table.execute("INSERT INTO flown VALUES (2, 'table')")

    said = restore(workspace, *sources())
    workspace.run(counting(*sources()))

    assert len(said) == 5
    assert counts(workspace) == {"file": 4, "stream": 3, "table": 2}


def test_a_source_without_replay_refuses(workspace):
    pipeline = Pipeline(
        "ticks",
        [
            Stream.read(Rate(5))
            .group_by("value")
            .persistent_aggregate(StateSpec("ticks", key={"value": "bigint"}, measures={"n": Count()}))
        ],
    )
    workspace.run(pipeline)

    with pytest.raises(InputLostError, match="source Rate: does not keep its input, so what it sent cannot be read"):
        list(recovery(workspace, pipeline).restore_checkpoint())
