"""What can go wrong with a key-value store, one class per thing a caller can do about it."""

from state_backends.errors import TidemarkError


class KeyValueStoreError(TidemarkError):
    """Anything a key-value store refuses."""


class StoreClosedError(KeyValueStoreError):
    """The store was closed: open a new one."""


class PositionError(KeyValueStoreError):
    """A position lies outside the log: see what `plan_restore` makes of it."""
