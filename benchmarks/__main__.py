"""`python -m benchmarks NAME [--json]`: run one benchmark and print its cases."""

import argparse
import sys

from benchmarks import bulk, generic, merge, redis_merge

# Name to the function that yields its cases; its module says what is measured.
BENCHMARKS = {"merge": merge.run, "generic": generic.run, "redis": redis_merge.run, "bulk": bulk.run}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--json", action="store_true", help="one JSON object per case and line")
    arguments = parser.parse_args()
    for name in BENCHMARKS if arguments.name == "all" else [arguments.name]:
        for case in BENCHMARKS[name]():
            print(case.as_json() if arguments.json else case.as_text(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
