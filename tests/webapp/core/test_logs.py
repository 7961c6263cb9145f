"""The form of a line: JSON that anything can read, or text for people."""

import logging
import sys
from datetime import UTC, datetime

import orjson
import pytest
from structlog.contextvars import bound_contextvars, clear_contextvars

from webapp.core import logs


@pytest.fixture
def formatted(monkeypatch):
    """Format a record as LOG_FORMAT says; `extra` as given to the logger."""
    clear_contextvars()

    def line(form, message, *args, extra=None, exc_info=None):
        monkeypatch.setenv("LOG_FORMAT", form)
        record = logging.getLogger("webapp.x").makeRecord(
            "webapp.x", logging.WARNING, __file__, 1, message, args, exc_info, extra=extra
        )
        record.created = datetime(2026, 11, 20, 12, 30, 15, 250_000, UTC).timestamp()
        return logs.formatter().format(record)

    return line


def test_json_has_a_time_in_utc_and_what_is_bound(formatted):
    with bound_contextvars(pipeline="flights", txid=7):
        line = orjson.loads(formatted("json", "%s files", 3, extra={"seconds": 1.5}))

    pid = line.pop("pid")
    assert isinstance(pid, int)
    assert line == {
        "at": "2026-11-20T12:30:15.250Z",
        "level": "warning",
        "event": "3 files",
        "logger": "webapp.x",
        "pipeline": "flights",
        "txid": 7,
        "seconds": 1.5,
    }


def test_text_is_one_line_for_people(formatted):
    with bound_contextvars(pipeline="flights"):
        line = formatted("text", "ready", extra={"reason": "a b", "empty": "", "txid": 7})

    assert line == ('2026-11-20T12:30:15.250Z warning  webapp.x: ready pipeline=flights reason="a b" empty="" txid=7')


@pytest.mark.parametrize("form", ["json", "text"])
def test_nobody_forges_a_second_line(formatted, form):
    line = formatted(form, "asked for %s", "a\n2026-11-20 error forged", extra={"state": "b\nc", "key": "d\u2028e"})

    assert line.count("\n") == 0


def test_half_a_character_is_no_reason_to_lose_a_line(formatted):
    assert orjson.loads(formatted("json", "asked for %s", "\ud83d", extra={"big": 2**70}).replace("\\ud83d", "?"))


def test_what_libraries_attach_is_left_out(formatted):
    line = orjson.loads(formatted("json", "x", extra={"request": object(), "status_code": 500}))

    assert "request" not in line
    assert line["status_code"] == 500


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_trace_comes_along(formatted, form):
    try:
        raise ValueError("the reason")
    except ValueError:
        line = formatted(form, "failed", exc_info=sys.exc_info())

    assert "ValueError: the reason" in line


def test_json_is_the_default_where_nobody_watches(monkeypatch):
    monkeypatch.delenv("LOG_FORMAT", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)

    line = logs.formatter().format(logging.makeLogRecord({"msg": "x", "levelname": "INFO"}))

    assert orjson.loads(line)["event"] == "x"


def test_a_format_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setenv("LOG_FORMAT", "yaml")

    with pytest.raises(ValueError, match="LOG_FORMAT must be json or text, got 'yaml'"):
        logs.formatter()
