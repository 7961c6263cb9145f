"""Search the model: `python -m docs.model`. `--off pin` removes a guard and prints the shortest history that breaks.

--store, --inputs and --faults set other bounds, such as `--store external --inputs a ar ab --faults 2`.
"""

import argparse
import sys
import time

from docs.model.buckets import rules_of
from docs.model.explore import explore
from docs.model.guards import GUARDS, WHOLE, Bounds, StoreKind


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.model")
    parser.add_argument("--off", choices=sorted(GUARDS), help="remove this guard")
    parser.add_argument("--store", choices=["ledger", "external", "buckets"], default="external")
    parser.add_argument("--inputs", nargs="+", help="for each batch, letters of its possible inputs, such as: ab ar")
    parser.add_argument("--faults", type=int, default=1)
    parser.add_argument("--without", nargs="*", default=[], help="actions that are left out")
    asked = parser.parse_args()
    searches = WHOLE
    if asked.inputs:
        searches = ((asked.store, Bounds(tuple(asked.inputs), asked.faults, frozenset(asked.without))),)
    elif asked.off:
        searches = ((GUARDS[asked.off].store, GUARDS[asked.off].bounds),)
    off = frozenset({asked.off} if asked.off else ())
    return max(_search(store, bounds, off) for store, bounds in searches)


def _search(store: StoreKind, bounds: Bounds, off: frozenset[str]) -> int:
    began = time.process_time()
    found = explore(rules_of(store, bounds, off))
    for number, sentence in enumerate(found.history, start=1):
        sys.stdout.write(f"{number:3} {sentence}\n")
    sys.stdout.write(
        f"{found.violation or 'no invariant is broken'}: {found.states:,} states, store {store}, "
        f"inputs {' '.join(bounds.inputs)}, {bounds.faults} faults, {time.process_time() - began:.1f} s\n"
    )
    return int(bool(found.violation))


if __name__ == "__main__":
    sys.exit(main())
