"""large: a state of 20 million keys in Redis, spread over three nodes.

What `spread` measures of a filled state: the rate of batches of 100,000 new keys, the memory per key, and lookups of
one client, of one key and of 100. It takes some 6 GB of memory.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.servers import database
from benchmarks.spread import filled

SEEDS = "the keys of lookup n: n"

STATE_KEYS = 20_000_000


def run(keys: int = STATE_KEYS, rounds: int = 5) -> Iterator[Case]:
    """Yield the cases. keys: those of the state. rounds: unused, because each key is written once."""
    with database() as conn, tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as folder:
        yield from filled(conn, Path(folder), keys, is_updated=False)
