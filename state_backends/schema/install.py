"""Install Tidemark's own tables: one page of SQL that may run again and again."""

from hashlib import sha256
from pathlib import Path

import psycopg

SCHEMA = Path(__file__).with_name("schema.sql")

# Any constant will do; it keeps two installers from creating the same schema at once.
INSTALL_LOCK = 710384501


def install(conn: psycopg.Connection) -> None:
    """Create whatever of schema.sql is missing, in one transaction. Safe to call at every start.

    Nothing is done where this very page was the last one installed: even a statement that changes nothing locks its
    table, and a driver that starts would wait for a backup, and all readers for the driver.
    """
    page = SCHEMA.read_bytes()
    digest = sha256(page).hexdigest()
    if _installed(conn) == digest:
        return
    with conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
        conn.execute(page)
        conn.execute("UPDATE tidemark.schema_version SET digest = %s", [digest])


def _installed(conn: psycopg.Connection) -> str | None:
    found = conn.execute("SELECT to_regclass('tidemark.schema_version')").fetchone()
    if found is None or found[0] is None:
        return None
    # By way of JSON: the column is younger than the table.
    row = conn.execute(
        "SELECT to_jsonb(v) ->> 'digest' FROM tidemark.schema_version v ORDER BY version DESC LIMIT 1"
    ).fetchone()
    return row[0] if row else None
