import threading
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus
from psycopg.types.json import Jsonb

from tests.state_backends.aggregators.docs_example import documented_reducer
from tests.state_backends.examples import examples
from tidegauge.state_backends import Catalog, Changelog, Count, Max, Mean, Min, StateReader, StateSpec, Sum
from tidegauge.state_backends.aggregators import AGGREGATORS
from tidegauge.state_backends.backends.postgres import tables as rewrite
from tidegauge.state_backends.errors import SpecError, SpecMismatchError, UnknownStateError
from tidegauge.state_backends.schema.definition import definition, from_definition
from tidegauge.state_backends.spec.types import KEY_TYPES

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
ADDED = VIEWS.measures | {"total": Sum("x", "double precision"), "top": Max("x"), "mean": Mean("x")}


@pytest.fixture
def catalog(conn):
    return Catalog(conn)


def register(feed, *specs):
    Catalog(feed.conn).register_states(feed.pipeline, specs, {spec.name: "" for spec in specs})


def tables(conn, name):
    found = conn.execute(
        "SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = %s AND relkind IN ('r', 'p', 'v')",
        [name],
    )
    return sorted(schema for (schema,) in found)


class TestPipelines:
    def test_registering_again_changes_only_what_is_said_of_it(self, catalog, conn, fresh):
        name = fresh(VIEWS).name
        catalog.register_pipeline(name, spout="opaque", description="old")
        conn.execute("UPDATE tidegauge.pipeline SET committed_txid = 5 WHERE name = %s", [name])

        catalog.register_pipeline(name, spout="transactional", description="new")

        found = conn.execute(
            "SELECT spout, description, committed_txid FROM tidegauge.pipeline WHERE name = %s", [name]
        )
        assert found.fetchone() == ("transactional", "new", 5)

    def test_registering_the_same_again_does_not_wait_for_tasks(self, catalog, conn, connect, fresh):
        name = fresh(VIEWS).name
        catalog.register_pipeline(name, spout="opaque")
        task = connect()
        conn.execute("SET lock_timeout = '2s'")

        with task.transaction():
            task.execute("SELECT FROM tidegauge.pipeline WHERE name = %s FOR SHARE", [name])
            catalog.register_pipeline(name, spout="opaque")

            assert task.info.transaction_status == TransactionStatus.INTRANS


