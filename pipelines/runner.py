"""The runner: takes each micro-batch through the ledger. A txid, revert if this is a retry, the states, commit."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.checkpoint import batch_offsets
from pipelines.errors import BadInputError
from pipelines.sources.source import Parsed
from pipelines.steps import Written, partial_aggregates, persist, run_steps
from pipelines.stream import PersistentAggregate, Pipeline
from state_backends.backing.postgres import PostgresBackingMap
from state_backends.catalog import Catalog
from state_backends.journal.changelog import Changelog
from state_backends.journal.dead_letters import put_aside, take_back
from state_backends.journal.ledger import Batch, BatchLedger, share

# A handful of bad lines stops nobody, however small the batch.
TOLERATED_BAD_LINES = 10


class BatchRunner:
    """Runs micro-batches of one pipeline. Give it to Spark's foreachBatch.

    conn: the driver's connection in autocommit mode, used by nobody else meanwhile; its ledger has been acquired.
    dsn: where executors connect to.
    """

    def __init__(
        self, pipeline: Pipeline, ledger: BatchLedger, conn: psycopg.Connection, dsn: str, checkpoint: Path
    ) -> None:
        self.pipeline = pipeline
        self._ledger = ledger
        self._conn = conn
        self._dsn = dsn
        self._checkpoint = checkpoint

    def run(self, frame: DataFrame, batch_id: int) -> Batch | None:
        """Apply one micro-batch and commit it. Returns the batch, or None where it had been committed before."""
        source = self.pipeline.source
        offsets = batch_offsets(self._checkpoint, batch_id)
        batch = self._ledger.begin(batch_id, spout=source.spout, offsets=offsets)
        if batch is None:
            return None
        if batch.is_retry:
            self._revert(batch)
        figures = self._apply(source.parse(frame), batch)
        self._ledger.commit(batch, **figures)
        return batch

    def _revert(self, batch: Batch) -> None:
        # Every state the catalog knows: the failed attempt may have run with more of them than this one has.
        for spec in Catalog(self._conn).specs(batch.pipeline):
            with self._conn.transaction():
                share(self._conn, batch)
                PostgresBackingMap(self._conn, spec).revert(batch.txid)
                if spec.changelog:
                    Changelog(self._conn, spec).revert(batch.txid)
        with self._conn.transaction():
            share(self._conn, batch)
            take_back(self._conn, batch)

    def _apply(self, parsed: Parsed, batch: Batch) -> dict[str, Any]:
        # Read and parsed once, whatever the number of states; the count fills the cache.
        rows = parsed.rows.persist()
        try:
            bad = F.lit(0) if parsed.bad is None else F.count(parsed.bad)
            [counted] = rows.agg(F.count(F.lit(1)).alias("rows"), bad.alias("bad")).collect()
            counts = counted.asDict()
            letters = self._put_aside(rows, counts, batch)
            written = self._feed_states(Parsed(rows, parsed.columns, parsed.bad).good(), batch)
        finally:
            rows.unpersist()
        return {
            "rows_in": counts["rows"],
            "keys_written": {name: part.keys for name, part in written.items()},
            "dead_letters": letters + sum(part.refused for part in written.values()),
        }

    def _feed_states(self, events: DataFrame, batch: Batch) -> dict[str, Written]:
        def feed(aggregate: PersistentAggregate) -> Written:
            partials = partial_aggregates(run_steps(events, aggregate.stream.steps), aggregate)
            return persist(partials, aggregate.spec, batch, self._dsn)

        # Side by side: a small batch is mostly waiting for Spark to plan and schedule.
        aggregates = self.pipeline.aggregates
        with ThreadPoolExecutor(max_workers=len(aggregates)) as threads:
            # The threads inherit Spark's job group, by which a stop of the query ends their jobs too.
            inheriting = inheritable_thread_target(events.sparkSession)
            running = {each.spec.name: threads.submit(inheriting(feed), each) for each in aggregates}
        return {name: written.result() for name, written in running.items()}

    def _put_aside(self, rows: DataFrame, counts: dict[str, Any], batch: Batch) -> int:
        if not counts["bad"]:
            return 0
        source = self.pipeline.source
        if counts["bad"] > max(TOLERATED_BAD_LINES, source.max_bad_share * counts["rows"]):
            example = next(source.dead_letters(rows))
            raise BadInputError(
                f"pipeline {batch.pipeline!r}: {counts['bad']} of {counts['rows']} lines of batch {batch.txid} cannot "
                f"be read, more than the share of {source.max_bad_share}; the first: {example.source!r} line "
                f"{example.line_number}: {example.reason}; mend the input or raise max_bad_share"
            )
        with self._conn.transaction():
            share(self._conn, batch)
            return put_aside(self._conn, batch, source.dead_letters(rows))
