"""Random lives: `make life ARGS="--minutes 60 --seeds 10"`. Ends with 1 where a state was not what its model says.

A life that deviates is named by its seed; `--life SEED` lives it again.
"""

import argparse
import secrets
import sys
import time

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.java_options import set_java_options
from tests.life.life import Figures, live
from tidegauge.pipelines.embedded.temporary import server_url
from tidegauge.pipelines.errors import failure_reason
from tidegauge.state_backends.errors import SecondWriterError, TidegaugeError
from tidegauge.testing.checks import DifferenceError
from tidegauge.testing.session import spark_session

# So many lives have seeds of their own under the seed of a row of the table.
LIVES_OF_A_SEED = 1_000_000


def main() -> int:
    options = _arguments().parse_args()
    set_java_options()
    if options.life is not None:
        return bool(_lived(options.life).deviations)
    found = {}
    for seed in range(options.seed, options.seed + options.seeds):
        ends = time.monotonic() + options.minutes * 60 / options.seeds
        figures, number = Figures(), seed * LIVES_OF_A_SEED
        while time.monotonic() < ends:
            figures += _lived(number)
            number += 1
        found[seed] = figures
        print(f"seed {seed}: {figures}", flush=True)
    print(_table(found))
    return any(figures.deviations for figures in found.values())


def _lived(number: int) -> Figures:
    try:
        url = server_url()  # first, as Spark gives its workers the address of Redis
        return live(number, spark_session(), url)
    except DifferenceError as error:
        print(f"life {number} deviates:\n{error}", flush=True)
        return Figures(lives=1, deviations=1)
    except (TidegaugeError, PySparkException, Py4JJavaError) as error:
        # What a task raises comes as Spark's error with the task's traceback.
        reason = failure_reason(error)
        if not (isinstance(error, TidegaugeError) or " state 'life_" in f" {reason}"):
            raise
        if SecondWriterError.__name__ in str(error):  # no life has two writers
            print(f"life {number} deviates: {reason}", flush=True)
            return Figures(lives=1, deviations=1)
        print(f"life {number} stopped: {reason}", flush=True)
        return Figures(lives=1, stopped=1)


def _table(found: dict[int, Figures]) -> str:
    names = list(vars(Figures()))
    rows = [[str(seed), *map(str, vars(figures).values())] for seed, figures in found.items()]
    rows.append(["all", *(str(value) for value in vars(sum(found.values(), Figures())).values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in [["seed", *names], ["---"] * (len(names) + 1), *rows])


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.life", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for all seeds together")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000))
    parser.add_argument("--seeds", type=int, default=1, help="so many, from the first one on")
    parser.add_argument("--life", type=int, help="live this one again, and no other")
    return parser


if __name__ == "__main__":
    sys.exit(main())