class TestNewStates:
    def test_a_state_gets_its_table_and_its_view_and_a_changelog_if_it_asks(self, conn, new_feed, fresh):
        plain, logged = fresh(VIEWS), fresh(replace(VIEWS, changelog=True))

        new_feed(plain, logged)

        assert tables(conn, plain.name) == ["tidegauge_live", "tidegauge_state"]
        assert tables(conn, logged.name) == ["tidegauge_changelog", "tidegauge_live", "tidegauge_state"]

    def test_the_catalog_knows_its_names_in_order_and_whose_they_are(self, catalog, new_feed, fresh):
        one, two = fresh(VIEWS), fresh(VIEWS)
        feed, other = new_feed(two, one), new_feed(fresh(VIEWS))

        assert catalog.names(feed.pipeline) == sorted([one.name, two.name])
        assert {one.name, two.name, other.specs[0].name} <= set(catalog.names())
        assert [spec.name for spec in catalog.specs(feed.pipeline)] == catalog.names(feed.pipeline)

    def test_an_unknown_state_is_refused_with_the_names_there_are(self, catalog, new_feed, fresh):
        new_feed(fresh(VIEWS))

        with pytest.raises(UnknownStateError) as caught:
            catalog.get("nope")

        assert str(caught.value) == f"state 'nope' does not exist; there are {', '.join(catalog.names())}"

    def test_all_states_are_registered_or_none(self, catalog, conn, new_feed, fresh):
        feed, good, bad = new_feed(stored := fresh(VIEWS)), fresh(VIEWS), fresh(VIEWS)

        with pytest.raises(SpecMismatchError):
            register(feed, good, replace(stored, kind="transactional"), bad)

        assert catalog.names(feed.pipeline) == [stored.name]
        assert tables(conn, good.name) == []

    def test_two_drivers_that_register_at_once_both_succeed(self, new_feed, connect, fresh):
        feed, specs = new_feed(), [fresh(replace(VIEWS, changelog=True, partitions=2)) for _ in range(3)]
        errors = []

        def run():
            try:
                Catalog(connect_one()).register_states(feed.pipeline, specs, {spec.name: "" for spec in specs})
            except psycopg.Error as error:
                errors.append(error)

        conns = [connect(), connect()]
        connect_one = conns.pop
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert errors == []
        assert Catalog(feed.conn).names(feed.pipeline) == sorted(spec.name for spec in specs)

    def test_a_name_that_another_states_partition_has_is_refused(self, catalog, new_feed, fresh):
        feed = new_feed(parted := fresh(replace(VIEWS, partitions=2)))
        clash = f"{parted.name}_p1"

        with pytest.raises(SpecMismatchError) as caught:
            register(feed, parted, replace(VIEWS, name=clash))

        assert str(caught.value) == (
            f"state {clash!r}: {clash!r} would be the name of a table, partition or index of it and of state "
            f"{parted.name!r}; choose another name"
        )

    def test_a_state_is_created_beside_one_whose_measure_this_process_does_not_know(self, catalog, new_feed, fresh):
        with documented_reducer() as recent:
            new_feed(unknown := fresh(StateSpec("unknown", key={"page": "text"}, measures={"m": recent("x", by="at")})))
        feed = new_feed(fresh(VIEWS))

        assert catalog.names(feed.pipeline) == [feed.specs[0].name]
        with pytest.raises(SpecMismatchError):
            register(feed, *feed.specs, replace(VIEWS, name=f"{unknown.name}_pkey"))

    def test_a_partition_or_index_whose_name_another_state_has_is_refused_before_rows_are_copied(
        self, catalog, new_feed, fresh
    ):
        feed = new_feed(whole := fresh(VIEWS))
        feed.run([{"page": "a", "n": 3}])
        others = [replace(VIEWS, name=f"{whole.name}_{suffix}") for suffix in ("p0", "p1_txid_idx")]
        told = []
        for other in others:
            register(feed, whole, other)

            with pytest.raises(SpecMismatchError, match=f"{other.name!r} would be the name of"):
                catalog.register_states(
                    feed.pipeline, [replace(whole, partitions=2)], {whole.name: ""}, lambda *copied: told.append(copied)
                )
            feed.conn.execute("DELETE FROM tidegauge.state WHERE name = %s", [other.name])

        assert told == []

    def test_two_new_states_of_one_pipeline_whose_names_meet_are_refused_before_either_is_created(
        self, new_feed, fresh
    ):
        feed = new_feed()
        parted = fresh(replace(VIEWS, partitions=2))

        with pytest.raises(SpecMismatchError, match=f"'{parted.name}_p0' would be the name of"):
            register(feed, replace(VIEWS, name=f"{parted.name}_p0"), parted)

        assert tables(feed.conn, parted.name) == []

    def test_a_relation_that_is_no_states_is_refused_by_name(self, new_feed, fresh, conn):
        feed = new_feed()
        conn.execute(f"CREATE TABLE tidegauge_state.{(spec := fresh(VIEWS)).name} ()")

        with pytest.raises(SpecMismatchError, match="the database has something of that name already"):
            register(feed, spec)

    def test_installing_again_and_again_keeps_everything(self, catalog, new_feed, fresh):
        feed = new_feed(spec := fresh(VIEWS))
        feed.run([{"page": "a", "n": 3}])

        catalog.install()
        catalog.install()

        assert feed.read(spec, ("a",)) == [{"n": 3}]


class TestLateStates:
    def test_a_state_added_to_a_filled_pipeline_says_after_which_batch(self, new_feed, fresh, conn):
        feed = new_feed(fresh(VIEWS))
        feed.run([{"page": "a", "n": 1}])
        late = fresh(VIEWS)

        register(feed, *feed.specs, late)
        register(feed, *feed.specs, late)

        since = "SELECT since_txid FROM tidegauge.state WHERE name = %s"
        assert conn.execute(since, [feed.specs[0].name]).fetchone() == (0,)
        assert conn.execute(since, [late.name]).fetchone() == (1,)


