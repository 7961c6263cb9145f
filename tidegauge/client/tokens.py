"""Short-lived tokens: made with an API key for a program that must not have the key, and renewed before they expire."""

import json
import logging
import time
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidegauge.client.errors import InvalidArgumentError

SHARE_LEFT = 0.2  # a token is renewed when this share of its lifetime is left
RETRY_SECONDS = 1.0  # until the next try after a failed renewal, while the token is still valid

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Token:
    """A short-lived token that can only read. text: send it instead of an API key. states, key_prefix: empty: all.

    rate: requests per minute. burst: requests at once. None: the limits of the API key. sub: the user it is for.
    """

    text: str = field(repr=False)
    expires_at: datetime
    states: Sequence[str]
    key_prefix: Sequence[Any]
    rate: int | None
    burst: int | None
    sub: str


Renew = Callable[[], Token | str]
AsyncRenew = Callable[[], Awaitable[Token | str]]


class Renewal:
    """The token of a client, renewed before it expires. make: the caller's function, or coroutine function, for it.

    Its lifetime is counted from when it was requested, because the clocks of client and server may differ.
    """

    def __init__(self, make: Callable[[], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.make = make
        self._clock = clock
        self._text = ""
        self._renew_at = self._ends_at = clock()

    def text(self) -> str:
        return self._text

    @property
    def is_due(self) -> bool:
        return self._clock() >= self._renew_at

    def take(self, token: Token | str, asked_at: float) -> None:
        text = token.text if isinstance(token, Token) else token
        seconds = _lifetime(text)
        self._text = text
        self._ends_at = asked_at + seconds
        self._renew_at = self._ends_at - SHARE_LEFT * seconds

    def refused(self, text: str) -> None:
        """Make the token due for renewal although it has not expired, because its API key may have a new secret."""
        if text == self._text:
            self._renew_at = self._ends_at = self._clock()

    def failed(self, error: Exception) -> None:
        """Continue with the token while it is valid. Raises the error if it has expired."""
        if self._clock() >= self._ends_at:
            raise error
        logger.warning("the token could not be renewed, and is used until it expires", exc_info=error)
        self._renew_at = self._clock() + RETRY_SECONDS


def _lifetime(text: str) -> float:
    """Return the whole lifetime of a token in seconds."""
    try:
        payload = text.split(".")[1]
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"] - claims["iat"])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # The message leaves out the text, because it may be a secret.
        raise InvalidArgumentError("`renew` did not return a token of Tidegauge; return a Token, or its text") from None
