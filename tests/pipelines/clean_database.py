"""A database with Tidegauge's tables, which every test finds as they were installed.

The tests of a process share it: dropping and installing the schemas takes 171 ms, and removing what a test has left
some 10 ms. A test that has changed the tables themselves costs the next one an installation.
"""

import psycopg
from psycopg import sql

from tidegauge.state_backends import Catalog

SCHEMAS = """
SELECT nspname FROM pg_namespace WHERE nspname = 'tidegauge' OR nspname LIKE 'tidegauge\\_%'
"""

# States, what reprocesses have left of them, and tables that a test has made in `public`.
DROP_TABLES = """
DO $$ DECLARE relation text; BEGIN
  FOR relation IN SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n
    ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND (n.nspname = 'public' OR n.nspname LIKE 'tidegauge\\_%')
  LOOP EXECUTE 'DROP TABLE IF EXISTS ' || relation || ' CASCADE'; END LOOP;
END $$;
"""

# DELETE, because TRUNCATE makes new files. Most of the tables are empty.
DELETE_ROWS = """
DO $$ DECLARE relation text; has_rows boolean; BEGIN
  FOR relation IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
    WHERE schemaname = 'tidegauge' AND tablename <> 'schema_version'
  LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', relation) INTO has_rows;
    IF has_rows THEN EXECUTE 'DELETE FROM ' || relation; END IF;
  END LOOP;
  PERFORM setval(format('%I.%I', schemaname, sequencename), 1, false) FROM pg_sequences
    WHERE schemaname = 'tidegauge' AND last_value IS NOT NULL;
END $$;
"""

# Everything that an installation makes, in one text.
SHAPE = """
SELECT md5(string_agg(part, ' ' ORDER BY part)) FROM (
  SELECT concat_ws(':', c.oid::regclass, a.attname, a.atttypid, a.attnotnull) AS part
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace::regnamespace::text ~ '^tidegauge'
  UNION ALL SELECT concat_ws(':', conrelid::regclass, conname) FROM pg_constraint
    WHERE connamespace::regnamespace::text ~ '^tidegauge'
  UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc
    WHERE pronamespace::regnamespace::text ~ '^tidegauge'
  UNION ALL SELECT concat_ws(':', number, digest) FROM tidegauge.schema_version
  UNION ALL SELECT nspname FROM pg_namespace WHERE nspname ~ '^tidegauge'
) parts
"""

# A test may have left a transaction open; the statement then fails here instead of waiting without end.
PATIENCE = "SET LOCAL lock_timeout = '20s';"

_shapes: dict[str, str] = {}  # by database


def clean(conn: psycopg.Connection) -> None:
    """Bring Tidegauge's tables back to how they were installed; install them if they are not there. For autocommit."""
    if conn.info.dbname not in _shapes or not _is_cleaned(conn, _shapes[conn.info.dbname]):
        _install(conn)
        _shapes[conn.info.dbname] = _shape(conn)


def _is_cleaned(conn: psycopg.Connection, shape: str) -> bool:
    with conn.transaction():
        conn.execute(PATIENCE + DROP_TABLES)
        row = conn.execute("SELECT to_regclass('tidegauge.schema_version')").fetchone()
        if row == (None,) or _shape(conn) != shape:
            return False
        conn.execute(DELETE_ROWS)
    return True


def _install(conn: psycopg.Connection) -> None:
    for (schema,) in conn.execute(SCHEMAS).fetchall():
        conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
    Catalog(conn).install()


def _shape(conn: psycopg.Connection) -> str:
    row = conn.execute(SHAPE).fetchone()
    assert row is not None
    return str(row[0])
