"""A state is kept, archived or dropped as a whole; killed anywhere, the next call goes on where it was."""

import json
from dataclasses import replace
from datetime import timedelta

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.state_backends.feed import let_time_pass, views
from tests.state_backends.store_feed import StoreFeed
from tidegauge.state_backends import BACKENDS, BatchLedger, Catalog, Count, Mean, StateReader, StateSpec
from tidegauge.state_backends.errors import (
    DependentObjectsError,
    FormerPipelineError,
    FormerStateError,
    LifeError,
    PipelineHeldError,
    RetiredError,
    SwapError,
)
from tidegauge.state_backends.life import archive, retire, settled
from tidegauge.state_backends.life.retire import Retirement
from tidegauge.state_backends.schema import former
from tidegauge.state_backends.schema.former import Fate
from tidegauge.state_backends.schema.swap import Swap

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)
BACKEND_NAMES = ["postgres", "redis"]


class Killed(Exception):
    pass


@pytest.fixture(params=BACKEND_NAMES)
def feed(request, conn, fresh):
    """Two batches, and a driver that has ended."""
    feed = StoreFeed(conn, fresh(replace(VIEWS, backend=request.param)))
    feed.run(views(("a", 1)))
    feed.run(views(("a", 1), ("b", 5)))
    feed.ledger.release()
    yield feed
    BACKENDS[feed.spec.backend].drop(conn, feed.spec)


def retired(feed, fate, folder=None, kind="state"):
    name = feed.spec.name if kind == "state" else feed.pipeline
    return list(Retirement(kind, name, fate, folder, by="a test").run(feed.conn))


def relations(feed):
    schemas = ("tidegauge_state", "tidegauge_live", "tidegauge_changelog")
    found = feed.conn.execute(
        "SELECT count(*) FROM unnest(%s::text[]) s WHERE to_regclass(s) IS NOT NULL",
        [[f"{schema}.{feed.spec.name}" for schema in schemas]],
    ).fetchone()
    return found[0]


def is_gone(feed):
    if feed.spec.backend == "redis":
        return BACKENDS["redis"].guarded(feed.spec).status().is_empty and relations(feed) == 0
    return relations(feed) == 0


def test_an_archive_has_the_committed_rows_and_the_changelog(feed, tmp_path):
    leave_a_batch_open(feed)

    lines = retired(feed, Fate.ARCHIVED, tmp_path)

    folder = tmp_path / feed.spec.name
    rows = pq.read_table(folder / "rows.parquet").to_pylist()
    assert [(row["page"], row["n"], row["txid"]) for row in rows] == [("a", 2, 2), ("b", 5, 2)]
    entries = pq.read_table(folder / "changelog.parquet").to_pylist()
    assert [(row["page"], row["n"], row["txid"]) for row in entries] == [("a", 1, 1), ("a", 2, 2), ("b", 5, 2)]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["state"], manifest["txid"], manifest["files"]["rows.parquet"]["rows"]) == (feed.spec.name, 2, 2)
    assert lines[-1].endswith("at batch 2") or "dropped from Redis" in lines[-1]
    assert is_gone(feed)


def leave_a_batch_open(feed):
    """Be a driver that is killed after its tasks have written."""
    feed.restart()
    batch, _ = feed.begin()
    feed.write(batch, views(("a", 100), ("c", 100)))
    feed.ledger.release()


def test_an_archived_state_says_so_to_readers_and_drivers(feed, tmp_path):
    retired(feed, Fate.ARCHIVED, tmp_path)

    with pytest.raises(FormerStateError, match=f"and is archived in '{tmp_path}/{feed.spec.name}'"):
        Catalog(feed.conn).get(feed.spec.name)
    with pytest.raises(RetiredError, match=f"`tidegauge retire {feed.spec.name} --forget` frees the name"):
        Catalog(feed.conn).register_states(feed.pipeline, [feed.spec], {feed.spec.name: ""})
    former.forget(feed.conn, "state", feed.spec.name)
    Catalog(feed.conn).register_states(feed.pipeline, [feed.spec], {feed.spec.name: ""})


