"""The rows of a life once more, through the driver that users run, with an act of an operator in the middle.

The kit gives its batches to drivers of its own. Here Spark's query plans them, a file each, and no act may change what
the states hold in the end: a reprocess, of all states or of one, a rewind, a new name, a replay of dead letters. The
expected states are those of the life. Its states must have no ttl, since the batches run at another time here.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from tests.life.pipelines import RandomPipeline
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.driver import Driver
from tidegauge.pipelines.driver.run_options import RunOptions
from tidegauge.pipelines.repair.partial_reprocess import PartialReprocess
from tidegauge.pipelines.repair.recovery import Recovery
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.state_backends.dead_letters.replay import Choice, request
from tidegauge.state_backends.errors import RewindError
from tidegauge.state_backends.life.rename import rename_pipeline, rename_state
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.testing.checks import Difference, DifferenceError, differences_to
from tidegauge.testing.drivers import committed_state, drop_stores
from tidegauge.testing.state import State

LANDED = 1_700_000_000
AGAIN, RENAMED = "again_", "_new"


class OperatedLife:
    """A life's pipeline over files of its batches. folder: a new one."""

    def __init__(self, seed: int, spark: SparkSession, dsn: str, folder: Path) -> None:
        self._seed, self._spark, self._dsn = seed, spark, dsn
        self._input, self._checkpoint = folder / "input", folder / "checkpoint"
        self._input.mkdir(parents=True)
        self._landed = 0
        # The names that an act has given.
        self._names: dict[str, str] = {}

    def live(self, batches: Sequence[Any], expected: Mapping[str, State]) -> str:
        """Run half of the batches, one act, and the rest. Return the act's name. Raises DifferenceError."""
        random = Random(self._seed)
        half = random.randint(1, len(batches))
        for rows in batches[:half]:
            self._land(rows)
        self._run()
        acts = [self.reprocess, self.reprocess_one, self.rewind, self.rename, self.rename_pipeline, self.replay]
        act = random.choice(acts)
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            act(conn, random)
            for rows in batches[half:]:
                self._land(rows)
            self._run()
            self._compare(conn, expected, act.__name__)
            drop_stores(conn, Catalog(conn).specs(self.pipeline.name))
        return act.__name__

    # Acts

    def reprocess(self, conn: psycopg.Connection, random: Random) -> None:
        if self._is_shadowed(self.pipeline.specs):
            Reprocess(self.pipeline, *self._place).run()

    def reprocess_one(self, conn: psycopg.Connection, random: Random) -> None:
        spec = random.choice(self.pipeline.specs)
        if self._is_shadowed([spec]):
            PartialReprocess(self.pipeline, [spec.name], *self._place).run()

    def rewind(self, conn: psycopg.Connection, random: Random) -> None:
        recovery = Recovery(self.pipeline, self._dsn, self._checkpoint, lambda: self._spark)
        try:
            list(recovery.rewind(random.randint(0, self._landed)))
        except RewindError:  # a state without a changelog has no older values
            return

    def rename(self, conn: psycopg.Connection, random: Random) -> None:
        old = random.choice(self.pipeline.specs).name
        rename_state(conn, old, f"{old}{RENAMED}")
        self._names[old] = f"{old}{RENAMED}"

    def rename_pipeline(self, conn: psycopg.Connection, random: Random) -> None:
        old = self.pipeline.name
        rename_pipeline(conn, old, f"{old}{RENAMED}")
        self._names[old] = f"{old}{RENAMED}"

    def replay(self, conn: psycopg.Connection, random: Random) -> None:
        """All of them are refused again, as no rule has changed."""
        request(conn, self.pipeline.name, Choice(), "a life")

    # What they need

    @property
    def pipeline(self) -> Pipeline:
        # Names of its own, since the states in Redis of the life itself are still there.
        drawn = RandomPipeline(Random(self._seed), f"{AGAIN}{self._seed}", self._input, self._names)
        return drawn.pipeline

    @property
    def _place(self) -> tuple[SparkSession, str, Path]:
        return self._spark, self._dsn, self._checkpoint

    def _is_shadowed(self, specs: Sequence[StateSpec]) -> bool:
        return all(BACKENDS[spec.backend].tables is not None for spec in specs)

    def _land(self, rows: Sequence[Mapping[str, Any]]) -> None:
        path = self._input / f"{self._landed:03}.json"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        os.utime(path, (LANDED + self._landed,) * 2)
        self._landed += 1

    def _run(self) -> None:
        Driver(self.pipeline, self._spark, self._dsn, RunOptions(self._checkpoint, once=True)).run()

    def _compare(self, conn: psycopg.Connection, expected: Mapping[str, State], act: str) -> None:
        by = f"the kit's drivers, beside real ones and {act}"
        found: list[Difference] = []
        query = "SELECT committed_txid, now() FROM tidegauge.pipeline WHERE name = %s"
        committed, now = conn.execute(query, [self.pipeline.name]).fetchone()
        for spec in Catalog(conn).specs(self.pipeline.name):
            lived = spec.name.replace(AGAIN, "").removesuffix(RENAMED)
            found += differences_to(committed_state(conn, spec, committed, now), expected[lived], by)
        if found:
            raise DifferenceError(found)
