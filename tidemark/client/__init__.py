"""A client of Tidemark's API, over HTTP: `Client`, and `AsyncClient` for programs with an event loop.

It needs the extra `client` and loads neither Django nor Spark nor a database driver.
"""

try:
    import httpx  # noqa: F401
except ModuleNotFoundError:
    from state_backends.extras import naming_the_extra

    with naming_the_extra():
        raise

from tidemark.client.alerts import AlertDocument
from tidemark.client.answers import Answer, Combined, Result
from tidemark.client.async_client import AsyncClient
from tidemark.client.async_saved_query import AsyncSavedQuery
from tidemark.client.async_state import AsyncState
from tidemark.client.client import Client
from tidemark.client.documents import BatchDocument, PipelineDocument, Run, StateDocument
from tidemark.client.entries import Entry, History, Page, Version
from tidemark.client.errors import (
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
from tidemark.client.events import Batch, Event, OtherEvent, Pipelines, Ready, Reset, Snapshot, Tide
from tidemark.client.exports import Export, MissingFormatError
from tidemark.client.groups import Group, Groups
from tidemark.client.lookups import Query
from tidemark.client.saved_queries import SavedAnswer, SavedQueryDocument
from tidemark.client.saved_query import SavedQuery
from tidemark.client.series import Series
from tidemark.client.state import State
from tidemark.client.tokens import Token

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
    "Query",
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
]
