"""Queries for pipelines and states as they are now, shared by the API, the dashboard and the admin.

Each function takes one or two statements, whatever the number of pipelines and states.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import psycopg
from django.db import connection
from psycopg import sql

from tidegauge.state_backends.committed import STATE_AND_LEDGER
from tidegauge.state_backends.errors import SynchronizerError, UnknownNameError
from tidegauge.state_backends.schema import former
from tidegauge.state_backends.schema.definition import from_definition
from tidegauge.state_backends.synchronizer import membership
from tidegauge.state_backends.synchronizer.membership import Member
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus, status_from_row
from tidegauge.webapp.catalog.state_summary import StateSummary, summary_from_row
from tidegauge.webapp.catalog.trend import TREND

# Rows of tables up to this size in all are counted (about 5 ms), the smallest tables first; those of others estimated.
COUNTED_BYTES = 8 * 1024 * 1024
# As much as an empty table counts for: its statement takes about 0.4 ms to plan.
LEAST_COUNTED_BYTES = COUNTED_BYTES // 20

# Django leaves jsonb as text, for its own fields to parse.
JSON_TYPES = {psycopg.adapters.types["jsonb"].oid}


def pipelines() -> list[PipelineStatus]:
    return [status_from_row(row) for row in fetch(PIPELINES, {"name": None, "state": None})]


def pipeline(name: str) -> PipelineStatus:
    rows = fetch(PIPELINES, {"name": name, "state": None})
    if not rows:
        raise _unknown("pipeline", name, pipeline_names())
    return status_from_row(rows[0])


def pipeline_of(state: str) -> PipelineStatus:
    """Return the pipeline that feeds a state."""
    rows = fetch(PIPELINES, {"name": None, "state": state})
    if not rows:
        raise _unknown("state", state, state_names())
    return status_from_row(rows[0])


def pipeline_names() -> list[str]:
    return [
        row["name"] for row in fetch("SELECT name FROM tidegauge.pipeline WHERE reprocesses IS NULL ORDER BY name", {})
    ]


def states(pipeline: str | None = None) -> list[StateSummary]:
    """Return all states, or a pipeline's."""
    return _summaries(fetch(STATES.as_string(), {"name": None, "pipeline": pipeline}))


def state(name: str) -> StateSummary:
    rows = fetch(STATES.as_string(), {"name": name, "pipeline": None})
    if not rows:
        raise _unknown("state", name, state_names())
    return _summaries(rows)[0]


def state_names() -> list[str]:
    return [row["name"] for row in fetch("SELECT name FROM tidegauge.state ORDER BY name", {})]


def find_former(kind: former.Kind, name: str) -> former.Former | None:
    """Return what became of a state or pipeline that was retired or renamed; None for any other name."""
    return readers.read(lambda conn: former.former(conn, kind, name))


def epochs() -> list[dict[str, Any]]:
    """Return epoch, made_at and reason of each epoch of the ledger, the newest first."""
    return fetch("SELECT epoch, made_at, reason FROM tidegauge.epoch ORDER BY number DESC", {})


def members() -> list[Member]:
    """Return the running processes, drivers first; none if their list cannot be read."""
    try:
        return readers.read(membership.members)
    except SynchronizerError:
        return []


