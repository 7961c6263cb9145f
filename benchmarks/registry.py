"""The benchmarks by name, and the description that each module gives.

A module has `run`, whose parameters are the benchmark's options, a docstring that says what is measured, SEEDS, and
UNEQUAL: for each reference, how the two differ apart from what is compared. A pattern such as `limit_*` covers several
references. VERSIONS is optional and has the versions of a peer.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from types import ModuleType

from benchmarks import (
    abuse,
    batch_cost,
    bulk,
    event_streams,
    freshness,
    generic,
    ingest,
    large,
    latency,
    lookup,
    many_states,
    memory,
    merge,
    network,
    pipelines_at_once,
    redis_merge,
    scaling,
    spread,
    windows,
)  # fmt: skip
from benchmarks.cases import Case
from benchmarks.nexmark import benchmark as nexmark
from benchmarks.peers import feast_lookup, trident_batches
from benchmarks.yahoo import benchmark as yahoo
from benchmarks.yahoo import kills as yahoo_kills
from benchmarks.yahoo import many as yahoo_many


@dataclass(frozen=True)
class Benchmark:
    name: str
    module: ModuleType

    @property
    def title(self) -> str:
        """Return the docstring's first line, without the name."""
        return self._docstring.partition("\n\n")[0]

    @property
    def details(self) -> str:
        return self._docstring.partition("\n\n")[2]

    @property
    def unequal(self) -> Mapping[str, str]:
        """Return how the references differ from the cases, by reference or pattern."""
        return getattr(self.module, "UNEQUAL", {})

    @property
    def seeds(self) -> str:
        return str(self.module.SEEDS)

    @property
    def versions(self) -> Mapping[str, str]:
        """Return the versions of software that only this benchmark uses."""
        return getattr(self.module, "VERSIONS", {})

    @property
    def options(self) -> dict[str, int]:
        """Return the options and their defaults."""
        return {name: each.default for name, each in inspect.signature(self.module.run).parameters.items()}

    def run(self, given: Mapping[str, int]) -> Iterator[Case]:
        """Yield the cases. given: options; those that the benchmark does not have are ignored."""
        yield from self.module.run(**{name: value for name, value in given.items() if name in self.options})

    def says_what_is_unequal_to(self, reference: str) -> bool:
        return any(fnmatch(reference, pattern) for pattern in self.unequal)

    @property
    def _docstring(self) -> str:
        return inspect.getdoc(self.module).partition(": ")[2].strip()  # type: ignore[union-attr]


_MODULES = {
    "merge": merge,
    "generic": generic,
    "redis": redis_merge,
    "bulk": bulk,
    "scaling": scaling,
    "spread": spread,
    "large": large,
    "windows": windows,
    "pipelines": pipelines_at_once,
    "states": many_states,
    "memory": memory,
    "ingest": ingest,
    "nexmark": nexmark,
    "batch-cost": batch_cost,
    "freshness": freshness,
    "lookup": lookup,
    "latency": latency,
    "abuse": abuse,
    "events": event_streams,
    "network": network,
}
# Benchmarks that need a separate environment, and therefore run only if they are named.
_PEERS = {
    "feast": feast_lookup,
    "trident": trident_batches,
    "yahoo": yahoo,
    "yahoo-many": yahoo_many,
    "yahoo-kills": yahoo_kills,
}
BENCHMARKS = {name: Benchmark(name, module) for name, module in {**_MODULES, **_PEERS}.items()}
ALL = list(_MODULES)
