"""Kafka's topics: every message counts once, also after crashes and with messages that arrive meanwhile."""

import json
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from py4j.java_gateway import JVMView
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from benchmarks.kafka_broker import Broker, Topic
from tests.pipelines.sources.schema_registry import avro, on_wire, record, running_registry
from tests.recovery_page import message_of
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.errors import InputLostError, PipelineError, RecountError, SourceUnavailableError, is_retryable
from tidegauge.pipelines.repair.partial_reprocess import PartialReprocess
from tidegauge.pipelines.repair.recount import Recount
from tidegauge.pipelines.repair.recovery import Recovery
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.kafka.topics import CONNECTOR, KafkaTopics
from tidegauge.pipelines.sources.registry.schemas import Registry
from tidegauge.pipelines.sources.spark_source import SparkSource
from tidegauge.state_backends import Count, Max, StateSpec, Sum
from tidegauge.state_backends.dead_letters.replay import Choice, request
from tidegauge.state_backends.errors import ShorterInputError, SourceReplacedError

pytestmark = pytest.mark.spark

SCHEMA = "name string NOT NULL, n int"
NAMES = StateSpec("names", key={"name": "text"}, measures={"count": Count(), "n": Sum("n", "double precision")})
SECRET = "secret-of-the-tests"


@pytest.fixture
def new_topic(spark: SparkSession, broker: Broker) -> Callable[..., Topic]:
    return lambda partitions=1: Topic(spark, broker, f"events-{uuid4().hex[:8]}", partitions)


@pytest.fixture
def topic(new_topic) -> Topic:
    return new_topic()


def event(name, n=1):
    return json.dumps({"name": name, "n": n})


def source_of(broker, topic, **options):
    return KafkaTopics(broker.address, topic.name, **({"schema": SCHEMA} | options))


def names(source, kind="opaque"):
    spec = StateSpec("names", key=NAMES.key, measures=NAMES.measures, kind=kind)
    return Pipeline("names", [Stream.read(source).group_by("name").persistent_aggregate(spec)])


def counts(workspace):
    return {name: value["count"] for name, value in workspace.values("names").items()}


def test_messages_count_once_over_several_batches_and_a_restart(workspace, broker, new_topic):
    topic = new_topic(partitions=2)
    topic.send(*[event("a"), event("b")] * 3)
    topic.send(*[event("a")] * 4, partition=1)

    first = workspace.run(names(source_of(broker, topic, max_offsets_per_batch=4)))
    topic.send(event("a", 5), event("c"), partition=1)
    second = workspace.run(names(source_of(broker, topic, max_offsets_per_batch=4)))

    assert len(first) >= 3
    assert len(second) == 1
    assert workspace.values("names") == {
        "a": {"count": 8, "n": 12},
        "b": {"count": 3, "n": 3},
        "c": {"count": 1, "n": 1},
    }


def test_a_replayed_batch_counts_once_and_later_messages_are_the_next_batch(workspace, broker, topic):
    topic.send(event("a"), event("b"))
    workspace.run(names(source_of(broker, topic)))
    topic.send(event("a"))
    workspace.run(names(source_of(broker, topic)))
    workspace.forget_last_commit()
    topic.send(event("a"), event("c"))

    batches = workspace.run(names(source_of(broker, topic)))

    assert batches == [(2, 2), (3, 1)]
    assert counts(workspace) == {"a": 3, "b": 1, "c": 1}


REGIONS = StateSpec("regions", key={"name": "text"}, measures={"n": Max("n", type="bigint")})


def known_names(known, events):
    """Counts the events by what the state `regions` says of their names; `known` is read first, and fills it."""
    filled = Stream.read(known).group_by("name").persistent_aggregate(REGIONS)
    found = Stream.read(events).project("name").state_query(REGIONS, ["name"], n="bigint")
    counted = found.each(name="concat(name, coalesce(CAST(n AS string), '?'))").group_by("name")
    return Pipeline("names", [filled, counted.persistent_aggregate(NAMES)], bootstrap=[known])


