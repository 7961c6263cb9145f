"""What can go wrong with a synchronizer, one class per thing a caller can do about it."""

from state_backends.errors import TidemarkError


class SynchronizerError(TidemarkError):
    """Anything a synchronizer refuses."""


class NoInitialStateError(SynchronizerError):
    """The log holds no initial value: initialize it first."""


class ContentionError(SynchronizerError):
    """An update lost every race in the time it had: try again later, or write without a condition."""


class RecordTooLargeError(SynchronizerError):
    """A record, or the state it leads to, is over the limit: write less, or split the state over several logs."""


class CorruptedStateError(SynchronizerError):
    """A record is neither an initial value nor a list of updates: something else writes to this log."""


class TruncatedError(SynchronizerError):
    """The records asked for are gone: read again from the mark."""


class RevisionError(SynchronizerError):
    """A revision lies outside the log, or a range runs backwards: ask for one that the log has given."""


class InvalidLogError(SynchronizerError):
    """The log has been dropped: open it anew."""
