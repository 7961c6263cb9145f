"""Bootstrap sources are read to their end before the others, so that lookups find what they fill, over every kill."""

from datetime import timedelta

import pytest

from tests.pipelines.fault_injection import InjectedFault
from tidegauge.pipelines.batch.runner import BatchRunner
from tidegauge.pipelines.checkpoint.file_log import log_entries
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.pipelines.sources.redis.streams import RedisStreams
from tidegauge.pipelines.sources.simple import Rate
from tidegauge.pipelines.sources.spark_source import SparkSource
from tidegauge.state_backends import BatchLedger, Count, Max, StateSpec

PROFILES = StateSpec("profiles", key={"user": "text"}, measures={"region": Max("region", type="text")})
BY_REGION = StateSpec("by_region", key={"region": "text"}, measures={"views": Count()})


def views_by_region(profiles, views, bootstrap):
    """Views per region of their users, as the profiles say it."""
    known = Stream.read(profiles).group_by("user").persistent_aggregate(PROFILES)
    found = Stream.read(views).state_query(PROFILES, ["user"], region="string")
    counted = found.each(region="coalesce(region, 'unknown')").group_by("region").persistent_aggregate(BY_REGION)
    return Pipeline("views", [known, counted], bootstrap=bootstrap)


def over_folders(workspace, *, bootstrap=True):
    profiles = JsonFiles(workspace.input / "profiles", schema="user string, region string", files_per_batch=1)
    views = JsonFiles(workspace.input / "views", schema="user string", files_per_batch=1)
    return views_by_region(profiles, views, [profiles] if bootstrap else [])


def by_region(workspace):
    return {region: value["views"] for region, value in workspace.values("by_region").items()}


@pytest.fixture
def landed(workspace):
    """Two files of profiles, of which the second has the user of the first file of views."""
    for name in ("profiles", "views"):
        (workspace.input / name).mkdir()
        (workspace.input.parent / name).mkdir()  # where a file is until it lands
    workspace.land("profiles/1.json", {"user": "ann", "region": "north"})
    workspace.land("profiles/2.json", {"user": "bob", "region": "south"})
    workspace.land("views/1.json", {"user": "bob"}, {"user": "ann"})
    return workspace


@pytest.fixture
def kill(monkeypatch):
    """Kills the driver once: in a batch, before its commit; or with `method` of a class at another place."""

    def kill(txid, owner=BatchLedger, method="commit"):
        called = getattr(owner, method)

        def failing(self, batch, *args, **figures):
            if getattr(batch, "txid", txid) == txid:
                monkeypatch.setattr(owner, method, called)
                raise InjectedFault
            return called(self, batch, *args, **figures)

        monkeypatch.setattr(owner, method, failing)

    return kill


@pytest.mark.spark
def test_without_bootstrap_a_lookup_misses_what_comes_at_the_same_time(landed):
    landed.run(over_folders(landed, bootstrap=False))

    assert by_region(landed) == {"unknown": 2}


@pytest.mark.spark
def test_a_lookup_finds_what_bootstrap_sources_had_at_each_start(landed):
    first = landed.run(over_folders(landed))
    nothing = landed.run(over_folders(landed))
    landed.land("views/2.json", {"user": "cem"}, {"user": "bob"})
    landed.land("profiles/3.json", {"user": "dan", "region": "north"})
    landed.land("profiles/4.json", {"user": "cem", "region": "north"})
    second = landed.run(over_folders(landed))

    assert [first, nothing, second] == [[(1, 1), (2, 1), (3, 1)], [], [(4, 1), (5, 1), (6, 1)]]
    assert by_region(landed) == {"south": 2, "north": 2}


@pytest.mark.spark
def test_a_batch_that_was_planned_comes_again_as_it_was_in_either_query(landed, kill):
    kill(txid=2)
    with pytest.raises(InjectedFault):
        landed.run(over_folders(landed))
    kill(txid=3)
    with pytest.raises(InjectedFault):
        landed.run(over_folders(landed))
    landed.land("views/2.json", {"user": "cem"})
    landed.land("profiles/3.json", {"user": "cem", "region": "west"})

    batches = landed.run(over_folders(landed))

    assert batches == [(3, 2), (4, 1), (5, 1)]
    assert landed.rows("SELECT rows_in FROM tidegauge.batch ORDER BY txid") == [(1,), (1,), (2,), (1,), (1,)]
    assert by_region(landed) == {"south": 1, "north": 1, "west": 1}


