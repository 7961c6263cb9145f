"""The errors of the client: one class for each thing that a caller can do about it.

An error of the server is recognized by the `code` of its problem document, or by its status if there is no document,
for example from a proxy. No message contains the API key.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

PHRASE_BYTES = 200  # shown of an answer that is not a problem document, such as a proxy's page


class ClientError(Exception):
    """Base of all errors of the client."""


class InvalidArgumentError(ClientError, ValueError):
    """An argument cannot be sent: a time without a zone, an API key with a line break, more than fits into a URL."""


class InvalidAnswerError(ClientError):
    """The answer is not from Tidegauge, or is broken: a redirect, a page of a proxy. Check the client's address."""


class NoAnswerError(ClientError):
    """The server cannot be reached, or the connection broke before the answer was complete."""


class DeadlineError(ClientError):
    """The call took longer than its timeout. The server may still have carried it out."""


class SnapshotLostError(ClientError):
    """Two times, the batch of a lookup in chunks became unavailable during the lookup: ask for fewer keys at a time, or
    let the state keep a changelog."""


class IncompleteExportError(ClientError):
    """The export broke off, so the part that was read is not the whole range."""


class ApiError(ClientError):
    """The server refused the request.

    status: the HTTP status. code: the stable code of the problem; empty if there is none. problem: the whole document.
    retry_after: seconds after which to try again, if the server gave them.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.problem = problem
        self.code = str(problem.get("code", ""))
        self.retry_after = retry_after
        request_id = f" (request {problem['request_id']})" if "request_id" in problem else ""
        super().__init__(f"{status} {self.code or problem.get('title', '')}: {problem.get('detail', '')}{request_id}")


class RequestError(ApiError):
    """The request is invalid: a key, a measure, a parameter. `problem` may have the `index` of the key."""


class AuthenticationError(ApiError):
    """The API key is missing, wrong, expired or revoked."""


class ForbiddenError(ApiError):
    """The API key lacks the scope, or the state or key is outside its key scope."""


class NotFoundError(ApiError):
    """The state, pipeline or run does not exist."""


class ConflictError(ApiError):
    """The request conflicts with the current state of the server, for example a second maintenance run of one state."""


class NotCommittedError(ConflictError):
    """The batch of `at_txid` is not committed yet: wait for it with `min_txid`."""


class OtherEpochError(ConflictError):
    """The ledger was restored, so the batch's epoch is no longer valid: read without epoch, re-send lost writes."""


class GoneError(ApiError):
    """The object existed, but is no longer available: a batch, the pages of a batch, a retired or renamed state."""


class BatchGoneError(GoneError):
    """The batch of `at_txid` is no longer available; `problem["oldest_txid"]` is the oldest one that is."""


class PagesGoneError(GoneError):
    """An iterator cannot continue its pages, because their batch is no longer available: start again."""


class RateLimitedError(ApiError):
    """Too many requests; the retries were refused as well."""


class NotReachedError(ConflictError):
    """The batch of `min_txid` was not committed in time."""


class UnavailableError(ApiError):
    """The server, or a store behind it, did not answer, even after the retries."""


class TimeLimitError(ApiError):
    """The request exceeded the server's time limit: ask for less at a time."""


class ServerError(ApiError):
    """The server failed; its log has the details under the request id."""


OF_CODE: Mapping[str, type[ApiError]] = {
    "not_committed": NotCommittedError,
    "other_epoch": OtherEpochError,
    "out_of_reach": BatchGoneError,
    "pages_gone": PagesGoneError,
    "not_reached": NotReachedError,
}

OF_STATUS: Mapping[int, type[ApiError]] = {
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    429: RateLimitedError,
    502: UnavailableError,
    503: UnavailableError,
    504: TimeLimitError,
}


@dataclass(frozen=True)
class Response:
    """A complete answer of the server. headers: their names are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


def error_of(response: Response) -> ApiError:
    """Return the error of an answer whose status is 400 or more."""
    problem = _problem(response)
    return _kind(response.status, problem)(response.status, problem, _retry_after(response.headers.get("retry-after")))


def _kind(status: int, problem: Mapping[str, Any]) -> type[ApiError]:
    fallback = ServerError if status >= 500 else RequestError
    return OF_CODE.get(str(problem.get("code")), OF_STATUS.get(status, fallback))


def _problem(response: Response) -> Mapping[str, Any]:
    try:
        document = json.loads(response.content)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    return {"detail": response.content[:PHRASE_BYTES].decode(errors="replace").strip()}


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a `Retry-After`, which may be a time (RFC 9110, 10.2.3)."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
