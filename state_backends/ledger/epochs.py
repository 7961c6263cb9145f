"""Epochs: which incarnation of the ledger its numbers belong to.

Txids, fences and batch ids count up from one. A ledger that went back (a backup was restored, or a standby was promoted
that lacked the last batches) therefore gives the same numbers out again for other batches. An epoch is a random name. A
new one is made whenever the ledger may have gone back, and numbers are compared within one epoch only.

Three kinds of evidence show that it may have:

- The server: its system identifier (another cluster), its timeline (a promotion, a recovery to a point in time), the
  database's oid, the oids of the ledger's tables (a database or tables created again).
- The row: `made_by` is the transaction that inserted it, and so is its system column `xmin`, which VACUUM does not
  change. A row that pg_restore, COPY or logical replication has copied was inserted by another transaction. Later
  transactions never update a row, because that would change its `xmin`.
- The checkpoint, outside of the database: the last batch that it has seen committed. It reveals a cold copy of the
  data directory or a snapshot of its disk, in which everything else is unchanged.
"""

import json
import secrets
from collections.abc import Mapping
from typing import LiteralString, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

# The parts of a server's identity. MEANINGS says what it means if one of them differs.
SYSTEM, TIMELINE, DATABASE, TABLES = "system", "timeline", "database", "tables"

QUERIES: dict[str, LiteralString] = {
    SYSTEM: "SELECT system_identifier::text FROM pg_control_system()",
    # Exact right after a promotion, while pg_control_checkpoint() still has the timeline of the last checkpoint.
    TIMELINE: "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)",
    DATABASE: "SELECT oid::text FROM pg_database WHERE datname = current_database()",
    TABLES: "SELECT concat_ws(' ', 'tidegauge.pipeline'::regclass::oid, 'tidegauge.batch'::regclass::oid)",
}

MEANINGS = {
    SYSTEM: "the ledger is on another server, whose system identifier is {is_now} and was {was}",
    TIMELINE: "the server was promoted or recovered: its timeline is {is_now} and was {was}",
    DATABASE: "the ledger is in another database, whose oid is {is_now} and was {was}",
    TABLES: "the ledger's tables were created again: their oids are {is_now} and were {was}",
}

COPIED = "the ledger's rows were inserted again, by a restore or a copy"
BEHIND = (
    "the checkpoint has seen batch {txid} of epoch {epoch!r} committed, and the ledger has not: it is an older copy"
)

# A value that the role may not read. It equals itself, so that the rest of the evidence decides.
UNKNOWN = ""


class LastBatch(NamedTuple):
    """The last committed batch, as the checkpoint has recorded it. attempt: which attempt was committed."""

    epoch: str
    txid: int
    attempt: int


def current_epoch(conn: psycopg.Connection, pipeline: str, last: LastBatch | None = None) -> str:
    """Return the ledger's epoch, a new one if the ledger may have gone back since the last one was made.

    last: what the pipeline's checkpoint has recorded. A new epoch is stored with its reason, and set on every pipeline;
    that waits for executors that are writing batches of other pipelines.
    """
    identity = server_identity(conn)
    epoch, reason = _newest(conn, identity)
    if reason is None and last is not None and _is_behind(conn, pipeline, last):
        return new_epoch(conn, BEHIND.format(**last._asdict()))
    if reason is None:
        return epoch
    with conn.transaction():
        # Look again under a lock, because two drivers that find the same restore must not make two epochs: the second
        # one would make the first driver's epoch invalid.
        conn.execute("LOCK TABLE tidegauge.epoch IN SHARE ROW EXCLUSIVE MODE")
        epoch, reason = _newest(conn, identity)
        return epoch if reason is None else new_epoch(conn, reason)


def new_epoch(conn: psycopg.Connection, reason: str, pipeline: str | None = None) -> str:
    """Make an epoch and return it, for an operation that takes a pipeline's ledger back on purpose.

    reason: for people. pipeline: the one whose ledger goes back; None: all of them.
    """
    epoch = secrets.token_hex(8)
    with conn.transaction():
        number = conn.execute(
            "INSERT INTO tidegauge.epoch (epoch, reason, identity) VALUES (%s, %s, %s) RETURNING number",
            [epoch, reason, Jsonb(server_identity(conn))],
        ).fetchone()
        # In the transaction or savepoint that inserted the row, so that the update does not change its xmin.
        conn.execute("UPDATE tidegauge.epoch SET made_by = xmin::text::bigint WHERE number = %s", number)
        conn.execute(
            "UPDATE tidegauge.pipeline SET epoch = %(epoch)s WHERE name = coalesce(%(pipeline)s, name)",
            {"epoch": epoch, "pipeline": pipeline},
        )
    return epoch


def server_identity(conn: psycopg.Connection, queries: Mapping[str, LiteralString] = QUERIES) -> dict[str, str]:
    """Return what distinguishes this ledger from copies elsewhere; `UNKNOWN` for what the role may not read."""
    return {name: _ask(conn, query) for name, query in queries.items()}


def _ask(conn: psycopg.Connection, query: LiteralString) -> str:
    try:
        with conn.transaction():
            row = conn.execute(query).fetchone()
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported):
        return UNKNOWN
    return str(row[0]) if row else UNKNOWN


def _newest(conn: psycopg.Connection, identity: dict[str, str]) -> tuple[str, str | None]:
    """Return the newest epoch, and the reason why it may no longer be the ledger's; None if it is."""
    row = conn.execute(
        # As text: Django's connections do not parse JSON.
        "SELECT epoch, identity::text, made_by IS NOT DISTINCT FROM xmin::text::bigint FROM tidegauge.epoch "
        "ORDER BY number DESC LIMIT 1"
    ).fetchone()
    if row is None:
        return "", "the first driver started"
    epoch, was, is_original = row[0], json.loads(row[1]), row[2]
    reasons = [
        MEANINGS[name].format(is_now=is_now, was=was.get(name, UNKNOWN))
        for name, is_now in identity.items()
        if is_now != was.get(name, UNKNOWN)
    ]
    if not is_original:
        reasons.append(COPIED)
    return epoch, "; ".join(reasons) or None


def _is_behind(conn: psycopg.Connection, pipeline: str, last: LastBatch) -> bool:
    row = conn.execute(
        "SELECT p.epoch, (p.committed_txid, p.committed_attempt) < (%(txid)s::bigint, %(attempt)s::integer), "
        # A commit that was reverted is open again with a higher attempt, so the ledger has not gone back.
        "coalesce((p.open_txid, p.open_attempt) <= (%(txid)s::bigint, %(attempt)s::integer), true), "
        "EXISTS (SELECT FROM tidegauge.epoch e WHERE e.epoch = %(epoch)s) "
        "FROM tidegauge.pipeline p WHERE p.name = %(name)s",
        {**last._asdict(), "name": pipeline},
    ).fetchone()
    if row is None:
        return False
    epoch, is_not_committed, is_not_reverted, is_known = row
    # A checkpoint has seen a batch of this pipeline, so a pipeline without an epoch was deleted and registered again.
    return not is_known or not epoch or (epoch == last.epoch and is_not_committed and is_not_reverted)