PIPELINES = f"""
SELECT p.name, p.description, p.spout, p.epoch, p.committed_txid, p.committed_time, p.open_txid, p.open_time,
       last.committed_at, judged.rejected_share,
       driver.alive, d.status AS reported, coalesce(d.message, '') AS message,
       coalesce(d.host, '') AS host, d.pid, d.since AS started_at, d.started AS start,
       CASE WHEN NOT driver.alive THEN d.updated_at END AS ended_at,
       d.progress, coalesce(d.failures, 0) AS failures, d.max_failures, d.next_try_at,
       CASE WHEN wanted.paused THEN 'paused' ELSE 'running' END AS wanted,
       coalesce(wanted.requested_by, '') AS wanted_by, wanted.requested_at AS wanted_at,
       reprocess.status AS reprocess, last_reprocess.figures AS last_reprocess, own.states, own.guarantees,
       own.unserved,
       trend.before AS trend, coalesce(recent.rows_per_second, 0)::float8 AS rows_per_second,
       coalesce(last.total_rows_in, 0) AS rows_in, coalesce(last.total_late, 0) AS late,
       coalesce(last.total_dropped, 0) AS dropped,
       -- Rows written before schema version 3 have no totals.
       coalesce(last.total_dead_letters, (
           SELECT count(*) FROM tidegauge.dead_letter l WHERE l.pipeline = p.name AND l.txid <= p.committed_txid
       )) AS dead_letters
FROM tidegauge.pipeline p
LEFT JOIN tidegauge.driver d ON d.pipeline = p.name
CROSS JOIN LATERAL (
    -- Before it has the lock, a driver that starts holds another one. Asked second, because both read all locks.
    SELECT tidegauge.has_driver(p.name) OR coalesce(d.status = 'starting' AND tidegauge.is_starting(p.name), false)
        AS alive
    -- Keeps the planner from asking once for each mention.
    OFFSET 0
) driver
LEFT JOIN tidegauge.pipeline_wish wanted ON wanted.pipeline = p.name
LEFT JOIN tidegauge.batch last ON last.pipeline = p.name AND last.txid = p.committed_txid
LEFT JOIN LATERAL (
    SELECT array_agg(s.name ORDER BY s.name) AS states, array_agg(s.guarantee) AS guarantees,
           array_agg(s.name ORDER BY s.name) FILTER (WHERE s.finding <> '') AS unserved
    FROM tidegauge.state s WHERE s.pipeline = p.name
) own ON true
LEFT JOIN LATERAL (
    SELECT jsonb_build_object('alive', tidegauge.has_driver(n.name), 'reported', nd.status,
        'message', coalesce(nd.message, ''), 'progress', nd.progress, 'since', n.created_at,
        'batches', done.batches, 'rows', done.rows, 'rows_per_second', done.rows_per_second) AS status
    FROM tidegauge.pipeline n
    LEFT JOIN tidegauge.driver nd ON nd.pipeline = n.name
    CROSS JOIN LATERAL (
        SELECT count(*) AS batches, coalesce(sum(b.rows_in), 0) AS rows,
               coalesce(sum(b.rows_in) / nullif(sum(extract(epoch FROM b.committed_at - b.started_at)), 0), 0)::float8
                   AS rows_per_second
        FROM tidegauge.batch b WHERE b.pipeline = n.name AND b.txid <= n.committed_txid
    ) done
    -- Not null follows from the rest, but only this keeps the planner from adding up the batches of every pipeline.
    WHERE n.reprocesses = p.name AND n.name = p.name || '@reprocess' AND n.reprocesses IS NOT NULL
) reprocess ON true
LEFT JOIN LATERAL (
    SELECT jsonb_build_object('swapped_at', r.swapped_at, 'lacks', r.accepted, 'bytes', kept.bytes,
        'kept_until', CASE WHEN r.kept IS NOT NULL THEN r.keep_until END) AS figures
    FROM tidegauge.reprocess r CROSS JOIN LATERAL (
        -- The rows of a partitioned table are in its partitions.
        SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint AS bytes
        FROM jsonb_object_keys(r.kept) k (state), unnest(ARRAY[
            to_regclass(format('tidegauge_kept_state.%%I', k.state)),
            to_regclass(format('tidegauge_kept_changelog.%%I', k.state))]) t (oid), LATERAL (
            SELECT t.oid UNION ALL SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = t.oid
        ) c (oid)
    ) kept
    WHERE r.pipeline = p.name AND r.phase IN ('swapped', 'settled') ORDER BY r.id DESC LIMIT 1
) last_reprocess ON true
LEFT JOIN LATERAL (
    -- Over the batches of the last ten seconds, or over the last batch if it took longer than that; from the last one
    -- back, as batches have no index by time.
    WITH RECURSIVE back AS (
        SELECT last.txid, last.rows_in, last.started_at, last.committed_at,
               clock_timestamp() - greatest('10 s', 1.5 * (last.committed_at - last.started_at)) AS since
        UNION ALL
        SELECT before.*, back.since FROM back CROSS JOIN LATERAL (
            -- The limit keeps the planner from reading all batches at once.
            SELECT b.txid, b.rows_in, b.started_at, b.committed_at FROM tidegauge.batch b
            WHERE b.pipeline = p.name AND b.txid = back.txid - 1 LIMIT 1
        ) before
        WHERE back.committed_at > back.since
    )
    SELECT sum(back.rows_in) / nullif(extract(epoch FROM clock_timestamp() - min(back.started_at)), 0)
        AS rows_per_second
    FROM back WHERE back.committed_at > back.since
) recent ON true
LEFT JOIN LATERAL (
    -- Of the last 20 batches, as long as they are recent: a fault that was corrected is forgotten. Several states may
    -- reject the same row.
    SELECT least(sum(b.dead_letters), sum(b.rows_in))::float8 / nullif(sum(b.rows_in), 0) AS rejected_share
    FROM tidegauge.batch b
    WHERE b.pipeline = p.name AND b.txid BETWEEN p.committed_txid - 19 AND p.committed_txid
      AND b.committed_at > clock_timestamp() - interval '1 day'
) judged ON true
LEFT JOIN LATERAL ({TREND}) trend ON true
WHERE (%(name)s::text IS NULL OR p.name = %(name)s)
  AND (%(state)s::text IS NULL OR p.name = (SELECT s.pipeline FROM tidegauge.state s WHERE s.name = %(state)s))
  AND p.reprocesses IS NULL
ORDER BY p.name
"""  # noqa: S608  fixed texts