class TestNewMeasures:
    def test_a_new_measure_keeps_the_rows_and_starts_from_nothing(self, catalog, new_feed, fresh):
        feed = new_feed(old := fresh(replace(VIEWS, changelog=True)))
        feed.run([{"page": "a", "n": 3}])
        new = replace(old, measures=ADDED)

        register(feed, new)

        assert feed.read(new, ("a",)) == [{"n": 3, "total": 0, "top": None, "mean": None}]
        assert list(catalog.get(new.name).measures) == ["n", "total", "top", "mean"]
        feed.specs = [new]
        feed.run([{"page": "a", "n": 1, "total": 2.5, "top": 2.5, "mean_sum": 2.5, "mean_count": 1}])
        assert feed.read(new, ("a",)) == [{"n": 4, "total": 2.5, "top": 2.5, "mean": 2.5}]

    def test_a_batch_left_open_by_the_old_declaration_is_undone_under_the_new_one(self, new_feed, fresh):
        feed = new_feed(old := fresh(VIEWS))
        feed.run([{"page": "a", "n": 3}])
        feed.apply(feed.begin(1), old, [{"page": "a", "n": 10}, {"page": "b", "n": 10}])
        new = replace(old, measures={"n": Count(), "total": Sum("x", "double precision")})

        register(feed, new)
        feed.specs = [new]
        feed.run([{"page": "a", "n": 1, "total": 5.0}])

        assert feed.read(new, ("a",), ("b",)) == [{"n": 4, "total": 5}, "missing"]

    def test_readers_of_the_old_declaration_go_on(self, conn, new_feed, fresh):
        feed = new_feed(old := fresh(VIEWS))
        feed.run([{"page": "a", "n": 3}])
        reader = StateReader(conn, old)

        register(feed, replace(old, measures=ADDED))

        assert reader.multi_get([("a",)]).parsed()[0]["value"] == {"n": 3}

    def test_the_live_view_shows_the_new_measure(self, conn, new_feed, fresh):
        feed = new_feed(old := fresh(VIEWS))
        feed.run([{"page": "a", "n": 3}])

        register(feed, replace(old, measures=ADDED))

        view = conn.execute(f"SELECT page, n, total, top, mean, txid FROM tidegauge_live.{old.name}")
        assert view.fetchall() == [("a", 3, 0.0, None, None, 1)]

    def test_the_version_of_a_state_grows_with_its_definition(self, conn, new_feed, fresh):
        feed = new_feed(spec := fresh(VIEWS))
        version = "SELECT version FROM tidegauge.state WHERE name = %s"

        register(feed, spec)
        assert conn.execute(version, [spec.name]).fetchone() == (1,)
        register(feed, replace(spec, measures=ADDED))
        assert conn.execute(version, [spec.name]).fetchone() == (2,)

    def test_a_ttl_may_change(self, catalog, new_feed, fresh):
        feed = new_feed(spec := fresh(VIEWS))

        register(feed, replace(spec, ttl=timedelta(days=400, microseconds=1)))
        assert catalog.get(spec.name).ttl == timedelta(days=400, microseconds=1)
        register(feed, spec)
        assert catalog.get(spec.name).ttl is None

    def test_how_long_tiles_are_kept_may_change_and_their_sizes_may_not(self, catalog, new_feed, fresh):
        tiles = {"minute": timedelta(hours=1), "hour": None}
        spec = fresh(StateSpec("tiled", key={"start": "timestamptz"}, measures={"n": Count()}, tiles=tiles))
        feed = new_feed(spec)
        longer = {"minute": timedelta(hours=9), "hour": timedelta(days=2)}

        register(feed, replace(spec, tiles=longer))

        assert catalog.get(spec.name).tiles == longer
        for other in ({**longer, "day": None}, None):
            with pytest.raises(SpecMismatchError, match=r"tiles was .*32400.*, is "):
                register(feed, replace(spec, tiles=other))


NUMBERED = StateSpec(
    "numbered",
    key={"page": "text", "day": "integer"},
    measures={"n": Count(), "total": Sum("x", type="bigint")},
    ttl=timedelta(days=2),
    changelog=True,
)


