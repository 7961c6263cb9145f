"""generic: the generic path, which folds in Python what SQL cannot fold, compared with the SQL path on the same rows.

A batch has 100,000 of 300,000 keys, all of which exist, in key order.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from benchmarks.cases import ROUNDS, Case, side_by_side
from benchmarks.rows import SALES, batch
from benchmarks.servers import database
from tidegauge.state_backends import Count, PostgresBackingMap, StateSpec, Sum
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.spec.table import StateTable

UNEQUAL = {
    "sql_path": "Only the count lacks an SQL fold; the sum has one, but all measures of a state take the same path."
}
SEEDS = "the keys and counts of round n: n, from 0, the warm-up"


class CountInPython(Count):
    """A count without an SQL fold, like a user's own aggregator."""

    fold_sql = {}  # noqa: RUF012


IN_PYTHON = replace(
    SALES, name="bench_in_python", measures={"n": CountInPython(), "total": Sum("x", "double precision")}
)


def run(rounds: int = ROUNDS) -> Iterable[Case]:
    with database() as conn:
        txids = count(1)

        def merge(spec: StateSpec, seed: int) -> int:
            rows = batch(seed)
            with conn.transaction():
                return PostgresBackingMap(conn, spec).merge([rows], next(txids), datetime.now(UTC))

        for spec in (SALES, IN_PYTHON):
            tables.create(conn, StateTable(spec))
            for seed in range(rounds + 1):
                merge(spec, seed)
        yield from side_by_side(
            {"sql_path": lambda number: merge(SALES, number), "generic_path": lambda number: merge(IN_PYTHON, number)},
            "keys/s",
            references=["sql_path"],
            rounds=rounds,
        )
