"""Runs the tests of each mutant in a copy of the checkout, and prints which mutants survive."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.mutants import MUTANTS
from tests.mutants.mutant import Mutant, StaleMutantError
from tidegauge.pipelines.embedded.temporary import start_temporary_servers

CHECKOUT = Path(__file__).parents[2]

# Some mutants make the code wait forever.
LIMIT_SECONDS = 300

KILLED, SURVIVED, STALE, ERROR = "killed", "SURVIVED", "STALE", "ERROR"

# What pytest exits with.
PASSED, FAILED = 0, 1

FAILURE = re.compile(r"^(?:FAILED|ERROR) \S*?([\w.]+::\S+)", re.MULTILINE)

_ticks = count(int(time.time()))


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    chosen = list(select(MUTANTS, asked.names))
    if not chosen:
        print(f"no mutant's name begins with {' or '.join(asked.names)}; --list shows all", file=sys.stderr)
        return 2
    if asked.list:
        print("\n".join(f"{mutant.name:45} {mutant.file}" for mutant in chosen))
        return 0
    start_temporary_servers()  # one of each for all runs of tests, which find their addresses in the environment
    with copied(CHECKOUT) as copy:
        if not asked.trust and (said := failure_without_mutants(copy, chosen)):
            print(f"the tests fail without any mutant:\n{said}", file=sys.stderr)
            return 2
        lived = sum(report(mutant, *run(copy, mutant)) for mutant in chosen)
    print(f"{len(chosen) - lived} of {len(chosen)} mutants were killed")
    return 1 if lived else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="what the names of mutants begin with; none: all")
    parser.add_argument("--list", action="store_true", help="show the mutants and end")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without a mutant first")
    return parser


def select(mutants: Iterable[Mutant], names: Sequence[str]) -> Iterator[Mutant]:
    """Yield the mutants whose names begin with one of `names`, or all, those with the same tests together."""
    chosen = [mutant for mutant in mutants if not names or mutant.name.startswith(tuple(names))]
    yield from sorted(chosen, key=lambda mutant: tuple(mutant.tests))


@contextmanager
def copied(checkout: Path) -> Iterator[Path]:
    """Copy the checkout's files, with changes that are not committed, to a folder that is deleted at the end."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=checkout, check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory(prefix="tidegauge-mutants-") as folder:
        for name in filter(None, names.split("\0")):
            source, target = checkout / name, Path(folder, name)
            if source.is_symlink() or source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        yield Path(folder)


def failure_without_mutants(copy: Path, mutants: Sequence[Mutant]) -> str:
    """Return what the tests of all mutants say if they fail on the code as it is; empty if they pass."""
    tests = dict.fromkeys(test for mutant in mutants for test in mutant.tests)
    code, said = pytest(copy, list(tests), limit_seconds=None)
    return "" if code == PASSED else said


def run(copy: Path, mutant: Mutant) -> tuple[str, str]:
    """Return the verdict, and the first test that failed or why there is none."""
    path = copy / mutant.file
    try:
        original, mutated = path.read_text(), mutant.mutated(copy)
    except (OSError, StaleMutantError) as error:
        return STALE, str(error)
    try:
        write(path, mutated)
        code, said = pytest(copy, mutant.tests, limit_seconds=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return KILLED, f"the tests did not end within {LIMIT_SECONDS} s"
    finally:
        write(path, original)
    if code == FAILED:
        found = FAILURE.search(said)
        return KILLED, found[1] if found else ""
    return (SURVIVED, "") if code == PASSED else (ERROR, said[-2_000:])


def write(path: Path, text: str) -> None:
    path.write_text(text)
    # Python takes a compiled file for current if the source has the same size and second of modification.
    tick = next(_ticks)
    os.utime(path, (tick, tick))


def pytest(copy: Path, tests: Sequence[str], limit_seconds: float | None) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    # Compiling everything again for each mutant would take longer than its tests.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=copy, env=environ, text=True, **pipes) as process:
        try:
            said, _ = process.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # and pytest stops what it has started
            process.communicate()
            raise
    return process.returncode, said


def report(mutant: Mutant, verdict: str, why: str) -> bool:
    """Print one line of the table. Returns whether the mutant was not killed."""
    print(f"{verdict:9} {mutant.name:45} {why}", flush=True)
    return verdict != KILLED


if __name__ == "__main__":
    sys.exit(main())
