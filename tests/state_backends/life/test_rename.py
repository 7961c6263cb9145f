"""A renamed state or pipeline goes on where it was, with all that it had; killed anywhere, the next call goes on."""

from dataclasses import replace

import pytest

from tests.state_backends.feed import views
from tests.state_backends.store_feed import StoreFeed
from tidegauge.state_backends import BACKENDS, BatchLedger, Catalog, Count, StateSpec
from tidegauge.state_backends.dead_letters.letters import DeadLetter, write_dead_letters
from tidegauge.state_backends.errors import (
    FormerPipelineError,
    FormerStateError,
    LifeError,
    PipelineHeldError,
    RetiredError,
)
from tidegauge.state_backends.life import rename, settled
from tidegauge.state_backends.life.rename import rename_pipeline, rename_state
from tidegauge.state_backends.schema import former

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)


class Killed(Exception):
    pass


@pytest.fixture(params=["postgres", "redis"])
def feed(request, conn, fresh):
    feed = StoreFeed(conn, fresh(replace(VIEWS, backend=request.param)))
    feed.run(views(("a", 1)))
    feed.run(views(("a", 1), ("b", 5)))
    feed.ledger.release()
    return feed


def goes_on(feed, name):
    """Feed the state under its new name as the next driver does."""
    feed.spec = replace(feed.spec, name=name)
    Catalog(feed.conn).register_states(feed.pipeline, [feed.spec], {name: ""})
    feed.restart()
    feed.run(views(("a", 1)))
    assert feed.read("a", "b") == [3, 5]


def history(feed, name):
    return feed.conn.execute(f"SELECT page, n, txid FROM tidegauge_changelog.{name} ORDER BY txid, page").fetchall()


def test_a_state_is_fed_on_under_its_new_name_with_its_history(feed):
    old, new = feed.spec.name, f"{feed.spec.name}_new"
    before = history(feed, old)

    rename_state(feed.conn, old, new)

    assert history(feed, new) == before
    goes_on(feed, new)
    with pytest.raises(FormerStateError, match=f"state '{old}' was renamed to '{new}'"):
        Catalog(feed.conn).get(old)
    with pytest.raises(RetiredError, match=f"declare it as '{new}'"):
        Catalog(feed.conn).register_states(feed.pipeline, [replace(feed.spec, name=old)], {old: ""})


def test_a_batch_that_was_open_is_undone_under_the_new_name(feed):
    feed.restart()
    batch, _ = feed.begin()
    feed.write(batch, views(("a", 100), ("c", 1)))
    feed.ledger.release()

    rename_state(feed.conn, feed.spec.name, f"{feed.spec.name}_new")

    goes_on(feed, f"{feed.spec.name}_new")
    assert feed.read("c") == ["missing"]