def test_a_topic_waits_for_another_and_a_planned_batch_comes_again_with_its_offsets(workspace, broker, new_topic):
    def pipeline():
        known, events = (source_of(broker, each, max_offsets_per_batch=2) for each in topics)
        return known_names(known, events)

    topics = known, events = new_topic(), new_topic(partitions=2)
    known.send(*[event(name) for name in "abc"])
    events.send(event("a"), event("c"))
    first = workspace.run(pipeline())
    events.send(event("b"), event("d"))
    workspace.run(pipeline())
    workspace.forget_last_commit()
    known.send(event("e"))
    events.send(event("e"), partition=1)
    second = workspace.run(pipeline())

    assert first == [(1, 1), (2, 1), (3, 1)]
    assert second == [(4, 2), (5, 1), (6, 1)]
    assert counts(workspace) == {"a1": 1, "b1": 1, "c1": 1, "d?": 1, "e1": 1}


def test_a_topic_waits_for_a_format_that_does_not_know_queries_that_end(workspace, broker, topic):
    """For such a format, Spark would run all input of all sources as one batch."""

    class Names(DataSource):
        @classmethod
        def name(cls):
            return "names"

        def schema(self):
            return "name string, n bigint"

        def streamReader(self, schema):  # noqa: N802  Spark's name
            return NamesReader()

    class NamesReader(DataSourceStreamReader):
        def initialOffset(self):  # noqa: N802  Spark's name
            return {"at": 0}

        def latestOffset(self):  # noqa: N802  Spark's name
            return {"at": 1}

        def partitions(self, start, end):
            return [InputPartition(0)]

        def read(self, partition):
            yield ("a", 1)

    workspace.spark.dataSource.register(Names)
    topic.send(event("a"))

    workspace.run(known_names(SparkSource("names"), source_of(broker, topic)))

    assert counts(workspace) == {"a1": 1}


@pytest.mark.parametrize("messages", [1, 3], ids=["fewer messages than were read", "more messages than were read"])
def test_a_topic_that_was_made_again_is_refused_until_it_is_counted_from_its_start(workspace, broker, topic, messages):
    """By its offsets alone, the first two messages of the new topic would be skipped."""
    topic.send(event("a"), event("a"))
    workspace.run(names(source_of(broker, topic)))
    topic.recreate()
    topic.send(*[event("b")] * messages)

    with pytest.raises(SourceReplacedError, match=rf"its source '{topic.name}' is '\S+' now"):
        workspace.run(names(source_of(broker, topic)))
    refused = counts(workspace)
    workspace.checkpoint = workspace.checkpoint.with_name("of the new topic")
    workspace.run(names(source_of(broker, topic)), rebind=True)

    assert refused == {"a": 2}
    assert counts(workspace) == {"a": 2, "b": messages}


def test_a_batch_asks_for_its_id_without_a_search_for_classes(spark, broker, topic, monkeypatch):
    """Java looks for each part of a package in all of Spark's jars."""
    topic.send(event("a"))
    source = source_of(broker, topic)
    source.load(spark)
    first = source.identity()
    asked, ask = [], JVMView.__getattr__
    monkeypatch.setattr(JVMView, "__getattr__", lambda jvm, name: asked.append(name) or ask(jvm, name))

    assert source.identity() == first != {}
    assert asked == []
    assert spark.sparkContext._jvm.java
    assert asked == ["java"]


def test_a_topic_that_does_not_exist_is_named_and_tried_again(spark, broker):
    source = KafkaTopics(broker.address, "absent", schema=SCHEMA)
    source.load(spark)

    with pytest.raises(SourceUnavailableError, match=message_of("A source does not answer")):
        source.identity()
    assert SourceUnavailableError.retryable


def test_a_topic_that_is_made_again_while_the_query_runs_is_refused(workspace, broker, topic, database_url):
    topic.send(event("a"), event("a"))

    def replace_topic(batch):
        topic.recreate()
        topic.send(*[event("b")] * 3)

    driver = Driver(
        names(source_of(broker, topic)),
        workspace.spark,
        database_url,
        RunOptions(workspace.checkpoint, max_failures=1),
        replace_topic,
    )

    with pytest.raises(SourceReplacedError):
        driver.run()

    assert counts(workspace) == {"a": 2}


