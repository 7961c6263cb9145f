"""Secrets out of log lines: the last thing that happens to a line, whoever wrote it and however it got there."""

import json
import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

import orjson
from structlog.contextvars import merge_contextvars
from structlog.processors import ExceptionRenderer
from structlog.stdlib import ProcessorFormatter

# What must be in a line before it is worth a closer look; most lines hold none of these.
HINTS = ("tmk_", "://", "assword")

FORMS = (
    (re.compile(r"(tmk_[0-9a-f]{8}_)[\w-]+"), r"\1***"),  # an API key; the prefix names it and opens nothing
    (re.compile(r"(://[^/\s:@\"']*:)[^\s\"'/]+@"), r"\1***@"),  # a URL with a password
    (re.compile(r"(password\"?'?\s*[=:]\s*\"?'?)[^\s\"',}]+", re.IGNORECASE), r"\1***"),  # libpq's words, and reprs
)


def redacted(line: str) -> str:
    """Return a line with `***` in place of API keys' secrets and of passwords."""
    if any(hint in line for hint in HINTS):
        for form, instead in FORMS:
            line = form.sub(instead, line)
    return line


# Whose id a request bears: the client's own `X-Request-ID` where that is a sane one, so that it can be followed from
# system to system; else one that is made here.


SANE = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def request_id(asked: str) -> str:
    return asked if SANE.fullmatch(asked) else token_hex(12)


# Log lines: one per event, JSON for machines or text for a terminal, with whatever is bound to the work at hand.
#
# A request binds its id, a task its run, a batch its pipeline, txid and attempt (all through structlog's
# contextvars), and every line that is written meanwhile carries them, from our own modules and from libraries alike.


FORMATS = ("json", "text")

# The one line per request; see middleware.py.
REQUESTS = "tidemark.requests"

# What a record has before anybody adds to it.
PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

Event = MutableMapping[str, Any]


def configuration(level: str, requests_level: str) -> dict[str, Any]:
    """Return Django's LOGGING. requests_level: of the line per request."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "propagate": True},
            # What a client did wrong is in the request's own line, without the path that may hold keys.
            "django.request": {"level": "ERROR"},
            # With DEBUG=1 it would write statements with their parameters, sessions and digests among them.
            "django.db.backends": {"level": "INFO"},
            "_granian": {"handlers": [], "propagate": True},
            REQUESTS: {"level": requests_level},
        },
    }


def formatter() -> logging.Formatter:
    """Return the formatter that LOG_FORMAT asks for; unset: text on a terminal, JSON elsewhere."""
    asked = os.environ.get("LOG_FORMAT") or ("text" if sys.stderr.isatty() else "json")
    if asked not in FORMATS:
        raise ValueError(f"LOG_FORMAT must be {' or '.join(FORMATS)}, got {asked!r}")
    render = _as_json if asked == "json" else _as_text
    return ProcessorFormatter(
        foreign_pre_chain=[merge_contextvars, _described],
        processors=[_traced, ProcessorFormatter.remove_processors_meta, render, _redacted],
    )


def _described(logger: Any, method: str, event: Event) -> Event:
    """Add who says it, when and how loudly, and the plain values of the record's `extra`."""
    record: logging.LogRecord = event["_record"]
    for name, value in vars(record).items():
        # Anything else is a library's: a request with its path, a task with its arguments.
        if name not in PLAIN and isinstance(value, str | int | float | None):
            event[name] = value
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    event.update(at=at, level=record.levelname.lower(), logger=record.name, pid=record.process)
    return event


_traced = ExceptionRenderer()


def _as_json(logger: Any, method: str, event: Event) -> str:
    first = {"at": event.pop("at"), "level": event.pop("level"), "event": event.pop("event")}
    line = {**first, **event}
    try:
        return orjson.dumps(line, default=str).decode()
    except TypeError:
        return json.dumps(line, default=str)  # half a surrogate pair, or a number of more than 64 bits


def _as_text(logger: Any, method: str, event: Event) -> str:
    trace = event.pop("exception", "")
    head = "{at} {level:<8} {logger}: {event}".format(**{**event, "event": _on_one_line(event["event"])})
    rest = {name: value for name, value in event.items() if name not in ("at", "level", "logger", "event", "pid")}
    return head + _pairs(rest) + (f"\n{trace}" if trace else "")


def _pairs(values: Mapping[str, Any]) -> str:
    return "".join(f" {name}={_quoted(value)}" for name, value in values.items())


def _quoted(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() and not any(sign in text for sign in ' "=') and text else json.dumps(text)


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _redacted(logger: Any, method: str, line: Any) -> Any:
    return redacted(line)
