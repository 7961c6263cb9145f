"""A Spark application's own query feeds a pipeline: our driver's promises hold, whatever the session's settings."""

import json
import os
import pickle
import shutil
from decimal import Decimal
from functools import partial

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.harness.waiting import eventually
from tests.pipelines.fault_injection import FaultAfterCheck, InjectedFault
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver import application_sink
from tidegauge.pipelines.driver import session as driver_session
from tidegauge.pipelines.driver.application_sink import sink
from tidegauge.pipelines.errors import InputLostError, PipelineError
from tidegauge.pipelines.repair.recovery import Recovery
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, Mean, StateSpec, Sum
from tidegauge.state_backends.dead_letters.replay import Choice, request
from tidegauge.state_backends.ledger import driver_status

wait_until = partial(eventually, seconds=120)  # a cold Spark on a busy machine is slow

ORDERS = StateSpec(
    "orders", key={"customer": "text"}, measures={"orders": Count(), "total": Sum("amount", type="numeric")}
)
DAILY = StateSpec("daily", key={"day": "date"}, measures={"orders": Count(), "mean": Mean("amount")})
SCHEMA = "customer string, amount string, at timestamp"
GIVEN = "customer string, amount decimal(10,2), at timestamp"
OTHER_SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.parser.quotedRegexColumnNames": "true",
}


class Application:
    """A Spark application that counts the orders that land in a folder, with a session of its own."""

    def __init__(self, workspace, **settings):
        self.spark = workspace.spark.newSession()
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        self._workspace = workspace

    def events(self):
        reader = self.spark.readStream.schema(SCHEMA.replace("timestamp", "timestamp_ltz"))
        rows = reader.option("maxFilesPerTrigger", 1).json(str(self._workspace.input))
        return rows.withColumn("amount", F.expr("cast(amount as decimal(10,2))"))

    def start(self, function, events=None, checkpoint=None, mode="append", **trigger):
        writer = (events or self.events()).writeStream.foreachBatch(function).outputMode(mode)
        folder = checkpoint or self._workspace.checkpoint
        return writer.option("checkpointLocation", str(folder)).trigger(**(trigger or {"availableNow": True})).start()

    def run(self, function, **options):
        query = self.start(function, **options)
        query.awaitTermination()
        return query


@pytest.fixture
def application(workspace, monkeypatch):
    monkeypatch.setattr(application_sink, "WATCH_SECONDS", 0.05)
    return Application(workspace, **OTHER_SETTINGS)


def order(customer, amount="1.10", at="2026-11-01T03:30:00Z"):
    return {"customer": customer, "amount": amount, "at": at}


def counts(workspace, state="orders"):
    return {key: value["orders"] for key, value in workspace.values(state).items()}


def orders_and_days(fault=()):
    """Two states; the second fails while `fault` is not empty, after the first has written."""

    def fail(rows):
        if fault:
            raise InjectedFault(fault.pop())
        return rows

    given = Stream.given(GIVEN)
    orders = given.group_by("customer").persistent_aggregate(ORDERS)
    after = orders.new_values_stream().where("false").transform(fail)
    daily = given.merge(after).group_by(day="cast(at AS date)").persistent_aggregate(DAILY)
    return Pipeline("orders", [daily])


def status(workspace):
    return workspace.rows("SELECT status, message FROM tidegauge.driver WHERE pipeline = 'orders'")[0]


def is_held(workspace):
    return workspace.rows("SELECT tidegauge.has_driver('orders')") == [(True,)]