def test_a_running_query_reads_new_messages_and_has_no_lag_at_the_end(workspace, broker, topic, database_url):
    topic.send(event("a"))

    def send_another_then_stop(batch):
        if batch.txid == 1:
            topic.send(event("a"))
        else:
            driver.stop()

    options = RunOptions(workspace.checkpoint)
    driver = Driver(names(source_of(broker, topic)), workspace.spark, database_url, options, send_another_then_stop)
    driver.run()

    assert counts(workspace) == {"a": 2}
    [[progress]] = workspace.rows("SELECT progress FROM tidegauge.driver")
    assert progress["pending"] == {"count": 0, "unit": "messages", "oldest": None}


def test_the_lag_is_what_committed_batches_have_not_read(workspace, broker, new_topic):
    topic = new_topic(partitions=2)
    topic.send(event("a"), event("a"))
    never_loaded = source_of(broker, topic)
    workspace.run(names(source_of(broker, topic)))
    topic.send(event("a"))
    topic.send(event("b"), event("c"), partition=1)

    source = source_of(broker, topic)
    source.load(workspace.spark)

    assert source.pending(workspace.checkpoint).count == 3
    assert source.pending(workspace.input) is None  # no checkpoint
    assert never_loaded.pending(workspace.checkpoint) is None


def test_the_lag_before_the_first_commit_reaches_back_to_where_the_query_starts(workspace, broker, topic):
    topic.send(event("a"), event("a"))
    workspace.run(names(source_of(broker, topic)))
    workspace.forget_last_commit()

    source = source_of(broker, topic)
    source.load(workspace.spark)

    assert source.pending(workspace.checkpoint).count == 2


def test_a_new_topic_is_pending_from_its_first_message(workspace, broker, topic, new_topic):
    topic.send(event("a"))
    workspace.run(names(source_of(broker, topic)))
    other = new_topic()
    other.send(event("a"), event("b"))

    source = KafkaTopics(broker.address, [topic.name, other.name], schema=SCHEMA)
    source.load(workspace.spark)

    assert source.pending(workspace.checkpoint).count == 2


def test_the_lag_is_unknown_if_kafka_is_unavailable(workspace, broker, topic):
    topic.send(event("a"))
    workspace.run(names(source_of(broker, topic)))

    elsewhere = KafkaTopics("127.0.0.1:1", topic.name)
    elsewhere.load(workspace.spark)
    began = time.monotonic()

    assert elsewhere.pending(workspace.checkpoint) is None
    assert time.monotonic() - began < 30  # Kafka's client waits 60 s for some of its requests


def test_a_bad_message_is_kept_with_its_partition_and_offset_and_the_reason(workspace, broker, new_topic):
    topic = new_topic(partitions=2)
    topic.send(event("a"), "oops", "", None, '{"n": 1}')
    topic.send(b'{"name": "\xff"}', event("b"), event("a"), partition=1)

    workspace.run(names(source_of(broker, topic, max_bad_share=0.9)))

    letters = workspace.rows("SELECT source, line_number, reason FROM tidegauge.dead_letter ORDER BY 1, 2")
    assert letters == [
        (f"{topic.name}/0", 1, "not JSON: Expecting value at column 1"),
        (f"{topic.name}/0", 2, "not JSON: Expecting value at column 1"),
        (f"{topic.name}/0", 4, "name: required, and absent or null"),
        (f"{topic.name}/1", 0, "not UTF-8"),
    ]
    assert counts(workspace) == {"a": 2, "b": 1}


