"""`python -m benchmarks NAME [--json]`: run one benchmark and print its cases."""

import argparse
import signal
import sys

from benchmarks import bulk, freshness, generic, ingest, listeners, lookup, merge, redis_merge, scaling

# Name to the function that yields its cases; its module says what is measured.
BENCHMARKS = {
    "merge": merge.run,
    "generic": generic.run,
    "redis": redis_merge.run,
    "bulk": bulk.run,
    "scaling": scaling.run,
    "ingest": ingest.run,
    "freshness": freshness.run,
    "lookup": lookup.run,
    "events": listeners.run,
}
# Those whose input is events.
SCALED = {"ingest", "freshness"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--json", action="store_true", help="one JSON object per case and line")
    parser.add_argument("--events", type=int, help="how many, for a quick run of " + " or ".join(sorted(SCALED)))
    arguments = parser.parse_args()
    # A run that is told to end stops its servers, as one that is interrupted does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scale = {} if arguments.events is None else {"events": arguments.events}
    for name in BENCHMARKS if arguments.name == "all" else [arguments.name]:
        for case in BENCHMARKS[name](**(scale if name in SCALED else {})):
            print(case.as_json() if arguments.json else case.as_text(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
