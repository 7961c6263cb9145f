"""Backfill: count history from files or a table first, then continue with the pipeline's own source.

The history replaces the pipeline's source until all of it is counted. It uses the pipeline's ledger, and a separate
checkpoint beside the pipeline's. Then one transaction hands over, and the next driver starts the pipeline's own source
at the position that its declaration gives. Because one ledger has the batches of both, each counts once even if the
process is killed at any point.
"""

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

from tidegauge.pipelines.checkpoint.files import CheckpointPath, checkpoint_folder, remove
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import FedState, Node, Stream
from tidegauge.pipelines.driver.discovery import imported
from tidegauge.pipelines.driver.driver import Driver
from tidegauge.pipelines.driver.query import OnBatch
from tidegauge.pipelines.driver.run_options import RunOptions
from tidegauge.pipelines.driver.session import PATIENCE_MS, DriverSession
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.source import HeldSource, ListedSource, Source
from tidegauge.state_backends.ledger import backfill
from tidegauge.state_backends.ledger.batch_ledger import BatchLedger
from tidegauge.state_backends.schema.catalog import Catalog


class BackfillSession(DriverSession):
    """The session of a driver that counts the history of a pipeline."""

    def _check_backfill(self) -> None:
        """Allow an unfinished backfill, because this is the driver that runs it."""


@dataclass
class Backfill:
    """Counts the history of a pipeline and hands over to its source.

    history: the source to read it from, with the columns of the pipeline's source. named: how the operator named it.
    checkpoint: Spark's folder for the pipeline; the history's folder is beside it. on_batch: called with each batch.
    Raises PipelineError if the pipeline has several sources or reads files, or if the history lacks a column.
    """

    pipeline: Pipeline
    history: Source
    named: str
    spark: SparkSession
    dsn: str
    checkpoint: CheckpointPath
    on_batch: OnBatch = lambda batch: None
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.checkpoint = checkpoint_folder(self.checkpoint)
        self._own_checkpoint = self.checkpoint.with_name(f"{self.checkpoint.name}.backfill")
        self._historic = with_source(self.pipeline, self.history)

    def run(self) -> int | None:
        """Count the history, and hand over. Returns the last batch of the history; None if it was stopped before.

        Safe to call again after a crash: the next call continues. Raises BackfillError, and what a driver raises.
        """
        with connect(self.dsn, f"{self.pipeline.name} backfill") as conn:
            done = self._begin(conn)
            while done is None:
                batches = self._pass()
                if self.stopping.is_set():
                    return None
                if not batches:
                    with BatchLedger(conn, self.pipeline.name).idle(patience_ms=PATIENCE_MS):
                        done = backfill.hand_over(conn, self.pipeline.name)
            if isinstance(self.history, HeldSource):
                self.history.drop()
            remove(self._own_checkpoint)
            return done

    def _begin(self, conn: psycopg.Connection) -> int | None:
        """Begin or continue. Returns the last batch of the history if it was handed over already, else None."""
        name = self.pipeline.name
        Catalog(conn).install()
        Catalog(conn).register_pipeline(name, spout=self.history.spout, description=self.pipeline.description)
        with BatchLedger(conn, name).idle(patience_ms=PATIENCE_MS):
            found = backfill.backfill_of(conn, name)
            if found is not None and found.upto is not None and found.source == self.named:
                return found.upto
            backfill.begin(conn, name, self.named)
        return None

    def _pass(self) -> int:
        """Count the history that is there now; return the number of batches."""
        options = RunOptions(self._own_checkpoint, once=True)
        driver = Driver(self._historic, self.spark, self.dsn, options, self.on_batch, self.stopping, BackfillSession)
        driver.run()
        return driver.commits


def with_source(pipeline: Pipeline, source: Source) -> Pipeline:
    """Return the pipeline with its only source replaced by another. Raises PipelineError, see Backfill."""
    if len(pipeline.sources) != 1:
        raise PipelineError(
            f"pipeline {pipeline.name!r}: has {len(pipeline.sources)} sources, but a backfill can replace only one; "
            "merge the history into the stream of its source instead, or backfill a pipeline with one source"
        )
    [own] = pipeline.sources
    if isinstance(own, ListedSource):
        raise PipelineError(
            f"pipeline {pipeline.name!r}: its source reads files, each of them once; put the history into its folder "
            "to have it counted"
        )
    # Columns that a source adds itself, such as _sign, begin with an underscore. They are not compared here, because
    # the pipeline's own check refuses a pipeline that reads one and does not get it.
    lacks = [name for name in own.schema.names if name not in source.schema.names and not name.startswith("_")]
    if lacks:
        raise PipelineError(
            f"pipeline {pipeline.name!r}: the history has no column {lacks[0]!r}, which its source has; it has "
            f"{', '.join(source.schema.names)}"
        )
    made: dict[Node, Node] = {own: source}
    return replace(pipeline, feeds=[_replaced(fed, made) for fed in pipeline.feeds])  # type: ignore[misc]


def _replaced(node: Node, made: dict[Node, Node]) -> Node:
    if node not in made:
        if isinstance(node, Stream):
            made[node] = replace(node, inputs=tuple(_replaced(each, made) for each in node.inputs))
        else:
            fed: FedState = node  # type: ignore[assignment]
            made[node] = replace(fed, stream=_replaced(fed.stream, made))  # type: ignore[arg-type]
    return made[node]


def history_source(reference: str, folder: Path | None = None) -> Source:
    """Return the source that `module:attribute` names: a source, or a function that returns one, given a folder.

    Raises PipelineError if there is none.
    """
    module_name, _, attribute = reference.partition(":")
    found = getattr(imported(module_name), attribute, None) if attribute else None
    if callable(found) and not hasattr(found, "load"):
        found = found() if folder is None else found(folder)
    if found is None or not hasattr(found, "load"):
        raise PipelineError(
            f"{reference!r} does not name a source: give `module:attribute`, where the attribute is a source such as "
            "JsonFiles(..), or a function that returns one"
        )
    return found  # type: ignore[no-any-return]
