"""`python -m benchmarks NAME [--json]`: run one benchmark and print its cases."""

import argparse
import signal

from benchmarks import batch_cost, bulk, event_streams, freshness, generic, ingest, lookup, merge, redis_merge, scaling

# Name to the function that yields its cases. The docstring of its module says what is measured.
BENCHMARKS = {
    "merge": merge.run,
    "generic": generic.run,
    "redis": redis_merge.run,
    "bulk": bulk.run,
    "scaling": scaling.run,
    "ingest": ingest.run,
    "batch-cost": batch_cost.run,
    "freshness": freshness.run,
    "lookup": lookup.run,
    "events": event_streams.run,
}
# Those with the option --events.
WITH_EVENTS = {"batch-cost", "ingest", "freshness"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--json", action="store_true", help="one JSON object per case and line")
    parser.add_argument(
        "--events", type=int, help="number of input events, for a quick run of " + " or ".join(sorted(WITH_EVENTS))
    )
    arguments = parser.parse_args()
    # SIGTERM stops the servers, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scale = {} if arguments.events is None else {"events": arguments.events}
    for name in BENCHMARKS if arguments.name == "all" else [arguments.name]:
        for case in BENCHMARKS[name](**(scale if name in WITH_EVENTS else {})):
            print(case.as_json() if arguments.json else case.as_text(), flush=True)


if __name__ == "__main__":
    main()
