"""A client for Tidegauge's HTTP API: `Client`, and `AsyncClient` for programs with an event loop.

It needs the extra `client`, and does not load Django, Spark or a database driver.
"""

try:
    import httpx  # noqa: F401
except ModuleNotFoundError:
    from tidegauge.state_backends.extras import naming_the_extra

    with naming_the_extra():
        raise

from tidegauge.client.alerts import AlertDocument
from tidegauge.client.answers import Answer, Combined, Result
from tidegauge.client.async_client import AsyncClient
from tidegauge.client.async_saved_query import AsyncSavedQuery
from tidegauge.client.async_state import AsyncState
from tidegauge.client.client import Client
from tidegauge.client.documents import BatchDocument, PipelineDocument, Run, StateDocument
from tidegauge.client.entries import Entry, History, Page, Version
from tidegauge.client.errors import (
    ApiError,
    AuthenticationError,
    BatchGoneError,
    ClientError,
    ConflictError,
    DeadlineError,
    ForbiddenError,
    GoneError,
    IncompleteExportError,
    InvalidAnswerError,
    InvalidArgumentError,
    NoAnswerError,
    NotCommittedError,
    NotFoundError,
    NotReachedError,
    OtherEpochError,
    PagesGoneError,
    RateLimitedError,
    RequestError,
    ServerError,
    SnapshotLostError,
    TimeLimitError,
    UnavailableError,
)
from tidegauge.client.events import Batch, Event, OtherEvent, Pipelines, Ready, Reset, Snapshot, Tide
from tidegauge.client.exports import Export, MissingFormatError
from tidegauge.client.groups import Group, Groups
from tidegauge.client.lookups import Lookup
from tidegauge.client.saved_queries import SavedAnswer, SavedQueryDocument
from tidegauge.client.saved_query import SavedQuery
from tidegauge.client.series import Series
from tidegauge.client.state import State
from tidegauge.client.tokens import Token
from tidegauge.client.windows import Window, WindowResult, Windows

__all__ = [
    "AlertDocument",
    "Answer",
    "ApiError",
    "AsyncClient",
    "AsyncSavedQuery",
    "AsyncState",
    "AuthenticationError",
    "Batch",
    "BatchDocument",
    "BatchGoneError",
    "Client",
    "ClientError",
    "Combined",
    "ConflictError",
    "DeadlineError",
    "Entry",
    "Event",
    "Export",
    "ForbiddenError",
    "GoneError",
    "Group",
    "Groups",
    "History",
    "IncompleteExportError",
    "InvalidAnswerError",
    "InvalidArgumentError",
    "Lookup",
    "MissingFormatError",
    "NoAnswerError",
    "NotCommittedError",
    "NotFoundError",
    "NotReachedError",
    "OtherEpochError",
    "OtherEvent",
    "Page",
    "PagesGoneError",
    "PipelineDocument",
    "Pipelines",
    "RateLimitedError",
    "Ready",
    "RequestError",
    "Reset",
    "Result",
    "Run",
    "SavedAnswer",
    "SavedQuery",
    "SavedQueryDocument",
    "Series",
    "ServerError",
    "Snapshot",
    "SnapshotLostError",
    "State",
    "StateDocument",
    "Tide",
    "TimeLimitError",
    "Token",
    "UnavailableError",
    "Version",
    "Window",
    "WindowResult",
    "Windows",
]
