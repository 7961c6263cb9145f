"""What users have granted on a state's tables, and made on top of them, through every change of the state."""

import re
from dataclasses import replace

import pytest

from tests.recovery_page import message_of
from tidegauge.state_backends import Catalog, Count, Max, StateSpec, Sum
from tidegauge.state_backends.errors import DependentObjectsError
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema.definition import definition

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count(), "total": Sum("x", type="bigint")})
LOGGED = replace(VIEWS, changelog=True)

MEASURES = {"top": Max("x"), **VIEWS.measures}  # in front, as people declare them


def register(feed, spec, on_copied=lambda state, rows: None):
    Catalog(feed.conn).register_states(feed.pipeline, [spec], {spec.name: ""}, on_copied)


def reprocess(feed, spec, on_copied=lambda state, rows: None):
    """Fill an empty shadow and swap it in, as a reprocess does."""
    old, tables = Catalog(feed.conn).get(spec.name), BACKENDS.tables_of(spec)
    tables.check_replaceable(feed.conn, old, spec)
    tables.create_shadow(feed.conn, spec)
    with feed.conn.transaction():
        tables.swap(feed.conn, old, spec)


def end_changelog(feed, spec):
    Catalog(feed.conn).edit(spec.name, changelog=False)
    register(feed, replace(spec, changelog=True))


CHANGES = {
    "a new measure": (VIEWS, {"measures": MEASURES}, register),
    "a migration": (VIEWS, {"partitions": 3}, register),
    "a migration that adds a measure": (VIEWS, {"partitions": 3, "measures": MEASURES}, register),
    "a changelog begins": (VIEWS, {"changelog": True}, register),
    "a changelog ends": (LOGGED, {"changelog": False}, end_changelog),
    "a reprocess": (VIEWS, {}, reprocess),
    "a reprocess with a new measure": (LOGGED, {"measures": MEASURES}, reprocess),
}


