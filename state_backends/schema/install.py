"""Install Tidemark's own tables: one page of SQL that may run again and again."""

from pathlib import Path

import psycopg

SCHEMA = Path(__file__).with_name("schema.sql")

# Any constant will do; it keeps two installers from creating the same schema at once.
INSTALL_LOCK = 710384501


def install(conn: psycopg.Connection) -> None:
    """Create whatever of schema.sql is missing, in one transaction. Safe to call at every start."""
    with conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
        conn.execute(SCHEMA.read_bytes())
