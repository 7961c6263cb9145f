"""A call of the client as a generator of steps. A blocking or an async transport performs them; all else is shared.

A generator yields `Send` and gets a `Response` or a `Failure`, or yields `Pause` and gets None. It returns the result
of the call. A `Call` has one deadline for all its requests, retries and pauses.
"""

import json
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from tidegauge.client.errors import (
    ApiError,
    ClientError,
    DeadlineError,
    InvalidAnswerError,
    NoAnswerError,
    RateLimitedError,
    Response,
    UnavailableError,
    error_of,
)
from tidegauge.client.tokens import Renewal
from tidegauge.client.values import Types, parsed, to_json

Answered = TypeVar("Answered")

API = "/api/v1"
UNCHANGED, UNAUTHORIZED = 304, 401
MAX_KEYS = 1_000  # of one request, until a server with another limit reports its own
LONGEST_PAUSE_SECONDS = 10.0
LARGEST_POWER = 16  # of two; limited so that 2.0 ** attempt cannot overflow, and the longest pause is reached by then

clock = time.monotonic
random = SystemRandom()


@dataclass(frozen=True)
class Request:
    """One request. body: the value to send as JSON. is_safe: whether it may be repeated if its answer was lost.

    media_type: the one of a successful answer.
    """

    method: str
    path: str
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_safe: bool = True
    media_type: str = "application/json"

    def expects(self, headers: Mapping[str, str]) -> bool:
        return headers.get("content-type", "").startswith(self.media_type)

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body, allow_nan=False).encode()


@dataclass(frozen=True)
class Send:
    """A step: send the request and read the whole answer. seconds: how long both may take together.

    silence: None: read the whole answer; else the answer is read while it arrives, and given up after this many seconds
    without a byte.
    """

    request: Request
    seconds: float
    silence: float | None = None


@dataclass(frozen=True)
class Opened:
    """A successful answer whose content has not been read yet. stream: the response object of the transport."""

    headers: Mapping[str, str]
    stream: httpx.Response


@dataclass(frozen=True)
class Pause:
    """A step: sleep."""

    seconds: float


@dataclass(frozen=True)
class Failure:
    """The outcome of a `Send` without an answer. was_sent: whether the server may have received the request."""

    error: Exception
    was_sent: bool


@dataclass(frozen=True)
class Renew:
    """A step: renew the token, unless another call has done so in the meantime."""

    token: Renewal


Outcome = Response | Opened | Failure
Steps = Generator[Send | Pause | Renew, Outcome | None, Answered]


@dataclass(frozen=True)
class Options:
    """timeout: seconds for a call with all its retries and pauses. retries: how often a request is sent again at most.

    first_pause: the most seconds before the first retry, doubled for each further one; each pause is random up to that.
    typed: whether values have the Python types of their columns; False: as in JSON.
    """

    timeout: float = 30.0
    retries: int = 4
    first_pause: float = 0.2
    typed: bool = True

    def pause(self, attempt: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait after a failed attempt. attempt: counted from 0.

        The pause is random, so that clients that failed at the same time do not retry at the same time.
        """
        longest = min(LONGEST_PAUSE_SECONDS, self.first_pause * 2.0 ** min(attempt, LARGEST_POWER))
        return (retry_after or 0.0) + random.uniform(0.0, longest)


@dataclass
class Server:
    """What a client has learned about its server: the limit of keys, and the types of states."""

    max_keys: int = MAX_KEYS
    types: dict[str, tuple[float, Types]] = field(default_factory=dict)


class Call:
    """The requests of one call. extra_seconds: added to the timeout of the options."""

    def __init__(
        self, options: Options, server: Server, token: Renewal | None = None, extra_seconds: float = 0.0
    ) -> None:
        self.options = options
        self.server = server
        self._token = token
        self._ends = clock() + options.timeout + extra_seconds

    def json(self, request: Request) -> Steps[Any]:
        """Send a request and return the document of its answer."""
        return parsed((yield from self.ask(request)).content)

    def ask(self, request: Request) -> Steps[Response]:
        """Send a request, with retries, and return its answer. Raises ClientError."""
        answer = yield from self._sent(request)
        assert isinstance(answer, Response)
        return answer

    def open(self, request: Request, silence: float) -> Steps[Opened]:
        """Do the same as `ask` for an answer that is read while it arrives."""
        answer = yield from self._sent(request, silence)
        assert isinstance(answer, Opened)
        return answer

    def _sent(self, request: Request, silence: float | None = None) -> Steps[Response | Opened]:
        attempt, is_renewed = 0, False
        while True:
            if self._token is not None and self._token.is_due:
                yield Renew(self._token)
            token = "" if self._token is None else self._token.text()
            outcome = yield Send(request, max(0.0, self._left()), silence)
            if isinstance(outcome, Opened):
                return outcome
            if isinstance(outcome, Response) and outcome.status < 400:
                _check(request, outcome)
                return outcome
            assert outcome is not None
            if token and not is_renewed and isinstance(outcome, Response) and outcome.status == UNAUTHORIZED:
                assert self._token is not None
                self._token.refused(token)
                is_renewed = True
                continue
            yield Pause(self._pause(request, outcome, attempt))
            attempt += 1

    def _pause(self, request: Request, outcome: Response | Failure, attempt: int) -> float:
        """Return how long to wait before the next attempt. Raises the error if there is none."""
        error = _error(outcome)
        cause = outcome.error if isinstance(outcome, Failure) else None
        if cause is not None and self._left() <= 0:
            raise DeadlineError(
                f"{request.method} {request.path}: no answer within the {self.options.timeout:g} s of the call"
            ) from cause
        pause = self.options.pause(attempt, error.retry_after if isinstance(error, ApiError) else None)
        if attempt >= self.options.retries or not _may_repeat(request, outcome, error) or pause >= self._left():
            raise error from cause
        return pause

    def _left(self) -> float:
        return self._ends - clock()


def _check(request: Request, response: Response) -> None:
    if response.status == UNCHANGED or (response.status < 300 and request.expects(response.headers)):
        return
    what = f"{request.method} {request.path}: the answer"
    if response.status >= 300:
        target = response.headers.get("location", "").partition("?")[0]
        # Not followed, because the API key would be sent to an address that nobody has configured.
        raise InvalidAnswerError(f"{what} is a redirect to {target!r}, which is not followed; use that address")
    found = response.headers.get("content-type")
    raise InvalidAnswerError(f"{what} has the type {found!r}, not {request.media_type!r}; is it Tidegauge's address?")


def _error(outcome: Response | Failure) -> ClientError:
    if isinstance(outcome, Response):
        return error_of(outcome)
    if isinstance(outcome.error, httpx.DecodingError):
        return InvalidAnswerError(f"the answer cannot be decompressed: {outcome.error}")
    return NoAnswerError(f"no answer: {type(outcome.error).__name__}: {outcome.error}")


def _may_repeat(request: Request, outcome: Response | Failure, error: ClientError) -> bool:
    if isinstance(error, RateLimitedError):
        return True
    if isinstance(outcome, Failure) and not outcome.was_sent:
        return True
    return request.is_safe and isinstance(error, UnavailableError | NoAnswerError | InvalidAnswerError)


def path(*parts: object) -> str:
    """Return the path of an API call, with each part percent-encoded."""
    return "/".join([API, *(quote(str(part), safe="") for part in parts)])


def in_json(value: Any) -> str:
    """Return a parameter as JSON text."""
    return json.dumps(to_json(value), allow_nan=False)