def test_a_bad_message_is_kept_as_it_is_and_counts_once_after_the_fix(workspace, broker, topic):
    headers = [("trace", b"t-1"), ("trace", b"\xff"), ("none", None)]
    topic.send('{"name": "a", "n": "x"}', key=b"\xff", headers=headers)
    topic.send(b"\xfe\x00", key="k")
    spec = StateSpec("traces", key={"trace": "text", "key": "text"}, measures={"count": Count()})
    columns = {"trace": "CAST(kafka_headers[0].value AS string)", "key": "coalesce(kafka_key, 'none')"}

    def traces(schema):
        events = Stream.read(source_of(broker, topic, schema=schema)).each(**columns)
        return Pipeline("names", [events.group_by("trace", "key").persistent_aggregate(spec)])

    workspace.run(traces(SCHEMA))
    records = workspace.rows("SELECT record - 'timestamp' FROM tidegauge.dead_letter ORDER BY line_number")
    request(workspace.conn, "names", Choice(), "a test")
    batches = workspace.run(traces("name string NOT NULL, n string"))

    message = {"record": "message of Kafka", "topic": topic.name, "partition": 0}
    kept = [["trace", "t-1"], ["trace", {"base64": "/w=="}], ["none", None]]
    first = {"offset": 0, "key": {"base64": "/w=="}, "headers": kept, "value": '{"name": "a", "n": "x"}'}
    second = {"offset": 1, "key": "k", "headers": [], "value": {"base64": "/gA="}}
    assert records == [(message | first,), (message | second,)]
    assert batches == [(2, 1)]
    assert workspace.values("traces") == {("t-1", "none"): {"count": 1}}
    assert workspace.rows("SELECT line_number FROM tidegauge.dead_letter WHERE replay_txid IS NULL") == [(1,)]


def test_a_tombstone_is_an_event_where_the_pipeline_asks_for_it(workspace, broker, topic):
    topic.send(event("a"), key="k")
    topic.send(None, key="k")
    topic.send(None)
    spec = StateSpec("deleted", key={"key": "text"}, measures={"count": Count()})
    deleted = Stream.read(source_of(broker, topic, tombstones=True)).where("kafka_tombstone AND name is null")

    workspace.run(Pipeline("names", [deleted.group_by(key="coalesce(kafka_key, '')").persistent_aggregate(spec)]))

    assert workspace.values("deleted") == {"k": {"count": 1}, "": {"count": 1}}
    assert workspace.rows("SELECT rows_in, dead_letters FROM tidegauge.batch") == [(3, 0)]


def test_topics_that_a_pattern_matches_are_read_also_those_that_are_made_later(workspace, broker, new_topic):
    first, other = new_topic(), new_topic()
    matching = re.compile(re.escape(first.name) + "(-[a-z]+)?")
    first.send(event("a"))
    other.send(event("b"))
    pipeline = names(KafkaTopics(broker.address, matching, schema=SCHEMA))
    workspace.run(pipeline)
    later = Topic(workspace.spark, broker, f"{first.name}-later", 1)
    later.send(event("c"))

    workspace.run(pipeline)

    assert counts(workspace) == {"a": 1, "c": 1}
    assert pipeline.sources[0].pending(workspace.checkpoint).count == 0


def test_a_query_starts_at_offsets_and_partitions_that_are_not_named_at_the_earliest(workspace, broker, new_topic):
    topic = new_topic(partitions=2)
    topic.send(event("a"), event("a"), event("b"))
    topic.send(event("c"), partition=1)

    with pytest.raises(PipelineError, match=rf"there is no partition '{topic.name}/7'"):
        workspace.run(names(source_of(broker, topic, starting={topic.name: {7: 1}})))
    workspace.run(names(source_of(broker, topic, starting={topic.name: {0: 2}})))
    later = names(source_of(broker, topic, starting={topic.name: {0: 3}}))

    assert counts(workspace) == {"b": 1, "c": 1}
    with pytest.raises(ShorterInputError, match="was counted from offset 2, and now begins at 3"):
        Reprocess(later, workspace.spark, workspace.dsn, workspace.checkpoint).run()


def test_a_query_starts_at_a_time(workspace, broker, new_topic):
    topic = new_topic(partitions=2)
    for partition, at, name in [(0, 0, "a"), (0, 1_000, "b"), (1, 999, "c")]:
        send_at(workspace.spark, broker, topic, partition, 1_700_000_000_000 + at, event(name))
    start = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(microseconds=999_500)

    workspace.run(names(source_of(broker, topic, starting=start)))

    assert counts(workspace) == {"b": 1}