@pytest.mark.spark
class TestASink:
    @pytest.mark.core
    def test_counts_each_batch_whatever_the_settings_of_the_session(self, workspace, application):
        workspace.land("1.json", order("ann"), order("ann", "2.05"), order("bob", "not a number"))
        workspace.land("2.json", order("ann", at="2026-11-02T00:00:00Z"), order(None))
        before = {name: application.spark.conf.get(name) for name in OTHER_SETTINGS}

        application.run(sink(orders_and_days(), dsn=workspace.dsn))

        assert workspace.values("orders") == {
            "ann": {"orders": 3, "total": Decimal("4.25")},
            "bob": {"orders": 1, "total": 0},
        }
        assert counts(workspace, "daily") == {"2026-11-01": 4, "2026-11-02": 1}
        assert workspace.rows("SELECT state, reason FROM tidegauge.dead_letter") == [
            ("orders", "key column customer is null")
        ]
        assert {name: application.spark.conf.get(name) for name in OTHER_SETTINGS} == before
        assert application.spark.catalog.listTables() == []

    def test_replays_the_rows_that_broke_a_rule_with_a_later_batch(self, workspace, application):
        def ruled(rule):
            good = Stream.given(GIVEN).reject(rule, reason="below one")
            return sink(Pipeline("orders", [good.group_by("customer").persistent_aggregate(ORDERS)]), dsn=workspace.dsn)

        workspace.land("1.json", order("ann"), order("ann", "0.30"), order("bob", "-2.00"), order("bob", None))
        application.run(ruled("amount < 1"))
        first = counts(workspace)
        request(workspace.conn, "orders", Choice(), "a test")
        workspace.land("2.json", order("ann"), order("cat", "-3.00"))

        application.run(ruled("amount < 0"))

        assert first == {"ann": 1, "bob": 1}
        assert workspace.values("orders") == {
            "ann": {"orders": 3, "total": Decimal("2.5")},
            "bob": {"orders": 1, "total": 0},
        }
        assert workspace.rows("SELECT source, reason, replay_txid FROM tidegauge.dead_letter ORDER BY id") == [
            ("given rows", "rejected: below one", 2),
            ("given rows", "rejected: below one", None),
            ("given rows", "rejected: below one", None),
        ]
        assert workspace.rows("SELECT rows_in, dead_letters FROM tidegauge.batch ORDER BY txid") == [(4, 2), (2, 1)]

    def test_is_called_once_with_every_batch(self, workspace, application):
        pipeline = orders_and_days()
        recovery = Recovery(pipeline, workspace.dsn, workspace.checkpoint, lambda: workspace.spark)
        function = sink(pipeline, dsn=workspace.dsn)
        for number, customers in enumerate(("a", "ab", "b"), 1):
            workspace.land(f"{number}.json", *map(order, customers))

        def twice(rows, batch_id):
            function(rows.where("customer = 'a'"), batch_id)
            function(rows.where("customer = 'b'"), batch_id)

        with pytest.raises(StreamingQueryException, match=r"called twice with batch 0.*unionByName.*and call the sink"):
            application.run(twice)
        assert counts(workspace) == {"a": 1}

        def leaves_one_out(rows, batch_id):
            if batch_id != 1:
                function(rows, batch_id)

        with pytest.raises(StreamingQueryException, match=r"2 after batch 0.*limit.0..*restore-checkpoint"):
            application.run(leaves_one_out)
        with pytest.raises(StreamingQueryException, match="an application did not call its sink with them"):
            application.run(function)
        list(recovery.restore_checkpoint())
        application.run(lambda rows, batch_id: function(rows.limit(0) if batch_id == 2 else rows, batch_id))
        assert counts(workspace) == {"a": 2, "b": 1}

    def test_reverts_a_failed_attempt_and_counts_the_rows_of_its_replay(self, workspace, application):
        workspace.land("1.json", order("dog"), order("cat"))
        once = sink(orders_and_days(fault := FaultAfterCheck(skip=1)), dsn=workspace.dsn)
        with pytest.raises(StreamingQueryException, match="InjectedFault"):
            application.run(once)
        attempt = workspace.rows("SELECT customer, txid FROM tidegauge_state.orders ORDER BY customer")
        visible = counts(workspace)

        application.run(once, events=application.events().where("customer <> 'dog'"))

        assert not fault
        assert attempt == [("cat", 1), ("dog", 1)]
        assert visible == {}
        assert counts(workspace) == {"cat": 1}
        assert workspace.rows("SELECT txid, attempt, rows_in FROM tidegauge.batch") == [(1, 2, 1)]

    def test_counts_a_committed_batch_once_that_comes_again_with_other_rows(self, workspace, application):
        workspace.land("1.json", order("ann"))
        function = sink("orders", [ORDERS], workspace.dsn)
        application.run(function)
        workspace.land("2.json", order("ann"), order("bob"))
        application.run(function)
        workspace.forget_last_commit()

        application.run(sink("orders", [ORDERS], workspace.dsn), events=application.events().where("customer = 'bob'"))

        assert counts(workspace) == {"ann": 1, "bob": 1}

    def test_keeps_what_the_checkpoint_tells_of_the_sources_of_a_batch(self, workspace, application):
        workspace.land("1.json", order("ann"))
        rate = application.spark.readStream.format("rate").load().selectExpr("string(value) AS customer")
        both = application.events().select("customer").unionByName(rate)
        events = both.withColumn("amount", F.expr("1.5BD"))

        application.run(sink("orders", [ORDERS], workspace.dsn), events=events)

        offsets, fingerprints = workspace.rows("SELECT offsets, input FROM tidegauge.batch WHERE txid = 1")[0]
        assert offsets[0] == {"logOffset": 0}
        assert list(fingerprints[0]["items"]) == [str(workspace.input / "1.json")]
        assert len(fingerprints) == 2

    def test_refuses_a_new_checkpoint_over_filled_states_and_names_the_ways_out(self, workspace, application, tmp_path):
        workspace.land("1.json", order("ann"))
        function = sink("orders", [ORDERS], workspace.dsn)
        first = application.run(function)

        with pytest.raises(StreamingQueryException) as refused:
            application.run(function, checkpoint=tmp_path / "other")

        other = json.loads((tmp_path / "other" / "metadata").read_text())["id"]
        assert f"start the query with the folder of checkpoint '{first.id}'" in str(refused.value)
        assert f"pass rebind='{other}'" in str(refused.value)
        assert "restore-checkpoint orders --checkpoint FOLDER" in str(refused.value)
        assert counts(workspace) == {"ann": 1}
        application.run(sink("orders", [ORDERS], workspace.dsn, rebind=other), checkpoint=tmp_path / "other")
        assert counts(workspace) == {"ann": 2}

    def test_refuses_a_checkpoint_that_is_behind_the_ledger(self, workspace, application):
        function = sink("orders", [ORDERS], workspace.dsn)
        for number in range(3):
            workspace.land(f"{number}.json", order("ann"))
        application.run(function)
        for folder in ("offsets", "commits"):
            for name in ("1", ".1.crc", "2", ".2.crc"):
                (workspace.checkpoint / folder / name).unlink()

        with pytest.raises(StreamingQueryException, match="the checkpoint brings batch 1, the ledger expects 3"):
            application.run(function)

        assert counts(workspace) == {"ann": 3}

    def test_is_rewound_and_its_lost_checkpoint_restored(self, workspace, application):
        pipeline = Pipeline("orders", [Stream.given().group_by("customer").persistent_aggregate(ORDERS)])
        recovery = Recovery(pipeline, workspace.dsn, workspace.checkpoint, lambda: workspace.spark)
        for number in range(3):
            workspace.land(f"{number}.json", order("ann"))
        application.run(sink(pipeline, dsn=workspace.dsn))

        said = list(recovery.rewind(2))
        with pytest.raises(
            InputLostError, match=r"given rows cannot say what is still there; .*; nothing can be skipped"
        ):
            list(recovery.skip_lost())
        rewound = counts(workspace)
        application.run(sink(pipeline, dsn=workspace.dsn))
        shutil.rmtree(workspace.checkpoint)
        list(recovery.restore_checkpoint())
        workspace.land("4.json", order("bob"))
        application.run(sink(pipeline, dsn=workspace.dsn))

        assert any("cannot say what is still there" in line for line in said)
        assert rewound == {"ann": 2}
        assert counts(workspace) == {"ann": 3, "bob": 1}

    def test_waits_while_the_pipeline_is_paused(self, workspace, application):
        workspace.land("1.json", order("ann"))
        function = sink("orders", [ORDERS], workspace.dsn)
        application.run(function)
        driver_status.set_desired_state(workspace.conn, "orders", paused=True, by="a test")
        workspace.land("2.json", order("ann"))
        query = application.start(function)
        wait_until(lambda: status(workspace)[0] == "paused")
        paused = counts(workspace)

        driver_status.set_desired_state(workspace.conn, "orders", paused=False, by="a test")
        query.awaitTermination()

        assert paused == {"ann": 1}
        assert counts(workspace) == {"ann": 2}

    def test_refuses_an_output_mode_that_gives_all_rows_again(self, workspace, application):
        workspace.land("1.json", order("ann"))
        totals = application.events().groupBy("customer").agg(F.expr("sum(amount) AS amount"))

        with pytest.raises(StreamingQueryException, match="output mode 'Complete' repeats every row of the result"):
            application.run(sink("orders", [ORDERS], workspace.dsn), events=totals, mode="complete")


