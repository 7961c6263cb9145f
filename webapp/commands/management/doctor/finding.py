"""Finding: one line of `tidegauge doctor`."""

from dataclasses import dataclass

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
