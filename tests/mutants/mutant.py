"""Mutant: one wrong change of the code, as a careless edit might make it, and the tests that must fail with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class StaleMutantError(Exception):
    """The code has changed, so that the mutant's text is not in it any more, or is in it more often."""


@dataclass(frozen=True)
class Mutant:
    """name: for the command line. file, tests: paths from the top of the checkout; a test may be a node id.

    before: text that is in the file exactly `times` times, all of which become `after`.
    """

    name: str
    file: str
    before: str
    after: str
    tests: Sequence[str]
    times: int = 1

    def mutated(self, checkout: Path) -> str:
        """Return the file's text with the change. Raises StaleMutantError."""
        text = (checkout / self.file).read_text()
        found = text.count(self.before)
        if found != self.times:
            raise StaleMutantError(f"{self.file} has the text {found} times, not {self.times}: {self.before!r}")
        return text.replace(self.before, self.after)
