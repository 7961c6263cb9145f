"""The demo's whole input, once: through Spark in this process, then against the recount."""

import os
from collections.abc import Callable
from typing import Any

import psycopg

from pipelines.connection import connect
from pipelines.demo.recount import compare
from pipelines.driver import Driver, RunOptions
from pipelines.jobs import job
from pipelines.runtime.home import data_dir
from pipelines.session import start_session
from state_backends.journal.ledger import Batch
from webapp.states.management.demonstration import PIPELINE, input_folder

# Larger batches than the live demo's one day: here nobody looks on.
DAYS_PER_BATCH = 8


def run_whole_input(say: Callable[[str], object]) -> dict[str, Any]:
    """Run what is left of the input and return the figures of all of it.

    Returns `events`, `batches`, `seconds` (batches at work, without Spark's start), `events_per_second`, and `states`:
    name to `keys` and `exact`, whether every key and measure equals the recount.
    Raises TidemarkError, or what Spark raised.
    """
    dsn = os.environ["DATABASE_URL"]
    pipeline = job(PIPELINE, input_folder(), DAYS_PER_BATCH)
    options = RunOptions(data_dir() / "checkpoints" / PIPELINE, once=True)
    say("starting Spark ..")
    Driver(pipeline, start_session(PIPELINE), dsn, options, lambda batch: say(_line(batch))).run()
    say("recounting without Spark ..")
    with connect(dsn, "recount") as conn:
        return _figures(conn) | {"states": compare(conn, pipeline.specs)}


def _line(batch: Batch) -> str:
    return f"batch {batch.txid} committed"


def _figures(conn: psycopg.Connection) -> dict[str, Any]:
    row = conn.execute(
        "SELECT coalesce(sum(rows_in), 0)::bigint, count(*), "
        "coalesce(extract(epoch FROM sum(committed_at - started_at)), 0)::float8 "
        "FROM tidemark.batch WHERE pipeline = %s AND committed_at IS NOT NULL",
        [PIPELINE],
    ).fetchone()
    events, batches, seconds = row or (0, 0, 0.0)
    return {
        "events": events,
        "batches": batches,
        "seconds": round(seconds, 3),
        "events_per_second": round(events / seconds) if seconds else 0,
    }