@pytest.mark.spark
class TestAQueryThatRuns:
    """One query, which goes on until the test stops it."""

    @pytest.fixture
    def function(self, workspace):
        return sink("orders", [ORDERS], workspace.dsn)

    @pytest.fixture
    def query(self, workspace, application, function, monkeypatch):
        monkeypatch.setattr(driver_session, "PATIENCE_MS", 500)
        workspace.land("1.json", order("ann"))
        query = application.start(function, processingTime="100 milliseconds")
        wait_until(lambda: counts(workspace) if status_is_there(workspace) else None)
        yield query
        query.stop()
        wait_until(lambda: not is_held(workspace))

    def test_is_shown_as_running_and_releases_its_pipeline_when_it_ends(self, workspace, query):
        wait_until(lambda: status(workspace) == ("running", ""))
        held = is_held(workspace)
        query.stop()

        wait_until(lambda: not is_held(workspace))

        assert held
        assert status(workspace) == ("stopped", "")

    def test_refuses_another_query_with_the_same_sink_or_the_same_name_and_goes_on_when_its_session_was_ended(
        self, workspace, application, query, function, tmp_path
    ):
        with pytest.raises(StreamingQueryException, match=f"calls the sink of query '{query.id}'"):
            application.run(function, checkpoint=tmp_path / "shared")
        with pytest.raises(StreamingQueryException, match=f"held by a live driver .*pid {os.getpid()}"):
            application.run(sink("orders", [ORDERS], workspace.dsn), checkpoint=tmp_path / "second")
        workspace.land("2.json", order("ann"))
        wait_until(lambda: counts(workspace) == {"ann": 2})

        # The database ends its session: it acquires the pipeline again.
        workspace.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidegauge orders'"
        )
        workspace.land("3.json", order("ann"))

        wait_until(lambda: counts(workspace) == {"ann": 3})
        assert query.isActive

    def test_cannot_write_once_another_driver_has_taken_over(self, workspace, query):
        workspace.rows("UPDATE tidegauge.pipeline SET fence = fence + 1, token = 'another' RETURNING 1")
        workspace.rows("UPDATE tidegauge.driver SET status = 'another' RETURNING 1")

        workspace.land("2.json", order("ann"))

        with pytest.raises(StreamingQueryException, match="another driver has taken over"):
            query.awaitTermination()
        wait_until(lambda: not is_held(workspace))
        assert counts(workspace) == {"ann": 1}
        assert status(workspace)[0] == "another"


