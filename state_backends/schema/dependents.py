"""Dependents: objects that users have created on a state's tables and views, and that would be lost with them."""

from collections.abc import Iterable

import psycopg
from psycopg import sql

from tidegauge.state_backends.errors import DependentObjectsError

# Live views are left out, because they are repointed to the new tables, and users' indexes, because they are created
# again.
DEPENDENTS = """
WITH relation AS (
    SELECT c.oid FROM unnest(%(names)s::text[]) n JOIN pg_class c ON c.oid = to_regclass(n)
    UNION ALL
    SELECT i.inhrelid FROM unnest(%(names)s::text[]) n JOIN pg_inherits i ON i.inhparent = to_regclass(n)
)
SELECT DISTINCT pg_describe_object(found.classid, found.objid, 0) FROM (
    SELECT 'pg_class'::regclass AS classid, v.oid AS objid FROM relation
    JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = relation.oid
        AND d.classid = 'pg_rewrite'::regclass
    JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class
    WHERE v.relnamespace <> 'tidegauge_live'::regnamespace
    UNION ALL
    SELECT d.classid, d.objid FROM relation
    JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = relation.oid AND d.deptype IN ('n', 'a')
    LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
    WHERE d.classid IN ('pg_proc'::regclass, 'pg_policy'::regclass, 'pg_publication_rel'::regclass)
        OR NOT t.tgisinternal
) found ORDER BY 1
"""


def check_dependents(
    conn: psycopg.Connection, state: str, relations: Iterable[sql.Identifier], change: str, way_out: str = ""
) -> None:
    """Check that no user's objects depend on these tables or views of a state, which `change` replaces or drops.

    change, way_out: for the message, such as `its rows are copied`. Raises DependentObjectsError, which names it.
    """
    names = [relation.as_string(conn) for relation in relations]
    found = [name for (name,) in conn.execute(DEPENDENTS, {"names": names})]
    if found:
        raise DependentObjectsError(
            f"state {state!r}: {change}, and these objects depend on it: {', '.join(found)}; "
            + (
                way_out
                or f"keep its definition, drop it, start again, and create it again over tidegauge_live.{state}, which "
                "stays when tables are replaced"
            )
        )