@pytest.mark.spark
def test_files_that_were_listed_for_a_batch_that_was_not_planned_wait_again(landed, monkeypatch):
    """A driver that is killed as it plans a batch has written the list, but not the plan."""
    landed.run(over_folders(landed))
    landed.land("views/2.json", {"user": "cem"})
    monkeypatch.setattr(BatchRunner, "run", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        landed.run(over_folders(landed))
    monkeypatch.undo()
    _, (number, plan) = [log_entries(landed.checkpoint / "offsets")[place] for place in (-2, -1)]
    plan.unlink()
    plan.with_name(f".{number}.crc").unlink(missing_ok=True)
    landed.land("profiles/3.json", {"user": "cem", "region": "west"})

    batches = landed.run(over_folders(landed))

    assert batches == [(4, 1), (5, 1)]
    assert by_region(landed) == {"south": 1, "north": 1, "west": 1}


@pytest.mark.spark
def test_a_stream_of_redis_waits_and_its_planned_batch_comes_again(landed, client, stream, kill):
    def pipeline():
        profiles = JsonFiles(landed.input / "profiles", schema="user string, region string", files_per_batch=1)
        return views_by_region(profiles, RedisStreams([stream], schema="user string"), [profiles])

    client.xadd(stream, {"user": "bob"})
    kill(txid=3)
    with pytest.raises(InjectedFault):
        landed.run(pipeline())
    client.xadd(stream, {"user": "cem"})
    landed.land("profiles/3.json", {"user": "cem", "region": "west"})

    batches = landed.run(pipeline())

    assert batches == [(3, 2), (4, 1), (5, 1)]
    assert by_region(landed) == {"south": 1, "west": 1}


PROFILE_FILES = JsonFiles("profiles", schema="user string, region string")
VIEW_FILES = JsonFiles("views", schema="user string")


class TestWhatIsRefused:
    def refused(self, message, profiles=PROFILE_FILES, views=VIEW_FILES, bootstrap=(PROFILE_FILES,)):
        with pytest.raises(PipelineError, match=f"pipeline 'views': bootstrap: {message}"):
            views_by_region(profiles, views, bootstrap)

    def test_a_source_that_no_stream_reads(self):
        other = JsonFiles("profiles", schema="user string")

        self.refused("no stream reads folder 'profiles'; give the same object that Stream.read got", bootstrap=[other])

    def test_all_sources(self):
        self.refused("it names all sources, so none would wait", bootstrap=[VIEW_FILES, PROFILE_FILES])

    def test_a_source_without_end(self):
        rate = Rate(1)

        self.refused("source Rate has no end to read up to", profiles=rate, bootstrap=[rate])

    @pytest.mark.parametrize("views", [Rate(1), SparkSource("delta")], ids=str)
    def test_a_source_that_cannot_wait(self, views):
        self.refused(f"{views} cannot wait; read it in a separate pipeline", views=views)

    def test_the_rows_of_an_application(self):
        stream = Stream.given("user string")
        counted = stream.persistent_aggregate(StateSpec("n", measures={"n": Count()}))

        with pytest.raises(PipelineError, match="bootstrap: an application's query decides the order of its"):
            Pipeline("n", [counted], bootstrap=list(stream.inputs))

    def test_a_stream_that_would_be_taken_for_idle(self):
        views = Stream.read(JsonFiles("views", schema="user string, at timestamp"))
        timed = views.with_watermark("at", "1 hour", idle_after=timedelta(minutes=5))
        known = Stream.read(PROFILE_FILES).group_by("user").persistent_aggregate(PROFILES)
        counted = timed.persistent_aggregate(StateSpec("n", measures={"n": Count()}))

        with pytest.raises(PipelineError, match="bootstrap: a stream that waits would count as idle"):
            Pipeline("views", [known, counted], bootstrap=[PROFILE_FILES])
