"""What can go wrong in a pipeline, one class per thing a caller can do about it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegauge.state_backends.errors import TidegaugeError


class PipelineError(TidegaugeError):
    """A pipeline is declared wrongly: correct the declaration."""


class BadInputError(TidegaugeError):
    """Too large a share of a batch cannot be read, or is rejected: correct the input or the declaration."""


class PipelinePausedError(TidegaugeError):
    """The pipeline is paused: resume it, then run it."""


class PoolerError(TidegaugeError):
    """The database is reached through a connection pooler: give the address of the server itself."""


class SourceSetupError(TidegaugeError):
    """The system that events come from is not set up for reading: change it as the message says."""


class SourceUnavailableError(TidegaugeError):
    """The system that events come from does not answer: try again later."""

    retryable = True


class CheckpointUnreachableError(TidegaugeError):
    """The store of a checkpoint does not answer, or refuses: try again later, or correct its settings."""

    retryable = True


@dataclass(frozen=True)
class Gap:
    """Lost events: those of `place` from offset `first` to offset `last`, inclusive."""

    place: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.place!r} offsets {self.first} to {self.last} ({self.last - self.first + 1} messages)"


class InputLostError(TidegaugeError):
    """Events that a source promised are lost, or may be: choose how to continue, as the message says.

    gaps: what is lost, if the source can tell. left: the offset from which on nothing is lost, None if unknown.
    """

    def __init__(self, message: str, gaps: Sequence[Gap] = (), left: Any = None) -> None:
        super().__init__(message)
        self.gaps = tuple(gaps)
        self.left = left


class RecountError(TidegaugeError):
    """A state cannot be recounted from its sources, as the message says: compare it with its changelog."""


class RuntimeSetupError(Exception):
    """A server or a tool cannot be started here; the message says where, which value and what to do."""

    retryable: ClassVar[bool] = False


class SparkVersionError(RuntimeSetupError):
    """The installed Spark is not a supported version: install another, as the message says."""


# Lines of a Python worker's traceback that begin with these name an error of ours or of our drivers.
OURS = ("tidegauge.", "psycopg.", "redis.")

# The last line of a Python traceback: the qualified name of the class, and the message if there is one.
RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: |$)", re.MULTILINE)

# The sentence with which Spark says what is wrong, as [CODE] and text. Searched for, because Java adds text before it.
SPARKS = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .+")

LONGEST_REASON = 500  # characters


def failure_reason(error: Exception) -> str:
    """Return the most specific line of an error, at most 500 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(OURS)]
    sparks = [found.group() for line in lines if (found := SPARKS.search(line))]
    # From the least to the most specific.
    reasons = [type(error).__name__, *lines[:1], *sparks[:1], *ours[-1:]]
    return reasons[-1][:LONGEST_REASON]


def is_retryable(error: Exception) -> bool:
    """Return whether trying again may help, as the attribute `retryable` of our error classes says.

    An error of a Python worker arrives as text inside Spark's error. It is retryable if every class of ours that its
    traceback names is, and so also if it names none.
    """
    if isinstance(error, TidegaugeError | RuntimeSetupError):
        return error.retryable
    retryable = {name: kind.retryable for name, kind in _named_classes()}
    return all(retryable.get(name, True) for name in RAISED.findall(str(error)))


def _named_classes() -> Iterator[tuple[str, type[TidegaugeError | RuntimeSetupError]]]:
    """Yield our error classes with their qualified names, whatever module defines them."""
    remaining: list[type[TidegaugeError | RuntimeSetupError]] = [TidegaugeError, RuntimeSetupError]
    while remaining:
        kind = remaining.pop()
        yield f"{kind.__module__}.{kind.__qualname__}", kind
        remaining += kind.__subclasses__()