class TestMigrations:
    """Differences that copying the rows bridges."""

    @pytest.fixture(autouse=True)
    def small_chunks(self, monkeypatch):
        monkeypatch.setattr(rewrite, "CHUNK_ROWS", 2)

    @pytest.fixture
    def feed(self, new_feed, fresh):
        """Three batches of which the second updates a row, then one that a dead driver left open."""
        feed = new_feed(spec := fresh(NUMBERED))
        feed.run([self.row("a", 1, 5), self.row("b", 1, 6), self.row("c", 2, 7)])
        feed.run([self.row("a", 1, 10)])
        feed.run([self.row("d", 3, 2)])
        feed.apply(feed.begin(3), spec, [self.row("a", 1, 100), self.row("new", 1, 100)])
        return feed

    def row(self, page, day, total):
        return {"page": page, "day": day, "n": 1, "total": total}

    def everything(self, feed, spec):
        keys = [(page, day) for page in ("a", "b", "c", "d", "new") for day in (1, 2, 3)]
        return feed.read(spec, *keys), [Changelog(feed.conn, spec).history(key) for key in keys]

    @pytest.mark.parametrize(
        "change",
        [
            {"partitions": 3},
            {"key": {"page": "text", "day": "bigint"}},
            {"measures": {"n": Count(), "total": Sum("x", type="numeric")}},
            {"measures": {"n": Count(), "total": Sum("x", type="numeric"), "top": Max("x")}, "partitions": 2},
        ],
    )
    def test_rows_versions_and_history_come_along(self, feed, catalog, change):
        (old,) = feed.specs
        new = replace(old, **change)
        before = self.everything(feed, old)
        told = []

        catalog.register_states(feed.pipeline, [new], {new.name: ""}, lambda state, rows: told.append((state, rows)))

        assert told == [(new.name, rows) for rows in (2, 4, 5, 7, 9, 11, 12)]
        assert definition(catalog.get(new.name)) == definition(new)
        answers, histories = self.everything(feed, old)
        assert (answers, histories) == before
        feed.specs = [new]
        feed.run([self.row("a", 1, 1) | ({"top": 1} if "top" in new.measures else {})])
        assert [value["total"] for value in feed.read(new, ("a", 1), ("b", 1))] == [16, 6]
        assert feed.read(new, ("new", 1)) == ["missing"]

    def test_a_changelog_begins_with_what_is_committed(self, feed, catalog, fresh, new_feed, conn):
        feed = new_feed(old := fresh(replace(NUMBERED, changelog=False)))
        feed.run([self.row("a", 1, 5), self.row("b", 1, 6)])
        feed.run([self.row("a", 1, 10)])
        feed.apply(feed.begin(2), old, [self.row("a", 1, 100), self.row("new", 1, 100)])

        new = replace(old, changelog=True)
        register(feed, new)

        log = Changelog(conn, new)
        assert [(change.txid, change.value["total"]) for change in log.history(("a", 1))] == [(2, 15)]
        assert [(change.txid, change.value["total"]) for change in log.history(("b", 1))] == [(1, 6)]
        assert log.history(("new", 1)) == []
        assert conn.execute("SELECT oldest_txid FROM tidegauge.state WHERE name = %s", [new.name]).fetchone() == (2,)
        feed.specs = [new]
        feed.run([self.row("a", 1, 1)])
        assert [change.txid for change in log.history(("a", 1))] == [3, 2]

    def test_readers_see_the_old_state_until_the_new_one_is_whole(self, feed, catalog, connect):
        (old,) = feed.specs
        new, reader = replace(old, partitions=2), connect()
        seen = []

        def look(state, rows):
            seen.append(StateReader(reader, old).multi_get([("a", 1), ("d", 3)]).parsed())

        catalog.register_states(feed.pipeline, [new], {new.name: ""}, look)

        assert all(answers == seen[0] for answers in seen)
        assert StateReader(reader, new).multi_get([("a", 1), ("d", 3)]).parsed() == seen[0]

    def test_an_index_of_a_user_stays(self, feed, catalog, conn):
        (old,) = feed.specs
        conn.execute(f"CREATE INDEX mine_{old.name} ON tidegauge_state.{old.name} (n DESC) WHERE n > 5")
        indexes = (
            "SELECT indexdef FROM pg_indexes WHERE tablename ~ ('^' || %s || '(_p[0-9]+)?$') "
            "AND indexdef LIKE '%%n DESC%%'"
        )
        for partitions, expected in [(2, 3), (3, 4)]:  # of the table and of each partition
            register(feed, replace(old, partitions=partitions))
            found = [text for (text,) in conn.execute(indexes, [old.name])]
            assert len(found) == expected
            assert all("WHERE (n > 5)" in text for text in found)
            assert sum(f"mine_{old.name} " in text for text in found) == 1

    def test_a_change_that_is_refused_is_found_without_a_change(self, feed, catalog, conn):
        (old,) = feed.specs
        before = conn.execute("SELECT * FROM tidegauge.state WHERE name = %s", [old.name]).fetchone()
        catalog.check_declarations(feed.pipeline, [replace(old, partitions=2)])
        with pytest.raises(SpecMismatchError, match="run with --reprocess, which counts the input again under the"):
            catalog.check_declarations(feed.pipeline, [replace(old, kind="transactional")])

        assert conn.execute("SELECT * FROM tidegauge.state WHERE name = %s", [old.name]).fetchone() == before

    def test_one_that_was_killed_in_the_middle_starts_over(self, feed, catalog):
        (old,) = feed.specs
        new = replace(old, partitions=2)
        before = self.everything(feed, old)

        def die(state, rows):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            catalog.register_states(feed.pipeline, [new], {new.name: ""}, die)
        assert definition(catalog.get(old.name)) == definition(old)
        assert self.everything(feed, old) == before
        register(feed, new)

        assert self.everything(feed, new) == before

    def test_nothing_is_copied_where_another_state_is_refused(self, feed, catalog, fresh):
        (old,) = feed.specs
        other = fresh(VIEWS)
        register(feed, old, other)
        changed = [replace(old, partitions=2), replace(other, kind="transactional")]
        told = []

        with pytest.raises(SpecMismatchError):
            catalog.register_states(feed.pipeline, changed, dict.fromkeys([old.name, other.name], ""), told.append)

        assert told == []

    def test_the_measures_that_came_later_say_after_which_batch(self, feed, conn):
        (old,) = feed.specs
        register(feed, replace(old, measures=dict(old.measures) | {"top": Max("x")}))

        since = conn.execute("SELECT measures_since FROM tidegauge.state WHERE name = %s", [old.name]).fetchone()
        assert since == ({"top": 3},)

    def test_a_transactional_state_waits_for_the_batch_that_is_open(self, new_feed, fresh):
        feed = new_feed(old := fresh(replace(VIEWS, kind="transactional")))
        feed.apply(feed.begin(0), old, [{"page": "a", "n": 1}])

        with pytest.raises(SpecMismatchError) as caught:
            register(feed, replace(old, measures=VIEWS.measures | {"total": Sum("x", "double precision")}))

        assert str(caught.value) == (
            f"state {old.name!r}: measure 'total' is new, but batch 1 is open and the rows that it has written are not "
            "counted again under another declaration; finish that batch with the stored declaration first"
        )


