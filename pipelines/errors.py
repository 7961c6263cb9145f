"""What can go wrong in a pipeline, one class per thing a caller can do about it."""

import re

from state_backends.errors import TidemarkError


class PipelineError(TidemarkError):
    """A pipeline is declared wrongly: correct the declaration."""


class BadInputError(TidemarkError):
    """Too large a share of a batch cannot be read: look at the input, or raise the share."""


class PipelinePausedError(TidemarkError):
    """People have paused the pipeline: resume it, then run it."""


# What can go wrong between a source and the input it promised.


class SourceSetupError(TidemarkError):
    """The place that events come from is not set up for being read: change it as the message says."""


class InputLostError(TidemarkError):
    """Events that were promised are gone, or may be: decide how to go on as the message says."""


# The one error a door has to print: something that Tidemark runs on is missing or broken.


class RuntimeSetupError(Exception):
    """A server or a tool cannot be started here; the message says where, which value and what to do."""


# Failures that come out of Spark as text: which line a person wants to read first, and whether it was a refusal.


# Raised in a Python worker these arrive as lines of its traceback.
OURS = ("state_backends.", "pipelines.", "psycopg.", "redis.")
REFUSALS = re.compile(r"^(state_backends|pipelines)\.[a-z_.]*errors\.(?!FencedError)\w+: ", re.MULTILINE)

# How Spark begins the sentence that says what is wrong, wherever it stands in what Java adds to it.
SPARKS = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .+")

LONGEST_REASON = 500


def failure_reason(error: Exception) -> str:
    """Return the line of an error that a person wants to read first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(OURS)]
    sparks = [found.group() for line in lines if (found := SPARKS.search(line))]
    # From what tells least to what tells most.
    reasons = [type(error).__name__, *lines[:1], *sparks[:1], *ours[-1:]]
    return reasons[-1][:LONGEST_REASON]


def is_refusal(error: Exception) -> bool:
    """Tell whether a task refused its work and would do so again; another driver that took over is not that."""
    return REFUSALS.search(str(error)) is not None