STATES = sql.SQL("""
SELECT s.name, s.pipeline, s.definition, s.ttl, s.guarantee, s.since_txid, s.measures_since, s.finding, s.warning,
       s.last_fed_txid, s.measures_last_fed,
       p.epoch, p.committed_txid AS txid, p.committed_time AS batch_time,
       coalesce(stored.bytes, 0)::bigint AS state_bytes, coalesce(stored.keys, 0)::bigint AS keys,
       coalesce(pg_total_relation_size(to_regclass(format('tidegauge_changelog.%%I', s.name))), 0) AS changelog_bytes
FROM {ledger}
LEFT JOIN LATERAL (
    -- The rows of a partitioned table are in its partitions. reltuples lags behind, the live counters do not.
    SELECT sum(pg_total_relation_size(c.oid)) AS bytes,
           sum(greatest(c.reltuples, pg_stat_get_live_tuples(c.oid), 0)) FILTER (WHERE c.relkind = 'r') AS keys
    FROM to_regclass(format('tidegauge_state.%%I', s.name)) AS t (oid), LATERAL (
        SELECT t.oid UNION ALL SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = t.oid
    ) r (oid) JOIN pg_class c ON c.oid = r.oid
) stored ON true
WHERE (%(name)s::text IS NULL OR s.name = %(name)s) AND (%(pipeline)s::text IS NULL OR s.pipeline = %(pipeline)s)
ORDER BY s.name
""").format(ledger=STATE_AND_LEDGER)


def fetch(statement: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        names = [column.name for column in cursor.description]
        json_columns = [column.name for column in cursor.description if column.type_code in JSON_TYPES]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    for row in rows:
        row.update((name, json.loads(row[name])) for name in json_columns if row[name] is not None)
    return rows


def _summaries(rows: list[dict[str, Any]]) -> list[StateSummary]:
    counted = _counted(_smallest(rows))
    specs = [from_definition(row["name"], row["definition"], row["ttl"]) for row in rows]
    external = readers.external_sizes(specs)
    sizes = {
        row["name"]: external.get(row["name"], (counted.get(row["name"], row["keys"]), row["state_bytes"]))
        for row in rows
    }
    return [summary_from_row(row, spec, *sizes[spec.name]) for row, spec in zip(rows, specs, strict=True)]


def _unknown(kind: former.Kind, name: str, names: list[str]) -> UnknownNameError:
    return readers.read(lambda conn: former.unknown(conn, kind, name, names))


def _smallest(rows: list[dict[str, Any]]) -> list[str]:
    """Return the names of the smallest states, of COUNTED_BYTES in all."""
    by_size = sorted((row for row in rows if row["state_bytes"]), key=lambda row: row["state_bytes"])
    totals = accumulate(max(row["state_bytes"], LEAST_COUNTED_BYTES) for row in by_size)
    return [row["name"] for row, total in zip(by_size, totals, strict=True) if total <= COUNTED_BYTES]


def _counted(names: Sequence[str]) -> dict[str, int]:
    if not names:
        return {}
    counts = sql.SQL(" UNION ALL ").join(
        sql.SQL("SELECT {} AS name, count(*) AS keys FROM {}").format(
            sql.Literal(name), sql.Identifier("tidegauge_live", name)
        )
        for name in names
    )
    return {row["name"]: row["keys"] for row in fetch(counts.as_string(), {})}