@pytest.mark.parametrize("step", ["copied", "before the commit", "old rows"])
def test_killed_at_any_step_the_next_call_goes_on(feed, monkeypatch, step):
    old, new = feed.spec.name, f"{feed.spec.name}_new"
    is_redis = feed.spec.backend == "redis"

    def killed(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        if step == "copied":
            patch.setattr(rename, "locked_tables", killed)
        elif step == "before the commit":
            patch.setattr(rename, "notify", killed)
        else:
            patch.setattr(type(BACKENDS["redis"]), "drop", killed)
        if step != "old rows" or is_redis:
            with pytest.raises(Killed):
                rename_state(feed.conn, old, new)
            if step != "old rows":
                assert feed.read("a", "b") == [2, 5]
    rename_state(feed.conn, old, new)

    if is_redis:
        assert BACKENDS["redis"].guarded(feed.spec).status().is_empty
    assert former.former(feed.conn, "state", old).unfinished is False
    goes_on(feed, new)


def test_a_state_and_a_pipeline_are_renamed_back(feed):
    state, pipeline = feed.spec.name, feed.pipeline

    for _ in range(2):
        rename_state(feed.conn, state, f"{state}_new")
        rename_state(feed.conn, f"{state}_new", state)
        rename_pipeline(feed.conn, pipeline, f"{pipeline}_new")
        rename_pipeline(feed.conn, f"{pipeline}_new", pipeline)

    goes_on(feed, state)


def test_views_of_users_and_records_follow(new_feed, fresh):
    feed = new_feed(spec := fresh(replace(VIEWS, partitions=2)))
    feed.run(views(("a", 1)))
    batch = feed.begin(1)
    with feed.conn.transaction():
        write_dead_letters(feed.conn, batch, [DeadLetter("x", "{}", "bad")], state=spec.name)
    feed.ledger.commit(batch, keys_written={spec.name: 3})
    feed.ledger.release()
    feed.conn.execute(f"CREATE VIEW mine AS SELECT n FROM tidegauge_live.{spec.name}")

    rename_state(feed.conn, spec.name, new := f"{spec.name}_new")

    assert feed.conn.execute("SELECT n FROM mine").fetchall() == [(1,)]
    assert feed.conn.execute(
        "SELECT keys_written FROM tidegauge.batch WHERE txid = 2 AND keys_written ? %s", [new]
    ).rowcount
    assert feed.conn.execute("SELECT count(*) FROM tidegauge.dead_letter WHERE state = %s", [new]).fetchone() == (1,)
    found = feed.conn.execute(
        "SELECT count(*) FROM pg_class WHERE relname ~ %s AND relname !~ '_new' AND relnamespace IN "
        "('tidegauge_state'::regnamespace, 'tidegauge_changelog'::regnamespace)", [f"^{spec.name}(_|$)"]
    ).fetchone()  # fmt: skip
    assert found == (0,)
    feed.conn.execute("DROP VIEW mine")


def test_a_name_that_is_taken_or_invalid_is_refused(new_feed, fresh):
    feed = new_feed(spec := fresh(VIEWS), other := fresh(VIEWS))
    feed.ledger.release()

    with pytest.raises(LifeError, match=f"state '{other.name}': the name is taken; choose another one"):
        rename_state(feed.conn, spec.name, other.name)
    with pytest.raises(LifeError, match="invalid name"):
        rename_pipeline(feed.conn, feed.pipeline, "No Name")
    rename_state(feed.conn, other.name, f"{other.name}_new")
    with pytest.raises(LifeError, match=r"the name is taken: state .* was renamed to"):
        rename_state(feed.conn, spec.name, other.name)


def test_a_pipeline_goes_on_under_its_new_name(feed):
    old, new = feed.pipeline, f"{feed.pipeline}_new"

    rename_pipeline(feed.conn, old, new)

    with pytest.raises(FormerPipelineError, match=f"pipeline '{old}' was renamed to '{new}'"):
        rename_pipeline(feed.conn, old, "third")
    with pytest.raises(RetiredError, match=f"declare it as '{new}'"):
        Catalog(feed.conn).register_pipeline(old, spout="opaque")
    feed.pipeline = new
    feed.ledger = BatchLedger(feed.conn, new)
    feed.ledger.acquire()
    feed.ledger.bind("checkpoint")
    feed._catch_up()
    feed.run(views(("a", 1)))
    assert feed.read("a", "b") == [3, 5]
    assert feed.conn.execute("SELECT count(*) FROM tidegauge.batch WHERE pipeline = %s", [new]).fetchone() == (3,)


def test_a_driver_that_lives_keeps_its_names(feed, connect, monkeypatch):
    monkeypatch.setattr(settled, "PATIENCE_MS", 100)
    other = BatchLedger(connect(), feed.pipeline)
    other.acquire()

    with pytest.raises(PipelineHeldError):
        rename_state(feed.conn, feed.spec.name, "other")
    with pytest.raises(PipelineHeldError):
        rename_pipeline(feed.conn, feed.pipeline, "other")
    other.release()


REFERRING = (
    "SELECT c.relname FROM pg_constraint JOIN pg_class c ON c.oid = conrelid WHERE contype = 'f' "
    "AND confrelid = %s::regclass AND conrelid <> confrelid"
)


def test_a_table_that_refers_to_a_pipeline_or_state_is_renamed_in_and_not_emptied(conn):
    of_pipeline = {table for (table,) in conn.execute(REFERRING, ["tidegauge.pipeline"])}
    of_state = {table for (table,) in conn.execute(REFERRING, ["tidegauge.state"])}

    # Of a reprocess, while which nothing is renamed.
    not_renamed = {t for t in of_pipeline if not any(f"UPDATE tidegauge.{t} " in each for each in rename.OF_PIPELINE)}
    assert not_renamed == {"successor_state"}
    assert of_state == {"maintenance_run"}
