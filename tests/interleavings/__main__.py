"""Interleavings: `make interleavings ARGS="--histories 200"`. Exits with 1 if an answer was wrong.

Prints the seed and the last steps of a history that fails; `--seed N --histories 1` replays it.
"""

import argparse
import logging
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.interleavings.history import History
from tidegauge.pipelines.embedded.temporary import server_url, temporary_database

SHOWN_STEPS = 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interleavings", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--buckets", type=int, default=1, help="over how many the state in Redis is spread")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of a server without fsync, in each history
    total: Counter[str] = Counter()
    wrong = 0
    server = server_url()
    for seed in range(options.seed, options.seed + options.histories):
        # A database of its own, so that a history is the same whatever came before.
        with temporary_database(server) as dsn, TemporaryDirectory() as folder:
            history = History(seed, dsn, Path(folder), options.buckets)
            try:
                total += history.live()
            except AssertionError as error:
                wrong += 1
                steps = "\n".join(history.scheduler.trace[-SHOWN_STEPS:])
                print(f"history {seed}: {error}\nafter\n{steps}", flush=True)
    figures = ", ".join(f"{name} {number}" for name, number in sorted(total.items()))
    print(f"{options.histories} histories: {figures}, wrong {wrong}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
