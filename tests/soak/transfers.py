"""Transfers: the pipelines of the soak, whose states tell at any batch whether they are whole.

A transfer debits one account and credits another. So the debits and the credits of one batch have the same total and
the same count, whatever the batch holds; and a single state is told to be whole by the sum of each file, which is a
multiple of MODULUS, since a batch takes whole files.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.source import Parsed
from tidegauge.state_backends import Count, Max, StateSpec, Sum

ACCOUNTS = [f"a{number:02}" for number in range(24)]
# A prime: part of a batch passes for a whole one with a chance of 1 in 1009.
MODULUS = 1009

TRANSFER = StructType(
    [
        StructField("debited", StringType(), False),
        StructField("credited", StringType(), False),
        StructField("amount", LongType(), False),
    ]
)

DEBITS = StateSpec(
    "debits",
    key={"account": "text"},
    measures={"n": Count(), "total": Sum("amount", type="bigint")},
    changelog=True,
)
# Long enough to outlive every run, and shorter than the steps of the clock.
CREDITS = replace(DEBITS, name="credits", changelog=False, partitions=2, ttl=timedelta(days=2))

# What the states of another release have in addition.
LARGEST = {"largest": Max("amount", type="bigint")}


@dataclass(frozen=True)
class Variant:
    """One kind of pipeline. backends: of the debits and of the credits. spout: the promise of its source.

    buckets: over which a state in Redis is spread.
    """

    backends: tuple[str, str]
    spout: Spout
    buckets: int = 1


VARIANTS = {
    "tables": Variant(("postgres", "postgres"), "transactional"),
    "opaque": Variant(("postgres", "postgres"), "opaque"),
    "redis": Variant(("redis", "redis"), "transactional"),
    "mixed": Variant(("postgres", "redis"), "opaque"),
    "spread": Variant(("redis", "redis"), "opaque", buckets=8),
}


class TransferFiles(JsonFiles):
    """JSON-lines files whose spout kind can be chosen, and that an engine without Spark can read too."""

    def __init__(self, folder: Path, spout: Spout, files_per_batch: int) -> None:
        super().__init__(folder, schema=TRANSFER, files_per_batch=files_per_batch)
        self.spout = spout

    def load(self, spark: Any) -> Any:
        return spark.frame(self) if hasattr(spark, "frame") else super().load(spark)

    def parse(self, batch: Any) -> Parsed:
        return super().parse(batch) if isinstance(batch, DataFrame) else Parsed(batch, ())


@dataclass(frozen=True)
class Release:
    """What a release of the pipeline declares, as the environment of its driver has it.

    larger: whether the states have the further measure. fed: which of the two states are fed.
    """

    larger: bool = False
    fed: tuple[str, ...] = ("debits", "credits")
    environ: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        environ = {"SOAK_LARGER": "1" if self.larger else "", "SOAK_FED": ",".join(self.fed)}
        object.__setattr__(self, "environ", environ)

    @classmethod
    def of_environment(cls) -> "Release":
        return cls(bool(os.environ.get("SOAK_LARGER")), tuple(os.environ["SOAK_FED"].split(",")))


def state_names(pipeline: str) -> tuple[str, str]:
    return f"{pipeline}_debits", f"{pipeline}_credits"


def specs(pipeline: str, variant: Variant, release: Release) -> dict[str, StateSpec]:
    """Return the states by their role, `debits` and `credits`."""
    found = {}
    for role, spec, name, backend in zip(
        ("debits", "credits"), (DEBITS, CREDITS), state_names(pipeline), variant.backends, strict=True
    ):
        measures = dict(spec.measures) | (LARGEST if release.larger else {})
        # A state outside the ledger's database is rebuilt from its changelog.
        elsewhere = {"partitions": variant.buckets, "changelog": True} if backend != "postgres" else {}
        found[role] = replace(spec, name=name, measures=measures, backend=backend, **elsewhere)
    return found


def transfers(pipeline: str, variant: Variant, release: Release) -> Callable[..., Pipeline]:
    """Return the job of a pipeline: a function of its folder, as those of pipelines/jobs."""

    def job(folder: Path, files_per_batch: int = 4) -> Pipeline:
        events = Stream.read(TransferFiles(folder, variant.spout, files_per_batch))
        states = specs(pipeline, variant, release)
        grouped = {"debits": "debited", "credits": "credited"}
        feeds = [events.group_by(account=grouped[role]).persistent_aggregate(states[role]) for role in release.fed]
        return Pipeline(pipeline, feeds)

    return job


def partials(spec: StateSpec, rows: Iterable[Mapping[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return what Spark's partial aggregates of these transfers are: one row per key, in key order."""
    column = "debited" if spec.name.endswith("debits") else "credited"
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        group = groups.setdefault(row[column], {"account": row[column], "n": 0, "total": 0, "largest": 0})
        group["n"] += 1
        group["total"] += row["amount"]
        group["largest"] = max(group["largest"], row["amount"])
    names = [*spec.key, *spec.partial_columns]
    return [{name: groups[account][name] for name in names} for account in sorted(groups)]
