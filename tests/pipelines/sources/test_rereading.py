"""Sources give the input that was counted again, beside the query: a recount of what is exact finds no deviation."""

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import RecountError
from tidegauge.pipelines.repair.recount import Recount
from tidegauge.pipelines.sources.files.formats import CsvFiles, JsonFiles, ParquetFiles
from tidegauge.pipelines.sources.redis.streams import RedisStreams
from tidegauge.state_backends import Count, StateSpec

pytestmark = pytest.mark.spark

SCHEMA = "origin string, delay int"
FLIGHTS = StateSpec("flights", key={"origin": "text"}, measures={"flights": Count()})


def counting(*sources):
    first, *others = (Stream.read(source).project("origin") for source in sources)
    events = first.merge(*others) if others else first
    return Pipeline("flights", [events.group_by("origin").persistent_aggregate(FLIGHTS)])


def audit(workspace, pipeline):
    return Recount(pipeline, "flights", workspace.conn, lambda: workspace.spark, workspace.checkpoint).audit(100)


def test_files_of_every_format_whatever_they_are_called(workspace):
    sources = [kind(workspace.input, schema=SCHEMA, files_per_batch=1) for kind in (JsonFiles, CsvFiles, ParquetFiles)]
    for place, name in enumerate(["a b", "ü%41", "c+d#e", "[f]{g}"]):
        workspace.land(f"{name}.json", {"origin": "JFK", "delay": place}, "bad")
        workspace.land(f"{name}.csv", "origin,delay", "JFK,1", "LGA,2")
    rows = workspace.spark.createDataFrame([("EWR", 1), ("JFK", 2)], SCHEMA)
    rows.coalesce(1).write.parquet(str(workspace.input.parent / "written"))
    [file] = (workspace.input.parent / "written").glob("*.parquet")
    file.replace(workspace.input / "x[1].parquet")
    workspace.run(counting(*sources))
    workspace.conn.execute("DELETE FROM tidegauge_state.flights WHERE origin = 'LGA'")

    found = audit(workspace, counting(*sources))

    assert [(each.key, each.stored, each.counted) for each in found.deviations] == [(("LGA",), None, {"flights": 4})]
    assert (found.keys, [*found.losses]) == (3, [])


def test_redis_streams_and_entries_that_are_gone_are_named(workspace, client, stream, add):
    source = RedisStreams(stream, schema=SCHEMA, max_entries_per_batch=2, on_loss="continue")
    _first, *later = add(1, 2, 3)
    workspace.run(counting(source))
    add(4, origin="LGA")
    assert audit(workspace, counting(source)).is_exact
    workspace.conn.execute("UPDATE tidegauge_state.flights SET flights = 2")

    [found] = audit(workspace, counting(source)).deviations
    client.xdel(stream, later[0])

    assert (found.stored, found.counted) == ({"flights": 2}, {"flights": 3})
    with pytest.raises(RecountError, match=r"has 2 entries up to .*, but 3 were counted"):
        audit(workspace, counting(source))
