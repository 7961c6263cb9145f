"""Short-lived tokens: made with an API key for a program that must not have it, and renewed before they end."""

import json
import logging
import time
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidegauge.client.errors import InvalidArgumentError

SHARE_LEFT = 0.2  # of a token's lifetime, when it is renewed
RETRY_SECONDS = 1.0  # after a renewal that failed, while the token still lasts

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Token:
    """A short-lived token, which reads. text: send it in place of an API key. states, key_prefix: empty: all.

    rate: requests per minute, burst of them at once; None: as the API key has them. sub: the user it is for.
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
    """The token of a client, which has another one made before it ends. make: the caller's function, or coroutine.

    How long a token lasts is measured from when it came, so the clocks of client and server may differ.
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
        """Have another token made, although this one should still last: its API key may have got another secret."""
        if text == self._text:
            self._renew_at = self._ends_at = self._clock()

    def failed(self, error: Exception) -> None:
        """Go on with the token while it lasts. Raises the error if it does not."""
        if self._clock() >= self._ends_at:
            raise error
        logger.warning("the token could not be renewed, and is used until it ends", exc_info=error)
        self._renew_at = self._clock() + RETRY_SECONDS


def _lifetime(text: str) -> float:
    """Return how many seconds a token is valid in all."""
    try:
        payload = text.split(".")[1]
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"] - claims["iat"])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # Without the text, which may be a secret.
        raise InvalidArgumentError(
            "what `renew` returned is no token of Tidegauge; return a Token, or its text"
        ) from None
