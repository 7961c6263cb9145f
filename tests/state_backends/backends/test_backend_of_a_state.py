"""Where a state lives, as the catalog keeps it: no table for one in Redis, and no move without feeding it anew."""

import json
from dataclasses import replace

import pytest

from tidegauge.state_backends import BACKENDS, Catalog, Count, StateSpec, Sum
from tidegauge.state_backends.errors import CapabilityError, SpecMismatchError
from tidegauge.state_backends.schema.definition import definition
from tidegauge.state_backends.schema.swap import Swap

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, backend="redis")


@pytest.fixture
def registered(conn, new_feed, fresh):
    """Registers a state, and hands out what registers another declaration of it."""

    def registered(spec):
        feed = new_feed(named := fresh(spec))
        catalog = Catalog(conn)
        return named, lambda **change: catalog.register_states(
            feed.pipeline, [replace(named, **change)], {named.name: ""}
        )

    return registered


def relations(conn, name):
    schemas = ("tidegauge_state", "tidegauge_live", "tidegauge_changelog")
    found = [conn.execute("SELECT to_regclass(%s)", [f"{schema}.{name}"]).fetchone() for schema in schemas]
    return [row[0] is not None for row in found]


def test_the_catalog_keeps_where_a_state_lives(conn, registered):
    spec, _ = registered(VIEWS)

    assert Catalog(conn).get(spec.name).backend == "redis"


def test_a_definition_from_before_states_could_say_so_is_of_postgres(conn, registered):
    spec, register = registered(replace(VIEWS, backend="postgres"))
    conn.execute("UPDATE tidegauge.state SET definition = definition - 'backend' WHERE name = %s", [spec.name])

    assert Catalog(conn).get(spec.name).backend == "postgres"
    with pytest.raises(SpecMismatchError, match="backend was 'postgres', is 'redis'"):
        register(backend="redis")
    register()


@pytest.mark.parametrize(("changelog", "there_are"), [(False, [False, False, False]), (True, [False, False, True])])
def test_a_state_in_redis_has_its_changelog_alone_in_the_database(conn, registered, changelog, there_are):
    spec, register = registered(replace(VIEWS, changelog=changelog))

    assert relations(conn, spec.name) == there_are
    register(measures={"n": Count(), "top": Sum("x", type="bigint")})
    assert relations(conn, spec.name) == there_are
    if changelog:
        assert conn.execute(f"SELECT top FROM tidegauge_changelog.{spec.name}").fetchall() == []


@pytest.mark.parametrize("now", ["postgres", "redis"])
def test_a_change_of_backend_is_refused_with_the_ways_out(registered, now):
    was = "redis" if now == "postgres" else "postgres"
    spec, register = registered(replace(VIEWS, backend=was))

    with pytest.raises(SpecMismatchError) as caught:
        register(backend=now)

    assert str(caught.value) == (
        f"state {spec.name!r}: its declaration differs from the stored one: backend was {was!r}, is {now!r}; restore "
        "the declaration, or move its rows with `tidegauge move STATE --to BACKEND`; or run with --reprocess to "
        "feed it again in its new place; in a backend that --reprocess cannot feed, declare a state with a new name"
    )


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"changelog": True}, "changelog was False, is True"),
        ({"key": {"page": "bigint"}}, "key was {'page': 'integer'}, is {'page': 'bigint'}"),
        ({"measures": {"n": Sum("x", type="numeric")}}, "measure 'n' was sum"),
    ],
)
def test_what_takes_a_copy_is_refused_where_nothing_copies(registered, change, difference):
    _, register = registered(
        StateSpec("views", key={"page": "integer"}, measures={"n": Sum("x", type="bigint")}, backend="redis")
    )

    with pytest.raises(SpecMismatchError, match=difference):
        register(**change)


def test_a_reprocess_that_would_leave_a_state_behind_in_redis_is_refused(conn, new_feed, fresh):
    kept, table = fresh(VIEWS), fresh(replace(VIEWS, backend="postgres"))
    feed = new_feed(kept, table)
    swap = Swap(conn, feed.pipeline)

    for specs in ([table], [table, kept]):
        with pytest.raises(
            SpecMismatchError, match=f"state '{kept.name}': lives in redis, which has no tables that can be"
        ):
            swap.begin(specs, spout="opaque")

    swap.begin([table, replace(kept, backend="postgres")], spout="opaque")
    assert swap.exists


def test_a_reprocess_that_began_before_states_could_say_so_goes_on(conn, new_feed, fresh):
    feed = new_feed(spec := fresh(replace(VIEWS, backend="postgres")))
    swap = Swap(conn, feed.pipeline)
    swap.begin([spec], spout="opaque")
    conn.execute(
        "UPDATE tidegauge.successor_state SET definition = %s WHERE name = %s",
        [json.dumps({part: held for part, held in definition(spec).items() if part != "backend"}), spec.name],
    )

    swap.begin([spec], spout="opaque")

    assert swap.exists


def test_the_tables_of_a_state_in_another_store_are_refused_by_name():
    with pytest.raises(CapabilityError, match="state 'views': its rows are in Redis, so they cannot be copied"):
        BACKENDS.tables_of(VIEWS)
