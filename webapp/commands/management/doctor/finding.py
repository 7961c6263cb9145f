"""Finding: one line of `tidegauge doctor`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg

ERROR, WARNING, OK = "error", "warning", "ok"


@dataclass(frozen=True)
class Finding:
    """What a check found.

    level: `error` if something is wrong, `warning` if it is a risk, `ok` for a fact. remedy: what to do, with commands
    between backticks; empty for a fact.
    """

    check: str
    level: str
    message: str
    remedy: str = ""


# A check of the installation, and one of the database.
Check = Callable[[], Iterator[Finding]]
DatabaseCheck = Callable[[psycopg.Connection], Iterator[Finding]]


def megabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
