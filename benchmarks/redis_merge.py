"""redis: the merge into Redis, which is a script on the server, compared with pipelined HSETs of the same fields.

A batch has 100,000 of 300,000 keys, all of which exist, in key order.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count

import redis

from benchmarks.cases import ROUNDS, Case, side_by_side
from benchmarks.rows import KEYS, SALES, batch, row_dicts
from benchmarks.servers import redis_client
from tidegauge.state_backends import RedisBackingMap

UNEQUAL = {
    "pipelined_hset": (
        "It overwrites two fields and reads nothing: it does not add to the stored values and keeps no previous "
        "version. It encodes dicts, as a user's program would, while the merge encodes columns."
    )
}
SEEDS = "the keys and counts of round n: n, from 0, the warm-up"

PIPELINED = 1_000  # commands sent at a time; more are not faster here


def run(rounds: int = ROUNDS) -> Iterable[Case]:
    with redis_client() as client:
        backing, txids = RedisBackingMap(client, SALES), count(1)

        def merge(seed: int) -> int:
            return backing.merge([batch(seed)], next(txids), datetime.now(UTC))

        for seed in range(rounds + 1):
            merge(seed)
            hset(client, seed)
        yield from side_by_side(
            {"pipelined_hset": lambda seed: hset(client, seed), "redis_merge": merge},
            "keys/s",
            references=["pipelined_hset"],
            rounds=rounds,
        )


def hset(client: redis.Redis, seed: int) -> int:
    rows = row_dicts(seed)
    for first in range(0, KEYS, PIPELINED):
        pipeline = client.pipeline(transaction=False)
        for row in rows[first : first + PIPELINED]:
            pipeline.hset(f"tidegauge:bench:{row['shop']}", mapping={"n": row["n"], "total": row["total"]})
        pipeline.execute()
    return KEYS