def send_at(spark, broker, topic, partition, ms, value):
    record = spark.sparkContext._jvm.org.apache.kafka.clients.producer.ProducerRecord
    producer = producer_of(spark, broker)
    producer.send(record(topic.name, partition, ms, None, value)).get()
    producer.close()


def test_a_message_without_a_value_is_not_an_event(workspace, broker, topic):
    topic.send(event("a"), None)

    workspace.run(names(source_of(broker, topic)))

    assert workspace.rows("SELECT rows_in, dead_letters FROM tidegauge.batch") == [(1, 0)]


def test_an_event_has_its_place_in_kafka_beside_its_value(workspace, broker, topic):
    topic.send("x", "y", key="k")
    topic.send("z", key=b"\xff")
    topic.send(b"\xff")
    spec = StateSpec(
        "places",
        key={"place": "text", "value": "text"},
        measures={"offset": Max("kafka_offset", type="bigint"), "at": Max("kafka_timestamp", type="timestamptz")},
    )
    place = "concat_ws('/', kafka_topic, kafka_partition, coalesce(kafka_key, 'none'))"
    stream = Stream.read(KafkaTopics([broker.address], [topic.name])).group_by("value", place=place)

    workspace.run(Pipeline("places", [stream.persistent_aggregate(spec)]))

    assert {key: value["offset"] for key, value in workspace.values("places").items()} == {
        (f"{topic.name}/0/k", "x"): 0,
        (f"{topic.name}/0/k", "y"): 1,
        (f"{topic.name}/0/none", "z"): 2,
    }
    assert workspace.rows("SELECT source, line_number, reason FROM tidegauge.dead_letter") == [
        (f"{topic.name}/0", 3, "not UTF-8")
    ]


def test_messages_of_an_aborted_transaction_are_not_events(workspace, broker, topic):
    producer = transactional_producer(workspace.spark, broker)
    for name, end in [("a", producer.commitTransaction), ("b", producer.abortTransaction)]:
        producer.beginTransaction()
        record = workspace.spark.sparkContext._jvm.org.apache.kafka.clients.producer.ProducerRecord
        producer.send(record(topic.name, event(name)))
        producer.flush()  # otherwise the messages of an aborted transaction never leave the client
        end()
    producer.close()

    workspace.run(names(source_of(broker, topic)))

    assert counts(workspace) == {"a": 1}


def transactional_producer(spark, broker):
    producer = producer_of(spark, broker, {"transactional.id": uuid4().hex})
    producer.initTransactions()
    return producer


def producer_of(spark, broker, more=None):
    jvm = spark.sparkContext._jvm
    settings = jvm.java.util.HashMap()
    serializer = "org.apache.kafka.common.serialization.StringSerializer"
    for name, value in {
        "bootstrap.servers": broker.address,
        "key.serializer": serializer,
        "value.serializer": serializer,
        **(more or {}),
    }.items():
        settings.put(name, value)
    return jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)


def test_offsets_that_kafka_has_lost_stop_the_pipeline(workspace, broker, topic):
    topic.send(event("a"))
    workspace.run(names(source_of(broker, topic)))
    topic.send(event("a"), event("a"))
    delete_up_to(workspace.spark, broker, topic, offset=2)

    with pytest.raises(InputLostError) as caught:
        workspace.run(names(source_of(broker, topic)))

    assert str(caught.value) == (
        f"pipeline 'names': source 'kafka {topic.name}': Kafka no longer has '{topic.name}/0' offsets 1 to 1 (1 "
        "messages); run `tidegauge pipelines skip-lost names` to go on without them and record the gap, or "
        "`tidegauge run names --reprocess --accept-shorter` to count what is left from its start"
    )
    assert re.search(message_of("Kafka no longer has messages that were not read"), str(caught.value))
    assert counts(workspace) == {"a": 1}


