"""What can go wrong between a source and the input it promised."""

from state_backends.errors import TidemarkError


class SourceSetupError(TidemarkError):
    """The place that events come from is not set up for being read: change it as the message says."""


class InputLostError(TidemarkError):
    """Events that were promised are gone, or may be: decide how to go on as the message says."""
