"""The `Idempotency-Key` of a request, and the mark of an answer to one that was carried out before."""

import re
from collections.abc import Callable

from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.webapp.accounts.permissions import api_key
from tidegauge.webapp.api.rendering import digest
from tidegauge.webapp.maintenance.idempotency import IdempotentRequest, carry_out_once

WELL_FORMED = re.compile("[ -~]{1,255}")


def idempotent(request: Request) -> IdempotentRequest | None:
    """Return the request by its key; None if it has none. Call it before `request.data`, because it needs the bytes.

    Raises ParseError for a malformed key.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if WELL_FORMED.fullmatch(key) is None:
        raise ParseError("Idempotency-Key must be 1 to 255 printable characters of ASCII, such as a UUID")
    own = api_key(request)
    caller = f"user {request.user.pk}" if own is None else f"key {own.pk}"
    return IdempotentRequest(caller, key, digest(request.path.encode(), request.body))


def once(sent: IdempotentRequest | None, act: Callable[[], object], answer: Callable[[], Response]) -> Response:
    """Carry out an act unless the same request has done so, and answer with what is there now.

    Raises IdempotencyKeyReusedError, and what the act does.
    """
    is_repeated = carry_out_once(sent, act)
    return marked(answer(), is_repeated=is_repeated)


def marked(response: Response, *, is_repeated: bool) -> Response:
    if is_repeated:
        response.headers["Idempotent-Replayed"] = "true"
    return response