class TestDifferences:
    @pytest.fixture
    def refused(self, new_feed, fresh):
        """Registers a state, then a changed declaration of it; returns the message without what is always there."""

        def refused(change, stored=VIEWS):
            feed = new_feed(spec := fresh(stored))
            feed.run([{"page": "a", "n": 3}])
            with pytest.raises(SpecMismatchError) as caught:
                register(feed, replace(spec, **change))
            assert feed.read(spec, ("a",)) == [{"n": 3}]
            start = f"state {spec.name!r}: its declaration differs from the stored one: "
            end = (
                "; restore the declaration, or run with --reprocess, which counts the input again under the new one; "
                "or feed a state with another name"
            )
            message = str(caught.value)
            assert message.startswith(start)
            assert message.endswith(end)
            return message.removeprefix(start).removesuffix(end)

        return refused

    def test_a_renamed_measure(self, refused):
        assert refused({"measures": {"views": Count()}}) == "measure 'n' is gone; measure 'views' is new"

    def test_a_measure_of_other_arguments(self, refused):
        message = refused({"measures": {"n": Count("page <> ''")}})

        assert message == "measure 'n' was count(), is count(where=\"page <> ''\")"

    def test_a_measure_of_another_aggregator(self, refused):
        message = refused({"measures": {"n": Sum("x", type="bigint")}})

        assert message == "measure 'n' was count(), is sum(column='x', type='bigint')"

    def test_a_sum_that_was_of_doubles_when_no_type_was_given(self, refused):
        stored = StateSpec("doubles", key={"page": "text"}, measures={"n": Sum("x", type="double precision")})

        message = refused({"measures": {"n": Sum("x")}}, stored)

        assert message == (
            "measure 'n' was sum(column='x', type='double precision'), is sum(column='x', type='numeric'), the default "
            "of a Sum without a type (type='double precision' keeps the stored doubles)"
        )

    def test_a_number_that_would_lose_digits(self, refused):
        stored = StateSpec("narrow", key={"page": "text"}, measures={"n": Sum("x", type="numeric")})

        message = refused({"measures": {"n": Sum("x", type="bigint")}}, stored)

        assert message == "measure 'n' was sum(column='x', type='numeric'), is sum(column='x', type='bigint')"

    def test_a_changelog_that_is_given_up(self, refused):
        assert refused({"changelog": False}, replace(VIEWS, changelog=True)) == "changelog was True, is False"

    def test_another_key(self, refused):
        assert refused({"key": {"page": "bigint"}}) == "key was {'page': 'text'}, is {'page': 'bigint'}"

    def test_another_kind_changelog_and_partitions_are_named_together(self, refused):
        message = refused({"kind": "transactional", "changelog": True, "partitions": 4})

        assert message == (
            "kind was 'opaque', is 'transactional'; changelog was False, is True; partitions was 1, is 4"
        )

    def test_keys_in_another_order(self, new_feed, fresh):
        feed = new_feed(spec := fresh(replace(VIEWS, key={"a": "text", "b": "text"})))

        with pytest.raises(SpecMismatchError, match=r"key_order was \['a', 'b'\], is \['b', 'a'\]"):
            register(feed, replace(spec, key={"b": "text", "a": "text"}))

    def test_another_pipeline(self, new_feed, fresh):
        owner, other = new_feed(spec := fresh(VIEWS)), new_feed()

        with pytest.raises(SpecMismatchError) as caught:
            register(other, spec)

        assert str(caught.value) == (
            f"state {spec.name!r}: fed by pipeline {owner.pipeline!r}, so pipeline {other.pipeline!r} cannot feed it "
            "too; choose another name"
        )


