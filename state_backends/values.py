"""Values as a store keeps them: JSON text that every backend can hold and give back as it was."""

import json
import re
from typing import Any

from state_backends.errors import ValueShapeError
from state_backends.spec import StateSpec
from state_backends.versioned import Key

# An escaped NUL, which PostgreSQL's jsonb cannot hold; not so a backslash followed by `u0000`.
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def json_text(spec: StateSpec, key: Key, value: Any) -> str:
    """Return the value as JSON. Raises ValueShapeError, naming the key, where JSON or a store cannot hold it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _unfit(spec, key, str(error)) from error
    if NUL.search(text):
        raise _unfit(spec, key, "it holds a NUL character")
    return text


def _unfit(spec: StateSpec, key: Key, reason: str) -> ValueShapeError:
    return ValueShapeError(
        f"state {spec.name!r}: the value of key {key!r} cannot be stored as JSON: {reason}; store numbers, texts, "
        "lists and objects"
    )