def test_a_reprocess_of_what_retention_has_left_is_refused_unless_it_is_accepted(workspace, broker, topic):
    topic.send(*[event("a")] * 15)
    workspace.run(names(source_of(broker, topic)))
    delete_up_to(workspace.spark, broker, topic, offset=10)
    place = workspace.spark, workspace.dsn, workspace.checkpoint

    seen = message_of("A reprocess would count less than the states have counted", 1)
    with pytest.raises(ShorterInputError, match=seen):
        Reprocess(names(source_of(broker, topic)), *place).run()
    with pytest.raises(ShorterInputError, match="is read from the latest message on"):
        Reprocess(names(source_of(broker, topic, starting="latest")), *place).run()
    before = counts(workspace)
    Reprocess(names(source_of(broker, topic)), *place, accept_shorter=True).run()

    assert (before, counts(workspace)) == ({"a": 15}, {"a": 5})


def test_a_state_is_fed_again_alone_up_to_the_committed_batch(workspace, broker, topic):
    for name in ("a", "b"):
        topic.send(event(name))
        workspace.run(names(source_of(broker, topic)))
    topic.send(event("a"))
    batches, place = [], (workspace.spark, workspace.dsn, workspace.checkpoint)

    PartialReprocess(names(source_of(broker, topic)), ["names"], *place, lambda batch: batches.append(batch.txid)).run()
    before = counts(workspace)
    workspace.run(names(source_of(broker, topic)))

    assert batches == [1, 2]
    assert (before, counts(workspace)) == ({"a": 1, "b": 1}, {"a": 2, "b": 1})


def test_a_pipeline_goes_on_after_what_kafka_has_lost_and_the_gap_is_a_dead_letter(workspace, broker, new_topic):
    topic = new_topic(partitions=2)
    topic.send(event("a"))
    topic.send(event("b"), partition=1)
    workspace.run(names(source_of(broker, topic)))
    topic.send(*[event("a")] * 4)
    delete_up_to(workspace.spark, broker, topic, offset=4)
    topic.send(event("b"), partition=1)
    recovery = recovery_of(workspace, names(source_of(broker, topic)))

    said = list(recovery.skip_lost(dry_run=True)), list(recovery.skip_lost())
    workspace.run(names(source_of(broker, topic)))
    again = list(recovery.skip_lost())

    gap = f"'{topic.name}/0' offsets 1 to 3 (3 messages)"
    assert said[0] == [f"names: lost {gap}"]
    assert said[1][:2] == [f"names: lost {gap}", f"names: {workspace.checkpoint} resumes after batch 1"]
    assert again == ["names: no input is lost, nothing to skip"]
    assert counts(workspace) == {"a": 2, "b": 2}
    assert workspace.rows("SELECT txid, source, reason FROM tidegauge.dead_letter") == [
        (1, f"{topic.name}/0", f"lost: {gap} were no longer available, left out by skip-lost")
    ]
    assert workspace.rows("SELECT dead_letters, total_dead_letters FROM tidegauge.batch ORDER BY txid") == [
        (1, 1),
        (0, 1),
    ]


def test_a_lost_checkpoint_resumes_exactly_also_where_a_query_would_start_at_the_latest(workspace, broker, new_topic):
    topic = new_topic(partitions=12)
    latest = source_of(broker, topic, starting="latest", max_offsets_per_batch=3)
    workspace.run(names(latest))
    for partition in (0, 2, 11):
        topic.send(*[event("a")] * 2, partition=partition)
    workspace.run(names(latest))
    shutil.rmtree(workspace.checkpoint)
    topic.send(event("a"), event("b"), partition=2)

    list(recovery_of(workspace, names(latest)).restore_checkpoint())
    workspace.run(names(latest))
    nothing = workspace.run(names(latest))

    assert counts(workspace) == {"a": 7, "b": 1}
    assert nothing == []


def test_states_go_back_to_a_batch_only_while_kafka_has_what_came_after_it(workspace, broker, topic):
    logged = replace(NAMES, changelog=True)
    pipeline = Pipeline("names", [Stream.read(source_of(broker, topic)).group_by("name").persistent_aggregate(logged)])
    for _ in range(3):
        topic.send(event("a"))
        workspace.run(pipeline)

    list(recovery_of(workspace, pipeline).rewind(1))
    at_once = counts(workspace)
    workspace.run(pipeline)
    again = counts(workspace)
    delete_up_to(workspace.spark, broker, topic, offset=2)

    with pytest.raises(InputLostError, match=r"cannot read on from batch 1: .* offsets 1 to 1 \(1 messages\)"):
        list(recovery_of(workspace, pipeline).rewind(1))

    assert (at_once, again, counts(workspace)) == ({"a": 1}, {"a": 3}, {"a": 3})


