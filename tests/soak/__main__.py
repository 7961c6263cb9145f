"""The soak: `make soak ARGS="--minutes 30 --seed 7"`. Ends with 1 where a fault ended in a deviation or unexplained.

SIGINT and SIGTERM end it early; what it has found until then is reported.
"""

import argparse
import json
import secrets
import signal
import sys
import tempfile
from pathlib import Path

from tests.java_options import set_java_options
from tests.soak.report import print_record, table
from tests.soak.run import soak
from tests.soak.transfers import VARIANTS
from tests.soak.world import Options


def main() -> int:
    options = _arguments().parse_args()
    print(f"seed {options.seed}", flush=True)
    set_java_options()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tidegauge-soak-"))
    result = soak(
        folder,
        Options(options.seed, spark=options.spark, off=options.off, served=options.served),
        faults=options.faults,
        seconds=None if options.faults else options.minutes * 60,
        variants=options.variant or list(VARIANTS),
        names=options.fault,
        first=options.pipeline,
        on_record=print_record,
    )
    print(table([result]))
    if options.json:
        options.json.write_text(json.dumps(result.as_json(), indent=1))
    return 1 if result.deviations or result.unexplained else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--faults", type=int, help="so many faults, however long they take")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000))
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), help="kinds of pipelines (default: all)")
    parser.add_argument("--fault", action="append", default=[], help="only this fault; may be repeated")
    parser.add_argument("--pipeline", type=int, default=1, help="begin with the pipeline of this number, to repeat it")
    parser.add_argument("--spark", action="store_true", help="run drivers on Spark instead of the engine of the soak")
    parser.add_argument("--served", action="store_true", help="run web, events and the Celery worker beside it")
    parser.add_argument("--off", default="", help="control run: turn these guards off, with commas between them")
    parser.add_argument("--folder", type=Path, help="where servers and logs are (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write all records to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
