"""A moved state holds what it held, and is fed on exactly; killed anywhere, the next call goes on."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from tests.state_backends.feed import views
from tests.state_backends.store_feed import StoreFeed
from tidegauge.state_backends import BACKENDS, Catalog, Count, Max, StateReader, StateSpec, Sum
from tidegauge.state_backends.errors import LifeError, SpecMismatchError
from tidegauge.state_backends.life import copying, move
from tidegauge.state_backends.life.move import move_to_backend, move_to_pipeline
from tidegauge.state_backends.repair.rewind import Rewind

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)
OTHER = {"postgres": "redis", "redis": "postgres"}


class Killed(Exception):
    pass


@pytest.fixture(params=[("postgres", 1), ("redis", 1), ("redis", 4)], ids=["postgres", "redis", "spread"])
def feed(request, conn, fresh):
    backend, partitions = request.param
    feed = StoreFeed(conn, fresh(replace(VIEWS, backend=backend, partitions=partitions)))
    feed.run(views(("a", 1)))
    feed.run(views(("a", 1), ("b", 5)))
    feed.ledger.release()
    return feed


def declared(feed, **change):
    """Go on with another declaration, as the next driver does."""
    feed.spec = replace(feed.spec, **change)
    Catalog(feed.conn).register_states(feed.pipeline, [feed.spec], {feed.spec.name: ""})
    feed.restart()


def is_gone(feed, backend):
    if backend == "redis":
        return BACKENDS["redis"].guarded(replace(feed.spec, backend="redis")).status().is_empty
    return feed.conn.execute("SELECT to_regclass(%s)", [f"tidegauge_state.{feed.spec.name}"]).fetchone() == (None,)


def test_rows_move_to_another_backend_and_back(feed):
    was = feed.spec.backend

    assert move_to_backend(feed.conn, feed.spec.name, OTHER[was]) == 2

    assert is_gone(feed, was)
    with pytest.raises(SpecMismatchError, match="backend was"):
        Catalog(feed.conn).register_states(feed.pipeline, [feed.spec], {feed.spec.name: ""})
    declared(feed, backend=OTHER[was])
    assert feed.read("a", "b") == [2, 5]
    feed.run(views(("a", 1)))
    feed.ledger.release()
    move_to_backend(feed.conn, feed.spec.name, was)
    declared(feed, backend=was)
    feed.run(views(("b", 1)))
    assert feed.read("a", "b") == [3, 6]
    entries = feed.conn.execute(f"SELECT page, n, txid FROM tidegauge_changelog.{feed.spec.name} ORDER BY txid, page")
    assert entries.fetchall() == [("a", 1, 1), ("a", 2, 2), ("b", 5, 2), ("a", 3, 3), ("b", 6, 4)]


def test_the_committed_batch_may_come_again_after_the_move(feed):
    move_to_backend(feed.conn, feed.spec.name, OTHER[feed.spec.backend])
    declared(feed, backend=OTHER[feed.spec.backend])

    feed.run(views(("a", 10)), batch_id=1)

    assert feed.read("a", "b") == [11, "missing"]


def test_a_batch_that_was_open_is_left_behind(feed):
    feed.restart()
    batch, _ = feed.begin()
    feed.write(batch, views(("a", 100), ("c", 1)))
    feed.ledger.release()

    move_to_backend(feed.conn, feed.spec.name, OTHER[feed.spec.backend])

    declared(feed, backend=OTHER[feed.spec.backend])
    feed.run(views(("c", 7)))
    assert feed.read("a", "b", "c") == [2, 5, 7]


@pytest.mark.parametrize("step", ["copied", "before the commit", "old rows"])
def test_killed_at_any_step_the_next_call_goes_on(feed, monkeypatch, step):
    was = feed.spec.backend

    def killed(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        where = {"copied": "locked_tables", "before the commit": "notify", "old rows": "_drop_left_rows"}[step]
        patch.setattr(move, where, killed)
        with pytest.raises(Killed):
            move_to_backend(feed.conn, feed.spec.name, OTHER[was])
    if step != "old rows":
        assert feed.read("a", "b") == [2, 5]

    move_to_backend(feed.conn, feed.spec.name, OTHER[was])

    assert is_gone(feed, was)
    declared(feed, backend=OTHER[was])
    assert feed.read("a", "b") == [2, 5]


def test_a_copy_that_differs_changes_nothing(feed, monkeypatch):
    monkeypatch.setattr(copying, "_are_equal", lambda *args: False)

    with pytest.raises(LifeError, match=r"differs from the rows in .*, so nothing was changed"):
        move_to_backend(feed.conn, feed.spec.name, OTHER[feed.spec.backend])
    assert feed.read("a", "b") == [2, 5]


def test_every_type_arrives_as_it_was(conn, new_feed, fresh):
    measures = {"paid": Sum("x"), "top": Max("t", type="timestamptz"), "x": Max("x"), "word": Max("w", type="text")}
    feed = new_feed(
        spec := fresh(StateSpec("typed", {"id": "uuid", "at": "timestamptz"}, measures, ttl=timedelta(days=9)))
    )
    feed.run(
        [
            {
                "id": f"00000000-0000-0000-0000-00000000000{n}",
                "at": "2026-01-01T00:00:00.000001+00:00",
                "paid": Decimal("0.1") * n,
                "top": "2026-01-01T00:00:00+00:00",
                "x": [0.1, float("nan"), -0.0][n],
                "word": "ä€",
            }
            for n in range(3)
        ]
    )
    feed.ledger.release()
    shown = f"SELECT * FROM tidegauge_live.{spec.name} ORDER BY id"
    before = str(conn.execute(shown).fetchall())

    move_to_backend(conn, spec.name, "redis")
    move_to_backend(conn, spec.name, "postgres")

    assert str(conn.execute(shown).fetchall()) == before


def test_a_state_in_redis_is_spread_by_way_of_a_table(feed):
    if feed.spec.backend == "redis":
        move_to_backend(feed.conn, feed.spec.name, "postgres")
    feed.spec = replace(feed.spec, backend="postgres", partitions=8)
    feed.ledger.acquire()
    Catalog(feed.conn).register_states(feed.pipeline, [feed.spec], {feed.spec.name: ""})
    feed.restart()
    feed.ledger.release()

    move_to_backend(feed.conn, feed.spec.name, "redis")

    declared(feed, backend="redis")
    feed.run(views(("a", 1)))
    assert feed.read("a", "b") == [3, 5]
    assert BACKENDS["redis"].guarded(replace(feed.spec, partitions=1)).status().is_empty


@pytest.fixture
def two(new_feed, fresh):
    """A pipeline with a state, of many batches, and one with another state, of three; both stopped."""
    source, target = new_feed(fresh(VIEWS)), new_feed(fresh(VIEWS))
    for _ in range(5):
        source.run(views(("a", 1)))
    for _ in range(3):
        target.run(views(("x", 1)))
    source.ledger.release()
    target.ledger.release()
    return source, target


def taken_over(target, *specs):
    """Be the next driver of the pipeline, which declares these states."""
    target.ledger.acquire()
    Catalog(target.conn).register_states(target.pipeline, specs, {spec.name: "" for spec in specs})
    target.specs = list(specs)


def test_another_pipeline_feeds_a_state_on_from_its_next_batch(two):
    source, target = two
    [moved], [own] = source.specs, target.specs

    move_to_pipeline(source.conn, moved.name, target.pipeline)

    assert target.read(moved, ("a",)) == [{"n": 5}]
    taken_over(target, own, moved)
    target.run(views(("x", 1)), views(("a", 1)))
    assert target.read(moved, ("a",)) == [{"n": 6}]
    assert StateReader(target.conn, moved).multi_get([("a",)], at_txid=3).parsed()[0]["value"] == {"n": 5}
    entries = target.conn.execute(f"SELECT n, txid FROM tidegauge_changelog.{moved.name} ORDER BY txid").fetchall()
    assert entries == [(5, 0), (6, 4)]


def test_a_revert_of_the_new_pipelines_committed_batch_leaves_what_was_moved(two):
    source, target = two
    [moved], [own] = source.specs, target.specs
    move_to_pipeline(source.conn, moved.name, target.pipeline)
    taken_over(target, own, moved)

    target.run(views(("x", 7)), views(("a", 1)), batch_id=2)

    assert target.read(own, ("x",)) == [{"n": 9}]
    assert target.read(moved, ("a",)) == [{"n": 6}]


def test_the_new_pipeline_cannot_be_taken_back_to_before_the_move(two):
    source, target = two
    [moved], _ = source.specs, target.specs
    move_to_pipeline(source.conn, moved.name, target.pipeline)

    obstacles = [
        step.obstacle for step in Rewind(target.conn, target.pipeline, 2).plan() if step.spec.name == moved.name
    ]

    assert obstacles == ["its changelog reaches back only to batch 3"]


def test_an_open_batch_is_finished_before_a_state_changes_its_pipeline(two):
    source, target = two
    target.ledger.acquire()
    target.begin(3)
    target.ledger.release()

    with pytest.raises(LifeError, match=f"batch 4 of pipeline '{target.pipeline}' is open; let the pipeline finish it"):
        move_to_pipeline(source.conn, source.specs[0].name, target.pipeline)


def test_a_state_in_redis_goes_to_another_pipeline_by_way_of_postgres(feed, new_feed, fresh):
    target = new_feed(fresh(VIEWS))
    target.ledger.release()
    if feed.spec.backend == "redis":
        with pytest.raises(LifeError, match="move it to postgres first, then to pipeline"):
            move_to_pipeline(feed.conn, feed.spec.name, target.pipeline)
        move_to_backend(feed.conn, feed.spec.name, "postgres")

    move_to_pipeline(feed.conn, feed.spec.name, target.pipeline)

    assert target.read(replace(feed.spec, backend="postgres"), ("a",), ("b",)) == [{"n": 2}, {"n": 5}]


def test_a_pipeline_that_has_not_run_yet_is_registered_for_its_state(two):
    source, _ = two
    [moved] = source.specs

    move_to_pipeline(source.conn, moved.name, f"{source.pipeline}_new", spout="opaque")

    assert source.read(moved, ("a",)) == [{"n": 5}]
    with pytest.raises(LifeError, match="feeds it already"):
        move_to_pipeline(source.conn, moved.name, f"{source.pipeline}_new")
