"""Log lines: one per event, JSON for programs or text for a terminal, without secrets.

A request binds its id, a task its run, a batch its pipeline, txid and attempt (through structlog's contextvars). Every
line written meanwhile has these fields, whether one of our modules or a library writes it.
"""

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

import orjson

# The logger of the one line per request; see middleware.py.
REQUESTS = "tidegauge.requests"

# Request ids that are accepted from clients, so that a request can be followed from system to system.
REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)

# The attributes of every record, and the fields of every line; others come from `extra`.
OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "at",
    "level",
    "event",
    "logger",
    "pid",
}

# A line without any of these contains no secret, so most lines need no search for SECRETS.
SECRET_HINTS = ("tmk_", "://", "assword", "eyJ", "whsec_")
SECRETS = (
    (re.compile(r"(tmk_[0-9a-f]{8}_)[\w-]+"), r"\1***"),  # an API key; its prefix is not secret
    (re.compile(r"(whsec_)[\w+/=]+"), r"\1***"),  # the secret that signs a webhook's messages
    (re.compile(r"(eyJ[\w-]+\.[\w-]+\.)[\w-]+"), r"\1***"),  # a token, which is useless without its signature
    (re.compile(r"(://[^/\s:@\"']*:)[^\s\"'/]+@"), r"\1***@"),  # a URL with a password
    (re.compile(r"(password\"?'?\s*[=:]\s*\"?'?)[^\s\"',}]+", re.IGNORECASE), r"\1***"),  # conninfo strings and reprs
)

# Values of `extra` of other types are left out, because they are objects of libraries, such as a request with its path
# or a task with its arguments.
SIMPLE = (str, int, float, type(None))

Fields = dict[str, Any]


def configuration(level: str, requests_level: str) -> dict[str, Any]:
    """Return settings.LOGGING. requests_level: the level of the line per request."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "propagate": True},
            # 4xx are in the line per request, which leaves out the path because it may contain keys.
            "django.request": {"level": "ERROR"},
            # At DEBUG it writes statements with their parameters, such as session ids and digests.
            "django.db.backends": {"level": "INFO"},
            # Below WARNING they write URLs, and the path of a webhook's URL may be a secret.
            "httpx": {"level": "WARNING"},
            "httpcore": {"level": "WARNING"},
            "_granian": {"handlers": [], "propagate": True},
            REQUESTS: {"level": requests_level},
        },
    }


def formatter() -> logging.Formatter:
    """Return the formatter of LOG_FORMAT; if unset, text on a terminal and JSON elsewhere."""
    name = os.environ.get("LOG_FORMAT") or ("text" if sys.stderr.isatty() else "json")
    if name not in FORMATS:
        raise ValueError(f"LOG_FORMAT must be {' or '.join(FORMATS)}, got {name!r}")
    return LineFormatter(FORMATS[name])


class LineFormatter(logging.Formatter):
    """Renders the fields of a record as a line, and removes secrets from it."""

    def __init__(self, render: Callable[[Fields], str]) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        # Imported here, because structlog takes 0.15 s of CPU, and a command with wrong arguments logs nothing.
        from structlog.contextvars import get_contextvars

        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {"at": at, "level": record.levelname.lower(), "event": record.getMessage()}
        fields |= get_contextvars() | _extra(record) | {"logger": record.name, "pid": record.process}
        if record.stack_info:
            fields["stack_info"] = record.stack_info
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return redacted(self._render(fields))


def _extra(record: logging.LogRecord) -> Fields:
    attributes = vars(record).items()
    return {name: value for name, value in attributes if name not in OWN_FIELDS and isinstance(value, SIMPLE)}


def _as_json(fields: Fields) -> str:
    try:
        return orjson.dumps(fields, default=str).decode()
    except TypeError:
        # Because orjson refuses half a surrogate pair, and numbers of more than 64 bits.
        return json.dumps(fields, default=str)


def _as_text(fields: Fields) -> str:
    trace = fields.pop("exception", "")
    head = "{at} {level:<8} {logger}: {event}".format(**{**fields, "event": _on_one_line(fields["event"])})
    rest = {name: value for name, value in fields.items() if name not in ("at", "level", "logger", "event", "pid")}
    return head + _pairs(rest) + (f"\n{trace}" if trace else "")


FORMATS = {"json": _as_json, "text": _as_text}


def _pairs(values: Mapping[str, Any]) -> str:
    return "".join(f" {name}={_quoted(value)}" for name, value in values.items())


def _quoted(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() and not any(sign in text for sign in ' "=') and text else json.dumps(text)


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def redacted(line: str) -> str:
    """Return a line with `***` in place of API keys' secrets, tokens' signatures and passwords."""
    if any(hint in line for hint in SECRET_HINTS):
        for pattern, replacement in SECRETS:
            line = pattern.sub(replacement, line)
    return line


def request_id(given: str) -> str:
    """Return the client's `X-Request-ID` if it is valid, otherwise a generated one."""
    return given if REQUEST_ID.fullmatch(given) else token_hex(12)