@pytest.fixture
def role(conn):
    """A role that may do nothing yet."""
    name = f"analyst_{conn.info.backend_pid}"
    conn.execute(f"CREATE ROLE {name}; GRANT USAGE ON SCHEMA tidegauge_live TO {name}")
    yield name
    conn.execute(f"RESET ROLE; REASSIGN OWNED BY {name} TO CURRENT_USER; DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture
def feed(new_feed, fresh):
    def feed(declared):
        feed = new_feed(fresh(declared))
        feed.run([{"page": "a", "n": 1, "total": 3}])
        return feed

    return feed


def relations(conn, name):
    """Return the schemas in which the state has a table or a view."""
    rows = conn.execute(
        "SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = %s AND relkind IN ('r', 'p', 'v') "
        "ORDER BY 1",
        [name],
    )
    return [schema for (schema,) in rows]


def grants(conn, name, role):
    """Return what a role may do with the state's tables, as schema to its privileges and those on columns."""
    rows = conn.execute(
        "SELECT c.relnamespace::regnamespace::text, array_agg(a.privilege_type || CASE WHEN a.is_grantable THEN '*' "
        "ELSE '' END || coalesce('(' || a.attname || ')', '') ORDER BY a.privilege_type, a.attname) FROM pg_class c, "
        "LATERAL (SELECT NULL::name AS attname, r.* FROM aclexplode(c.relacl) r UNION ALL SELECT t.attname, r.* "
        "FROM pg_attribute t, aclexplode(t.attacl) r WHERE t.attrelid = c.oid) a "
        "WHERE c.relname = %s AND a.grantee = %s::regrole GROUP BY 1",
        [name, role],
    )
    return dict(rows.fetchall())


@pytest.mark.parametrize("change", CHANGES)
def test_grants_survive(feed, conn, role, change):
    declared, changes, change = CHANGES[change]
    feed = feed(declared)
    (old,) = feed.specs
    for schema in relations(conn, old.name):
        conn.execute(f"GRANT SELECT ON {schema}.{old.name} TO {role} WITH GRANT OPTION")
    conn.execute(f"GRANT UPDATE (n) ON tidegauge_state.{old.name} TO {role}")
    conn.execute(f"GRANT SELECT ON tidegauge_live.{old.name} TO PUBLIC")
    before = grants(conn, old.name, role)

    change(feed, replace(old, **changes))

    kept = relations(conn, old.name)
    assert grants(conn, old.name, role) == {schema: found for schema, found in before.items() if schema in kept}
    assert before["tidegauge_state"] == ["SELECT*", "UPDATE(n)"]
    conn.execute(f"SET ROLE {role}")
    assert conn.execute(f"SELECT page FROM tidegauge_live.{old.name}").fetchall() in ([("a",)], [])
    conn.execute("RESET ROLE")


@pytest.mark.parametrize("change", CHANGES)
def test_views_of_users_survive(feed, conn, change):
    declared, changes, change = CHANGES[change]
    feed = feed(declared)
    (old,) = feed.specs
    conn.execute(f"CREATE VIEW of_user_{old.name} AS SELECT page, n + 1 AS more FROM tidegauge_live.{old.name}")

    change(feed, replace(old, **changes))

    feed.specs = [Catalog(conn).get(old.name)]
    rows = [{"page": "b", "n": 5, "total": 1} | ({"top": 1} if "top" in feed.specs[0].measures else {})]
    feed.run(rows)
    assert (("b", 6)) in conn.execute(f"SELECT page, more FROM of_user_{old.name}").fetchall()


def test_the_owner_stays_where_it_is_not_the_role_that_changes_the_tables(feed, conn, role):
    feed = feed(VIEWS)
    (old,) = feed.specs
    conn.execute(f"GRANT CREATE, USAGE ON SCHEMA tidegauge_state, tidegauge_live TO {role}")
    conn.execute(f"ALTER TABLE tidegauge_state.{old.name} OWNER TO {role}")

    register(feed, replace(old, partitions=2))

    owner = conn.execute(
        "SELECT relowner::regrole::text FROM pg_class WHERE oid = %s::regclass", [f"tidegauge_state.{old.name}"]
    )
    assert owner.fetchone() == (role,)


def test_options_of_the_live_view_stay(feed, conn):
    feed = feed(VIEWS)
    (old,) = feed.specs
    conn.execute(f"ALTER VIEW tidegauge_live.{old.name} SET (security_invoker = true)")

    register(feed, replace(old, measures=MEASURES, partitions=2))

    options = conn.execute("SELECT reloptions FROM pg_class WHERE oid = %s::regclass", [f"tidegauge_live.{old.name}"])
    assert options.fetchone() == (["security_invoker=true"],)


def test_new_measures_come_last_in_the_live_view(feed, conn):
    feed = feed(VIEWS)
    (old,) = feed.specs

    register(feed, replace(old, measures=MEASURES))

    columns = [column.name for column in conn.execute(f"SELECT * FROM tidegauge_live.{old.name}").description]
    assert columns == ["page", "n", "total", "txid", "updated_at", "top"]


class TestRefused:
    """What would be lost is named before anything is copied."""

    def refusal(self, feed, new, change=register):
        before = feed.conn.execute("SELECT definition FROM tidegauge.state WHERE name = %s", [new.name]).fetchone()
        told = []
        with pytest.raises(DependentObjectsError) as refused:
            change(feed, new, lambda state, rows: told.append(rows))
        after = feed.conn.execute("SELECT definition FROM tidegauge.state WHERE name = %s", [new.name]).fetchone()
        assert (before, told) == (after, [])
        return str(refused.value)

    def test_a_view_on_a_column_that_changes_its_type(self, feed, conn):
        feed = feed(VIEWS)
        (old,) = feed.specs
        conn.execute(f"CREATE VIEW totals_{old.name} AS SELECT total FROM tidegauge_live.{old.name}")
        wider = replace(old, measures={"n": Count(), "total": Sum("x", type="numeric")})

        said = self.refusal(feed, wider)

        assert re.search(message_of("A view depends on a table that changes", 2), said)
        assert said == (
            f"state {old.name!r}: its view gets columns of other types, or loses some, and these objects depend on it: "
            f"view totals_{old.name}; keep its definition, drop it, start again, and create it again over "
            f"tidegauge_live.{old.name}, which stays when tables are replaced"
        )

        conn.execute(f"DROP VIEW totals_{old.name}")
        register(feed, wider)

    def test_grants_stay_where_a_column_changes_its_type_and_nothing_stands_on_the_view(self, feed, conn, role):
        feed = feed(VIEWS)
        (old,) = feed.specs
        conn.execute(f"GRANT SELECT ON tidegauge_live.{old.name} TO {role}")

        register(feed, replace(old, measures={"n": Count(), "total": Sum("x", type="numeric")}))

        assert grants(conn, old.name, role) == {"tidegauge_live": ["SELECT"]}

    def test_a_reprocess_into_other_measures_under_a_view(self, feed, conn):
        feed = feed(VIEWS)
        (old,) = feed.specs
        conn.execute(f"CREATE VIEW pages_{old.name} AS SELECT page FROM tidegauge_live.{old.name}")

        assert f"view pages_{old.name};" in self.refusal(feed, replace(old, measures={"n": Count()}), reprocess)

    @pytest.mark.parametrize(
        ("create", "named"),
        [
            ("CREATE VIEW direct_{0} AS SELECT page FROM tidegauge_state.{0}", "view direct_{0}"),
            ("CREATE MATERIALIZED VIEW kept_{0} AS SELECT page FROM tidegauge_state.{0}", "materialized view kept_{0}"),
            ("CREATE POLICY own ON tidegauge_state.{0} USING (true)", "policy own on table tidegauge_state.{0}"),
            (
                "CREATE TRIGGER copied AFTER INSERT ON tidegauge_state.{0} "
                "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
                "trigger copied on table tidegauge_state.{0}",
            ),
            (
                "CREATE PUBLICATION sent_{0} FOR TABLE tidegauge_state.{0}",
                "publication of table tidegauge_state.{0} in publication sent_{0}",
            ),
            (
                "CREATE FUNCTION counted_{0}() RETURNS bigint RETURN (SELECT count(*) FROM tidegauge_state.{0})",
                "function counted_{0}()",
            ),
        ],
        ids=["view", "materialized view", "policy", "trigger", "publication", "function"],
    )
    def test_a_copy_under_what_stands_on_the_table_itself(self, feed, conn, create, named):
        feed = feed(VIEWS)
        (old,) = feed.specs
        conn.execute(create.format(old.name))

        assert self.refusal(feed, replace(old, partitions=2)).startswith(
            f"state {old.name!r}: its tables are replaced, and these objects depend on it: {named.format(old.name)}; "
        )

        register(feed, replace(old, measures=MEASURES))
        assert definition(Catalog(conn).get(old.name))["measure_order"] == list(MEASURES)

    def test_a_view_on_the_changelog_that_ends(self, feed, conn):
        feed = feed(LOGGED)
        (old,) = feed.specs
        conn.execute(f"CREATE VIEW history_{old.name} AS SELECT page, txid FROM tidegauge_changelog.{old.name}")
        Catalog(conn).edit(old.name, changelog=False)

        said = self.refusal(feed, old)

        assert re.search(message_of("A view depends on a table that changes", 3), said)
        assert f"these objects depend on it: view history_{old.name};" in said
