"""What a call of the client can end with besides an answer: one class per thing that a caller can do about it.

An error of the server is known by the `code` of its problem document; where there is none, as from a proxy, by its
status. No message has the API key.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

PHRASE_BYTES = 200  # of an answer that is no problem document, such as a proxy's page


class ClientError(Exception):
    """Base of all errors of the client."""


class InvalidArgumentError(ClientError, ValueError):
    """An argument cannot be sent: a time without a zone, an API key with a line break, more than an address takes."""


class InvalidAnswerError(ClientError):
    """The answer is not one of Tidegauge: a redirect, a page of a proxy, or broken. Check the address of the client."""


class NoAnswerError(ClientError):
    """The server cannot be reached, or the connection broke before the answer was complete."""


class DeadlineError(ClientError):
    """The call took longer than its timeout. What it requested may have been done."""


class SnapshotLostError(ClientError):
    """The batch that all chunks of one lookup show did not stay available, twice: ask for fewer keys at a time, or let
    the state keep a changelog."""


class IncompleteExportError(ClientError):
    """The export broke off: what was read of it is not the whole range."""


class ApiError(ClientError):
    """The server refused the request.

    status: of HTTP. code: of the problem, stable; empty if there is none. problem: the whole document. retry_after:
    seconds after which to try again, if the server said so.
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
    """There is no such state, pipeline or run."""


class ConflictError(ApiError):
    """The request does not fit what there is now, as a second maintenance run of one state."""


class NotCommittedError(ConflictError):
    """The batch of `as_of` is not committed yet: wait for it with `min_txid`."""


class OtherEpochError(ConflictError):
    """The ledger went back: the batch is of an epoch that has ended. Read without it, and write again what is lost."""


class GoneError(ApiError):
    """What was asked for existed and is no longer available: a batch, the pages of one, a retired or renamed state."""


class BatchGoneError(GoneError):
    """The batch of `as_of` is no longer available; `problem["oldest_txid"]` is."""


class PagesGoneError(GoneError):
    """The pages of an iterator cannot go on, since their batch is gone: start again."""


class RateLimitedError(ApiError):
    """Too many requests, also after the retries."""


class NotReachedError(ApiError):
    """The batch of `min_txid` was not committed in time."""


class UnavailableError(ApiError):
    """The server, or a store behind it, does not answer now, also after the retries."""


class TimeLimitError(ApiError):
    """The request exceeded the server's time limit: request less at a time."""


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
    """A complete answer of the server. headers: by their names in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


def error_of(response: Response) -> ApiError:
    """Return the error that an answer of a status from 400 on is."""
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