def test_a_kept_state_is_served_and_not_fed_until_its_name_is_free_again(feed):
    retired(feed, Fate.KEPT)

    assert feed.read("a", "b") == [2, 5]
    with pytest.raises(RetiredError, match="--forget` lets it be fed again"):
        Catalog(feed.conn).register_states(feed.pipeline, [feed.spec], {feed.spec.name: ""})
    former.forget(feed.conn, "state", feed.spec.name)
    Catalog(feed.conn).register_states(feed.pipeline, [feed.spec], {feed.spec.name: ""})
    feed.restart()
    feed.run(views(("a", 1)))
    assert feed.read("a") == [3]


@pytest.mark.parametrize("fate", [Fate.ARCHIVED, Fate.DROPPED])
@pytest.mark.parametrize("step", ["read back", "drop", "record", "store"])
def test_killed_at_any_step_it_is_taken_up_again_and_nothing_is_dropped_unread(feed, tmp_path, monkeypatch, fate, step):
    def killed(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        if step == "read back":
            patch.setattr(archive, "_check", killed)
        elif step == "drop":
            patch.setattr(retire.Retirement, "_drop", killed)
        elif step == "record":
            patch.setattr(retire.former, "record", killed)
        else:
            patch.setattr(type(BACKENDS["redis"]), "drop", killed)
        reached = (fate, step) != (Fate.DROPPED, "read back") and (step != "store" or feed.spec.backend == "redis")
        if reached:
            with pytest.raises(Killed):
                retired(feed, fate, tmp_path)
    if reached and step != "store":
        assert feed.read("a", "b") == [2, 5]

    retired(feed, fate, tmp_path)

    assert is_gone(feed)
    assert former.former(feed.conn, "state", feed.spec.name).unfinished is False
    if fate == Fate.ARCHIVED:
        assert pq.read_table(tmp_path / feed.spec.name / "rows.parquet").num_rows == 2


def test_an_archive_that_reads_back_otherwise_drops_nothing(feed, tmp_path, monkeypatch):
    writer = archive._write

    def torn(path, types, rows):
        return writer(path, types, rows) | {"rows": 3}

    monkeypatch.setattr(archive, "_write", torn)

    with pytest.raises(LifeError, match="reads back as 2 rows that differ from the 3 that were stored"):
        retired(feed, Fate.ARCHIVED, tmp_path)
    assert feed.read("a", "b") == [2, 5]
    assert not (tmp_path / feed.spec.name).exists()


def test_another_archive_is_not_overwritten(feed, tmp_path):
    (tmp_path / feed.spec.name).mkdir()

    with pytest.raises(LifeError, match="exists and is not an archive of it at batch 2; choose another folder"):
        retired(feed, Fate.ARCHIVED, tmp_path)
    assert feed.read("a") == [2]


def test_a_driver_that_lives_keeps_its_states(feed, connect, monkeypatch):
    monkeypatch.setattr(settled, "PATIENCE_MS", 100)
    other = BatchLedger(connect(), feed.pipeline)
    other.acquire()

    with pytest.raises(PipelineHeldError):
        Retirement("state", feed.spec.name, Fate.DROPPED).run(feed.conn).__next__()
    assert feed.read("a") == [2]
    other.release()


def test_a_pipeline_goes_with_all_its_states_and_their_batches(feed, tmp_path):
    retired(feed, Fate.ARCHIVED, tmp_path, kind="pipeline")

    assert is_gone(feed)
    assert feed.conn.execute("SELECT FROM tidegauge.batch WHERE pipeline = %s", [feed.pipeline]).rowcount == 0
    found = former.former(feed.conn, "pipeline", feed.pipeline)
    assert (found.fate, found.unfinished, found.checkpoint_id) == (Fate.ARCHIVED, True, "checkpoint")
    former.finish(feed.conn, "pipeline", feed.pipeline)
    with pytest.raises(FormerPipelineError, match="was retired"):
        retired(feed, Fate.DROPPED, kind="pipeline")
    with pytest.raises(RetiredError, match=f"`tidegauge retire --pipeline {feed.pipeline} --forget`"):
        Catalog(feed.conn).register_pipeline(feed.pipeline, spout="opaque")


def test_what_users_have_made_of_a_state_keeps_it(new_feed, fresh):
    feed = new_feed(spec := fresh(VIEWS))
    feed.run(views(("a", 1)))
    feed.ledger.release()
    feed.conn.execute(f"CREATE VIEW mine AS SELECT * FROM tidegauge_live.{spec.name}")

    with pytest.raises(DependentObjectsError, match="view mine; drop that first, or retire with --keep"):
        list(Retirement("state", spec.name, Fate.DROPPED).run(feed.conn))
    assert feed.read(spec, ("a",)) == [{"n": 1}]
    feed.conn.execute("DROP VIEW mine")


def test_a_state_that_is_reprocessed_is_not_retired(new_feed, fresh):
    feed = new_feed(spec := fresh(VIEWS))
    feed.ledger.release()
    Swap(feed.conn, feed.pipeline).begin([spec], spout="opaque")

    with pytest.raises(SwapError, match=r"has not ended \(feeding\); finish it, or abort it"):
        list(Retirement("state", spec.name, Fate.DROPPED).run(feed.conn))


def test_an_archive_shows_what_readers_see_beside_what_is_stored(new_feed, fresh, tmp_path):
    measures = {"n": Count(), "mean": Mean("x")}
    feed = new_feed(spec := fresh(StateSpec("means", {"at": "timestamptz"}, measures, ttl=timedelta(days=1))))
    row = {"at": "2026-01-01T00:00:00+00:00", "n": 2, "mean_sum": 5.0, "mean_count": 2}
    feed.run([row])
    feed.ledger.release()

    manifest = archive.archive(feed.conn, spec, retire.position(feed.conn, feed.pipeline), tmp_path)

    [found] = pq.read_table(tmp_path / spec.name / "rows.parquet").to_pylist()
    assert list(found) == ["at", "n", "mean_sum", "mean_count", "mean", "txid", "updated_at"]
    assert (found["mean_sum"], found["mean_count"], found["mean"]) == (5.0, 2, 2.5)
    assert (manifest["ttl"], manifest["files"]["rows.parquet"]["rows"]) == (86400.0, 1)


def test_expired_rows_are_not_archived(new_feed, fresh, tmp_path):
    feed = new_feed(spec := fresh(replace(VIEWS, ttl=timedelta(days=1))))
    feed.run(views(("old", 1)))
    let_time_pass(feed.conn, [spec], feed.pipeline, timedelta(days=2))
    feed.run(views(("new", 1)))
    feed.ledger.release()

    archive.archive(feed.conn, spec, retire.position(feed.conn, feed.pipeline), tmp_path)

    assert pq.read_table(tmp_path / spec.name / "rows.parquet")["page"].to_pylist() == ["new"]


def test_an_open_batch_of_a_state_without_earlier_versions_is_not_archived(new_feed, fresh, tmp_path):
    feed = new_feed(spec := fresh(replace(VIEWS, kind="transactional")))
    feed.run(views(("a", 1)))
    feed.apply(feed.begin(1), spec, views(("a", 1)))
    feed.ledger.release()

    with pytest.raises(LifeError, match=r"batch 2 of pipeline .* is open and has written rows"):
        list(Retirement("state", spec.name, Fate.ARCHIVED, tmp_path).run(feed.conn))
    assert StateReader(feed.conn, spec).multi_get([("a",)]).parsed()[0]["status"] == "found"


def test_a_connection_that_is_lost_leaves_the_state(feed, connect):
    gone = connect()
    gone.close()

    with pytest.raises(psycopg.OperationalError):
        list(Retirement("state", feed.spec.name, Fate.DROPPED).run(gone))
    assert feed.read("a") == [2]
