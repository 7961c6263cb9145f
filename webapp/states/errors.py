"""What the maintenance service refuses, one class per thing a caller can do about it."""

from state_backends.errors import TidemarkError


class StateBusyError(TidemarkError):
    """A run for this state is queued or running: wait for it, or cancel it."""

    def __init__(self, message: str, run_id: int) -> None:
        super().__init__(message)
        self.run_id = run_id


class UnknownRunError(TidemarkError):
    """No maintenance run has that number."""


class RunFinishedError(TidemarkError):
    """The run is over: there is nothing to cancel."""


class BrokerUnavailableError(TidemarkError):
    """No task could be enqueued: bring Redis back and ask again."""


class CatalogBusyError(TidemarkError):
    """A driver is registering its states: try again in a moment."""
