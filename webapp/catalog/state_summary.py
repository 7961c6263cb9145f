"""A state as lists and pages describe it, from one row of a query."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.committed import isolation
from tidegauge.state_backends.spec.tiles import seconds_kept


@dataclass(frozen=True)
class StateSummary:
    """One state at its pipeline's committed batch, as StateSerializer describes it.

    keys_estimate: live keys, counted if the table is one of few small ones; for other backends than postgres all stored
        keys.
    """

    name: str
    pipeline: str
    kind: str
    key: dict[str, str]
    measures: dict[str, dict[str, Any]]
    ttl: timedelta | None
    changelog: bool
    backend: str
    keys_estimate: int
    bytes: int
    since_txid: int
    fed: bool
    last_fed_txid: int | None
    epoch: str
    txid: int
    batch_time: datetime | None
    guarantee: str
    isolation: str
    finding: str
    warning: str
    tiles: dict[str, timedelta | None] | None

    @property
    def ttl_seconds(self) -> float | None:
        return None if self.ttl is None else self.ttl.total_seconds()

    @property
    def tile_seconds(self) -> dict[str, float | None] | None:
        return None if self.tiles is None else seconds_kept(self.tiles)


def summary_from_row(row: dict[str, Any], spec: StateSpec, keys: int, state_bytes: int) -> StateSummary:
    """Return the summary of a state. row: of `queries.STATES`. keys, state_bytes: in its table, or in Redis."""
    return StateSummary(
        name=spec.name,
        pipeline=row["pipeline"],
        kind=spec.kind,
        key=dict(spec.key),
        measures=_measures(spec, row["measures_since"], row["measures_last_fed"]),
        ttl=spec.ttl,
        changelog=spec.changelog,
        backend=spec.backend,
        keys_estimate=keys,
        bytes=state_bytes + row["changelog_bytes"],
        since_txid=row["since_txid"],
        fed=row["last_fed_txid"] is None,
        last_fed_txid=row["last_fed_txid"],
        epoch=row["epoch"],
        txid=row["txid"],
        batch_time=row["batch_time"],
        guarantee=row["guarantee"],
        isolation=isolation(spec),
        finding=row["finding"],
        tiles=None if spec.tiling is None else dict(spec.tiling.keep),
        warning=row["warning"],
    )


def _measures(spec: StateSpec, since: Mapping[str, int], last_fed: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    if not spec.measures:
        return {"value": {"aggregate": "", "type": str(spec.value), "since_txid": 0, "last_fed_txid": None}}
    return {
        name: {
            "aggregate": aggregator.name,
            "type": aggregator.result_type,
            "since_txid": since.get(name, 0),
            "last_fed_txid": last_fed.get(name),
        }
        for name, aggregator in spec.measures.items()
    }