def status_is_there(workspace):
    return workspace.rows("SELECT 1 FROM tidegauge.batch WHERE committed_at IS NOT NULL")


class TestADeclaration:
    def test_needs_a_database(self, monkeypatch):
        monkeypatch.delenv("DATABASE_URL")

        with pytest.raises(PipelineError, match="no database; pass dsn or set DATABASE_URL"):
            sink("orders", [ORDERS])

    def test_reads_given_rows_only(self, tmp_path):
        read = Stream.read(JsonFiles(tmp_path, schema=SCHEMA))

        with pytest.raises(PipelineError, match="a sink gets the rows of one DataFrame"):
            sink(Pipeline("orders", [read.group_by("customer").persistent_aggregate(ORDERS)]), dsn="unused")

    def test_declares_its_states_once(self):
        with pytest.raises(PipelineError, match="declares its states itself"):
            sink(orders_and_days(), [ORDERS], "unused")

    def test_cannot_be_sent_to_another_process_as_spark_connect_does(self):
        with pytest.raises(PipelineError, match="Spark Connect sends the function of foreachBatch to another process"):
            pickle.dumps(sink("orders", [ORDERS], "unused"))

    @pytest.mark.spark
    def test_is_called_by_a_streaming_query_only(self, spark):
        with pytest.raises(PipelineError, match="called outside of a streaming query"):
            sink("orders", [ORDERS], "unused")(spark.range(1), 0)