class TestAggregators:
    """What stands in the catalog must be made again by every process that reads it."""

    def test_a_class_without_a_line_is_refused_before_anything_is_created(self, new_feed, fresh, conn):
        class Visits(Count):
            name = "visits"

        feed, spec = new_feed(), fresh(replace(VIEWS, measures={"n": Visits()}))

        with pytest.raises(SpecError) as caught:
            register(feed, spec)

        assert str(caught.value) == (
            f"state {spec.name!r}: measure 'n' is a Visits, and AGGREGATORS['visits'] is missing; give the class its "
            "own name and register it there, in every process that reads the catalog"
        )
        assert tables(conn, spec.name) == []

    def test_a_class_that_goes_by_anothers_name_is_refused(self, new_feed, fresh):
        class Visits(Count):
            pass

        with pytest.raises(SpecError, match=r"is a Visits, and AGGREGATORS\['count'\] is Count"):
            new_feed(fresh(replace(VIEWS, measures={"n": Visits()})))

    def test_a_process_that_lacks_the_line_says_which(self, catalog, new_feed, fresh, monkeypatch):
        new_feed(spec := fresh(VIEWS))
        monkeypatch.delitem(AGGREGATORS, "count")

        with pytest.raises(SpecError) as caught:
            catalog.get(spec.name)

        assert str(caught.value) == (
            f"state {spec.name!r}: measure 'n' is a 'count', but this process knows {', '.join(AGGREGATORS)}; register "
            "its class first, as AGGREGATORS['count'] = .. (docs/aggregators.md)"
        )


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
names = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
aggregators = st.one_of(
    st.builds(Count, where=st.none() | texts),
    st.builds(Mean, texts),
    *[
        st.builds(kind, texts, type=st.sampled_from(["bigint", "double precision", "numeric"]))
        for kind in (Sum, Min, Max)
    ],
)


@st.composite
def specs(draw):
    unique = draw(st.lists(names, min_size=6, max_size=6, unique=True))
    keys, measures = unique[:3], unique[3:]
    kind = draw(st.sampled_from(["opaque", "transactional", "non_transactional"]))
    key = {f"k_{name}": draw(st.sampled_from(list(KEY_TYPES))) for name in draw(st.permutations(keys))}
    return StateSpec(
        "spec",
        key=draw(st.sampled_from([key, {}])),
        kind=kind,
        ttl=draw(st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=10_000))),
        changelog=kind != "non_transactional" and draw(st.booleans()),
        **draw(
            st.just({"value": "jsonb"})
            | st.fixed_dictionaries({f"m_{name}": aggregators for name in measures}).map(lambda m: {"measures": m})
        ),
    )


@examples(30)
@given(spec=specs())
def test_a_definition_goes_into_the_database_and_comes_back_the_same(conn, spec):
    (stored,) = conn.execute("SELECT %s", [Jsonb(definition(spec))]).fetchone()

    again = from_definition(spec.name, stored, spec.ttl)

    assert definition(again) == definition(spec)
    assert (list(again.key), list(again.measures), again.ttl) == (list(spec.key), list(spec.measures), spec.ttl)
    assert again.value_columns == spec.value_columns
