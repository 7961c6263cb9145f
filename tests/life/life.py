"""One random life: a pipeline and its faults, drawn by a seed, and a plain model that answers beside it.

The model is that of `tidegauge.testing`: each key's rows folded in plain Python, and a run without faults. Afterwards
every state with a changelog is rebuilt from it, and must be what it was.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from tests.life.operated import OperatedLife
from tests.life.pipelines import RandomPipeline
from tests.life.rows import random_steps
from tidegauge.pipelines.embedded.temporary import temporary_database
from tidegauge.state_backends import Changelog
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.repair.rebuilding import rebuild
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.testing.checks import Difference, DifferenceError
from tidegauge.testing.run import Result, run_within
from tidegauge.testing.steps import actions, attempts, final_batches


@dataclass
class Figures:
    """What some lives had. attempts: at their batches. compared: states that a model was compared with.

    spread: states in Redis that are spread over buckets. rebuilt: states that were made again from their changelog.
    operated: lives that were lived once more by real queries, with an act of an operator. stopped: lives that ended by
    an error with a remedy, before a wrong number.
    """

    lives: int = 0
    batches: int = 0
    attempts: int = 0
    rows: int = 0
    dead_letters: int = 0
    states: int = 0
    spread: int = 0
    compared: int = 0
    keys: int = 0
    rebuilt: int = 0
    operated: int = 0
    stopped: int = 0
    deviations: int = 0

    def __add__(self, other: "Figures") -> "Figures":
        return Figures(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))


def live(seed: int, spark: SparkSession, dsn: str) -> Figures:
    """Live one life. Raises DifferenceError where a state is not what its model says, TidegaugeError where it stops."""
    random = Random(seed)
    drawn = RandomPipeline(random, seed)
    steps = random_steps(random, signed=drawn.signed, revertible=drawn.revertible)
    with ExitStack() as resources:
        result = run_within(resources, drawn.pipeline, steps, spark=spark, dsn=dsn)
        logged = [spec for spec in Catalog(result.conn).specs() if spec.changelog]
        rebuilt = sum(_rebuilt(result, spec) for spec in logged if BACKENDS[spec.backend].tables is not None)
        is_lasting = all(spec.ttl is None for spec in drawn.pipeline.specs)
        if is_lasting:
            own = resources.enter_context(temporary_database(dsn))
            folder = Path(resources.enter_context(TemporaryDirectory(prefix="tidegauge-life-")))
            OperatedLife(seed, spark, own, folder).live(final_batches(steps), result.states)
        return Figures(
            lives=1,
            batches=len(result.batches),
            attempts=len(list(attempts(actions(steps)))),
            rows=sum(batch.rows_in for batch in result.batches),
            dead_letters=len(result.dead_letters),
            states=len(result.states),
            spread=sum(spec.backend == "redis" and spec.partitions > 1 for spec in drawn.pipeline.specs),
            compared=sum(bool(by) for by in result.checked.values()),
            keys=sum(map(len, result.states.values())),
            rebuilt=rebuilt,
            operated=is_lasting,
        )


def _rebuilt(result: Result, spec) -> int:
    rows = BACKENDS[spec.backend].rows(result.conn, spec)
    before = _living(rows)
    list(rebuild(Changelog(result.conn, spec), rows, chunk_keys=2))
    after = _living(rows)
    # What has ended by its ttl is left out.
    missing = before.keys() - after.keys() if spec.ttl is None else ()
    if missing or any(before.get(key) != row for key, row in after.items()):
        raise DifferenceError([Difference(spec.name, (), "", after, before, "its changelog")])
    return 1


def _living(rows) -> dict[str, object]:
    # As texts, in which a NaN equals itself.
    return {repr(key): repr((row.value, row.txid)) for key, row in rows.scan() if row.value is not None}
