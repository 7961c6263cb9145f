"""Run benchmarks and print their cases: `python -m benchmarks NAME .. [--json] [--write docs/benchmarks.json]`."""

import argparse
import signal
import sys
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.peers.environments import MissingPeerError
from benchmarks.registry import ALL, BENCHMARKS
from benchmarks.results import measure, replace_section

# Each option with what it sets. Options make a run shorter or longer, and are recorded with the results.
OPTIONS = {
    "events": "number of input events",
    "keys": "number of keys, of the largest state",
    "listeners": "number of clients of event streams",
    "rate": "events per second, at first",
    "requests": "number of requests per round",
    "rounds": "number of rounds, five or more for results that are published",
    "seconds": "how long a rate is measured",
}


def main() -> None:
    arguments = _arguments()
    # Handled like Ctrl-C, so that SIGTERM stops the servers too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = {name: value for name in OPTIONS if (value := getattr(arguments, name)) is not None}

    def say(case: Case) -> None:
        print(case.as_json() if arguments.json else case.as_text(), flush=True)

    try:
        for name in ALL if "all" in arguments.names else arguments.names:
            if arguments.write is None:
                for case in BENCHMARKS[name].run(given):
                    say(case)
            else:
                replace_section(arguments.write, name, measure(BENCHMARKS[name], given, say))
    except MissingPeerError as error:
        sys.exit(str(error))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join([*BENCHMARKS, "all (the default): all but the peers"])
    parser.add_argument("names", nargs="*", default=["all"], metavar="NAME", help=names)
    parser.add_argument("--json", action="store_true", help="one JSON object per case and line")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the benchmarks' sections of this file")
    for name, what in OPTIONS.items():
        takers = [each.name for each in BENCHMARKS.values() if name in each.options]
        parser.add_argument(f"--{name}", type=int, help=f"{what}; used by {', '.join(takers)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - {*BENCHMARKS, "all"}:
        names = ", ".join(map(repr, sorted(unknown)))
        parser.error(f"there is no benchmark {names}; choose from {', '.join(BENCHMARKS)}")
    return arguments


if __name__ == "__main__":
    main()
