"""What a larger load needs, computed from measured unit costs: `python -m benchmarks.capacity` writes it to scaling.md.

The costs are those of the section `spread` of benchmarks.json.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from benchmarks.report import DOCS, RESULTS
from benchmarks.results import read

PAGE = Path("scaling.md")  # in docs
BEGIN, END = "<!-- Written by `python -m benchmarks.capacity`: do not edit. -->\n", "<!-- End of capacity. -->\n"

# The load that is multiplied: keys in the state, keys written per second, lookups per second of so many keys.
KEYS, WRITTEN, LOOKUPS, KEYS_PER_LOOKUP = 1_000_000, 10_000, 100, 100
TIMES = (1, 10, 100, 1_000)

# What a machine is used for at most: memory of rows in a node of 32 GB, which also has buffers of replicas and may have
# to fork, and the share of a core. A node of Redis runs scripts on one core.
NODE_GB, CORE_SHARE = 16, 0.6


@dataclass(frozen=True)
class UnitCosts:
    """Of a state in Redis: bytes per key, and µs of processor time per key, of the servers and of their clients."""

    memory: float
    write_servers: float
    write_client: float
    lookup_servers: float
    lookup_client: float

    @classmethod
    def of(cls, cases: Mapping[str, float]) -> "UnitCosts":
        return cls(
            # One size is measured.
            next(value for name, value in cases.items() if name.startswith("memory_") and name.endswith("_updated")),
            cases["batch_3_nodes_servers"],
            cases["batch_3_nodes_client"],
            cases["lookup_3_nodes_servers"],
            cases["lookup_3_nodes_client"],
        )


@dataclass(frozen=True)
class Need:
    """What a load needs. nodes: of Redis, by what asks for them, without replicas. cores: of tasks and of readers."""

    times: int
    nodes: Mapping[str, int]
    task_cores: float
    reader_cores: float

    @classmethod
    def of(cls, costs: UnitCosts, times: int) -> "Need":
        written, read_keys = times * WRITTEN, times * LOOKUPS * KEYS_PER_LOOKUP
        busy = 1e6 * CORE_SHARE  # µs per second
        return cls(
            times,
            {
                "memory": ceil(times * KEYS * costs.memory / (NODE_GB * 1e9)),
                "processor": ceil((written * costs.write_servers + read_keys * costs.lookup_servers) / busy),
            },
            written * costs.write_client / busy,
            read_keys * costs.lookup_client / busy,
        )

    @property
    def first(self) -> str:
        """Return what asks for most nodes."""
        return max(self.nodes, key=lambda name: self.nodes[name])


def main() -> None:
    (DOCS / PAGE).write_text(page())


def page() -> str:
    """Return scaling.md with the tables of the present results."""
    before, _, rest = (DOCS / PAGE).read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n\n{END}{after}"


def tables() -> str:
    costs = UnitCosts.of({case.name: case.value for case in read(DOCS / RESULTS)["spread"].cases})
    return "\n".join([*_costs(costs), "", *_needs([Need.of(costs, times) for times in TIMES])])


def _costs(costs: UnitCosts) -> Iterator[str]:
    yield "| unit cost | of the servers | of the client |"
    yield "|---|---|---|"
    yield f"| a key, with both versions | {costs.memory:.0f} bytes | |"
    yield f"| a key written in a batch of 100,000 | {costs.write_servers:.1f} µs | {costs.write_client:.1f} µs |"
    yield f"| a key read in a lookup of 100 | {costs.lookup_servers:.1f} µs | {costs.lookup_client:.1f} µs |"


def _needs(needs: list[Need]) -> Iterator[str]:
    yield "| | " + " | ".join(f"{each.times:,} times" for each in needs) + " |"
    yield "|---" * (len(needs) + 1) + "|"
    yield from (
        f"| {name} | {' | '.join(texts)} |"
        for name, texts in {
            "keys": [f"{each.times * KEYS / 1e6:,.0f} million" for each in needs],
            "keys written per second": [f"{each.times * WRITTEN:,}" for each in needs],
            "lookups of 100 keys per second": [f"{each.times * LOOKUPS:,}" for each in needs],
            f"nodes for memory ({NODE_GB} GB of rows each)": [f"{each.nodes['memory']:,}" for each in needs],
            f"nodes for processor time ({CORE_SHARE:.0%} of a core each)": [
                f"{each.nodes['processor']:,}" for each in needs
            ],
            "what asks for more nodes": [each.first for each in needs],
            "cores of tasks that write": [f"{each.task_cores:,.1f}" for each in needs],
            "cores of processes that read": [f"{each.reader_cores:,.1f}" for each in needs],
        }.items()
    )


if __name__ == "__main__":
    main()