def recovery_of(workspace, pipeline):
    return Recovery(pipeline, workspace.dsn, workspace.checkpoint, lambda: workspace.spark)


def delete_up_to(spark, broker, topic, offset):
    jvm = spark.sparkContext._jvm
    settings, records = jvm.java.util.HashMap(), jvm.java.util.HashMap()
    settings.put("bootstrap.servers", broker.address)
    records.put(jvm.org.apache.kafka.common.TopicPartition(topic.name, 0), before_offset(spark, offset))
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    admin.deleteRecords(records).all().get()
    admin.close()


def before_offset(spark, offset):
    """RecordsToDelete.beforeOffset(offset), by reflection: py4j would call the one without an argument."""
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    records = jvm.java.lang.Class.forName("org.apache.kafka.clients.admin.RecordsToDelete", True, loader)
    types, values = gateway.new_array(jvm.java.lang.Class, 1), gateway.new_array(jvm.java.lang.Object, 1)
    types[0], values[0] = jvm.java.lang.Long.TYPE, offset
    return records.getMethod("beforeOffset", types).invoke(None, values)


@pytest.mark.parametrize(("kind", "promised"), [("opaque", "exactly once"), ("transactional", "approximate")])
def test_the_guarantee_is_exactly_once_with_an_opaque_state_only(kind, promised):
    assert names(KafkaTopics("localhost:9092", "events", schema=SCHEMA), kind).guarantees == {"names": promised}


def test_a_pipeline_names_the_connector_of_the_spark_that_runs_it():
    assert names(KafkaTopics("localhost:9092", "events", schema=SCHEMA)).packages == (CONNECTOR,)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"servers": "localhost"}, r"servers \['localhost'\]: give each as 'host:port'"),
        ({"servers": []}, r"servers \[\]"),
        ({"topics": ["a,b"]}, r"topics \['a,b'\]: give each by its name"),
        ({"topics": []}, r"topics \[\]"),
        ({"starting": "now"}, "starting 'now': give 'earliest', 'latest', a time, or offsets"),
        ({"starting": datetime(2026, 1, 31)}, "give a time with its zone"),
        ({"starting": {"orders": {0: 1}}}, "starting 'orders': is not one of the topics"),
        ({"starting": {"events": {"0": 1}}}, "give the offset of each partition"),
        ({"starting": {"events": {0: -2}}}, "give the offset of each partition"),
        ({"topics": re.compile("a", re.IGNORECASE)}, "give the pattern without flags"),
        ({"max_offsets_per_batch": 0}, "max_offsets_per_batch 0: give 1 or more"),
        ({"options": {"failOnDataLoss": SECRET}}, r"options \['failOnDataLoss'\]: only settings of Kafka's consumer"),
        ({"options": {"kafka.bootstrap.servers": SECRET}}, r"options \['kafka.bootstrap.servers'\]"),
    ],
)
def test_invalid_options_are_refused_where_they_are_declared(options, fault):
    with pytest.raises(PipelineError, match=fault) as refused:
        KafkaTopics(**({"servers": "localhost:9092", "topics": "events"} | options))

    assert SECRET not in str(refused.value)


def test_a_value_s_column_cannot_have_the_name_of_a_message_s(spark):
    with pytest.raises(PipelineError, match="names 'kafka_key', which the source needs for itself"):
        KafkaTopics("localhost:9092", "events", schema="kafka_key string").schema  # noqa: B018


