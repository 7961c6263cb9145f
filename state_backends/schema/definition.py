"""Definition: a state's declaration as JSON, as the catalog stores and compares it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tidegauge.state_backends.aggregators import AGGREGATORS
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.protocols import Aggregator
from tidegauge.state_backends.schema.evolution import UNSAID
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.tiles import seconds_kept


def definition(spec: StateSpec) -> dict[str, Any]:
    """Return the spec as JSON, without its name and ttl: what the catalog stores and compares."""
    return {
        "key": dict(spec.key),
        "key_order": list(spec.key),
        "measures": {name: _measure(aggregator) for name, aggregator in spec.measures.items()},
        "measure_order": list(spec.measures),
        "value": spec.value,
        "kind": spec.kind,
        "changelog": spec.changelog,
        "partitions": spec.partitions,
        "backend": spec.backend,
    } | _tiles(spec)


def check_aggregators(spec: StateSpec) -> None:
    """Raise SpecError for a measure that could not be created again from the catalog."""
    for measure, aggregator in spec.measures.items():
        known = AGGREGATORS.get(aggregator.name)
        if known is not type(aggregator):
            raise SpecError(
                f"state {spec.name!r}: measure {measure!r} is a {type(aggregator).__name__}, and AGGREGATORS"
                f"[{aggregator.name!r}] is {'missing' if known is None else known.__name__}; give the class its own "
                "name and register it there, in every process that reads the catalog"
            )


def from_definition(name: str, stored: Mapping[str, Any], ttl: timedelta | None) -> StateSpec:
    measures = stored["measures"]
    return StateSpec(
        name,
        key={column: stored["key"][column] for column in stored["key_order"]},
        measures={measure: _aggregator(name, measure, measures[measure]) for measure in stored["measure_order"]},
        value=stored["value"],
        kind=stored["kind"],
        ttl=ttl,
        changelog=stored["changelog"],
        partitions=stored["partitions"],
        backend=stored.get("backend", UNSAID["backend"]),
        tiles=_kept(stored.get("tiles", UNSAID["tiles"])),
    )


def _tiles(spec: StateSpec) -> dict[str, Any]:
    # Absent if there are none, because a definition that differs is another version of the state for every reader.
    if spec.tiling is None:
        return {}
    return {"tiles": seconds_kept(spec.tiling.keep)}


def _kept(tiles: Mapping[str, float | None] | None) -> dict[str, timedelta | None] | None:
    if tiles is None:
        return None
    return {name: None if seconds is None else timedelta(seconds=seconds) for name, seconds in tiles.items()}


def _aggregator(state: str, measure: str, stored: Mapping[str, Any]) -> Aggregator:
    name = stored["aggregator"]
    if name not in AGGREGATORS:
        raise SpecError(
            f"state {state!r}: measure {measure!r} is a {name!r}, but this process knows {', '.join(AGGREGATORS)}; "
            f"register its class first, as AGGREGATORS[{name!r}] = .. (docs/aggregators.md)"
        )
    return AGGREGATORS[name](**stored["arguments"])


def _measure(aggregator: Aggregator) -> dict[str, Any]:
    return {"aggregator": aggregator.name, "arguments": aggregator.arguments()}
