"""What can go wrong in a pipeline, one class per thing a caller can do about it."""

from state_backends.errors import TidemarkError


class PipelineError(TidemarkError):
    """A pipeline is declared wrongly: correct the declaration."""


class BadInputError(TidemarkError):
    """Too large a share of a batch cannot be read: look at the input, or raise the share."""


class PipelinePausedError(TidemarkError):
    """People have paused the pipeline: resume it, then run it."""