def test_a_password_reaches_neither_error_nor_checkpoint_nor_database(workspace, broker, topic):
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas,
        "kafka.default.api.timeout.ms": "3000",
        "kafka.request.timeout.ms": "2000",
    }
    source = source_of(broker, topic, options=options)

    with pytest.raises(Exception) as failed:  # noqa: PT011  Spark's own class
        workspace.run(names(source))

    texts = [str(failed.value), repr(source), *map(str, workspace.rows("SELECT status, message FROM tidegauge.driver"))]
    texts += [path.read_text(errors="replace") for path in files_below(workspace.checkpoint)]
    assert [text for text in texts if SECRET in text] == []


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_recount_reads_the_offsets_that_were_counted_and_refuses_what_retention_has_removed(
    workspace, broker, new_topic
):
    topic = new_topic(partitions=2)
    topic.send(event("a"), event("b"), "no json")
    workspace.run(names(source_of(broker, topic)))
    topic.send(*[event("a")] * 3, partition=1)
    workspace.run(names(source_of(broker, topic, max_offsets_per_batch=2)))
    topic.send(event("a"), event("c"))
    source = source_of(broker, topic)
    recount = Recount(names(source), "names", workspace.conn, lambda: workspace.spark, workspace.checkpoint)
    assert recount.audit(100).is_exact
    workspace.conn.execute("DELETE FROM tidegauge_state.names WHERE name = 'a'")

    [found] = recount.audit(100).deviations
    delete_up_to(workspace.spark, broker, topic, offset=1)

    assert (found.key, found.stored, found.counted) == (("a",), None, {"count": 4, "n": 4})
    with pytest.raises(RecountError, match=r"Kafka no longer has .* offsets 0 to 0"):
        recount.audit(100)


def test_messages_of_a_registry_are_read_by_their_own_schemas_and_wait_for_the_registry(workspace, broker, topic):
    pytest.importorskip("fastavro", reason="needs the extra `registry`")
    first, second, key = record("e", name="string"), record("e", name="string", n="int"), {"type": "string"}
    with running_registry(SECRET) as server:
        registry = Registry(server.url, auth=("reader", SECRET))

        def pipeline():
            source = source_of(broker, topic, registry=registry, decode_keys=True, max_bad_share=1.0)
            named = Stream.read(source).group_by(name="concat(name, kafka_key)")
            return Pipeline("names", [named.persistent_aggregate(NAMES)])

        ids = [server.register("e", first), server.register("e", second), server.register("e", "{}", "JSON")]
        keyed = on_wire(server.register("k", key), avro(key, "k"))
        one, two = avro(first, {"name": "a"}), avro(second, {"name": "a", "n": 3})
        topic.send(on_wire(ids[0], one), on_wire(ids[1], two), key=keyed)
        topic.send(on_wire(ids[2], b'{"name": "a", "n": 2}'), None, key=keyed)
        topic.send(on_wire(5, two), b"{}", on_wire(ids[2], b'{"name": "a", "n": 1.5}'), key=keyed)
        topic.send(on_wire(ids[0], one), key="not from a registry")
        workspace.run(pipeline())
        letters = workspace.rows("SELECT reason FROM tidegauge.dead_letter ORDER BY line_number")
        before = workspace.values("names")

        server.register("late", second)
        request(workspace.conn, "names", Choice(reason="does not have it"), "a test")
        server.down = True
        with pytest.raises(Exception, match=r"schema registry 'http://[^']*': answers 503") as away:
            workspace.run(pipeline())
        still = workspace.values("names"), len(workspace.rows("SELECT 1 FROM tidegauge.dead_letter"))
        server.down = False
        workspace.run(pipeline())

    assert before == {'a"k"': {"count": 3, "n": 5}}
    assert [reason for (reason,) in letters] == [
        "schema 5: the registry does not have it",
        "no byte 0 and schema id before the record: not written with a registry",
        "n: expected int, got 1.5",
        "key: no byte 0 and schema id before the record: not written with a registry",
    ]
    assert still == (before, 4)
    assert is_retryable(away.value)
    assert workspace.values("names") == {'a"k"': {"count": 4, "n": 8}}
    texts = [str(away.value), *(path.read_text(errors="replace") for path in files_below(workspace.checkpoint))]
    assert [text for text in texts if SECRET in text] == []
