"""The format of log lines, JSON or text, and secrets in them."""

import logging
import sys
from datetime import UTC, datetime

import orjson
import pytest
from structlog.contextvars import bound_contextvars, clear_contextvars

from tidegauge.webapp.core import logs


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


def test_json_has_the_time_in_utc_and_the_bound_fields(formatted):
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


def test_text_is_one_line(formatted):
    with bound_contextvars(pipeline="flights"):
        line = formatted("text", "ready", extra={"reason": "a b", "empty": "", "txid": 7})

    assert line == ('2026-11-20T12:30:15.250Z warning  webapp.x: ready pipeline=flights reason="a b" empty="" txid=7')


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_message_cannot_add_a_second_line(formatted, form):
    line = formatted(form, "asked for %s", "a\n2026-11-20 error forged", extra={"state": "b\nc", "key": "d\u2028e"})

    assert line.count("\n") == 0


def test_half_a_surrogate_pair_loses_no_line(formatted):
    assert orjson.loads(formatted("json", "asked for %s", "\ud83d", extra={"big": 2**70}).replace("\\ud83d", "?"))


def test_objects_attached_by_libraries_are_left_out(formatted):
    line = orjson.loads(formatted("json", "x", extra={"request": object(), "status_code": 500}))

    assert "request" not in line
    assert line["status_code"] == 500


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_is_included(formatted, form):
    try:
        raise ValueError("the reason")
    except ValueError:
        line = formatted(form, "failed", exc_info=sys.exc_info())

    assert "ValueError: the reason" in line


def test_json_is_the_default_without_a_terminal(monkeypatch):
    monkeypatch.delenv("LOG_FORMAT", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)

    line = logs.formatter().format(logging.makeLogRecord({"msg": "x", "levelname": "INFO"}))

    assert orjson.loads(line)["event"] == "x"


def test_an_unknown_format_is_refused(monkeypatch):
    monkeypatch.setenv("LOG_FORMAT", "yaml")

    with pytest.raises(ValueError, match="LOG_FORMAT must be json or text, got 'yaml'"):
        logs.formatter()


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("key tmk_0123abcd_aB-_9xyz was used", "key tmk_0123abcd_*** was used"),
        ("token eyJhbGciOiJI.eyJzdWIi.aB-_9xyz was used", "token eyJhbGciOiJI.eyJzdWIi.*** was used"),
        ("redis://:pass@host:6379/0", "redis://:***@host:6379/0"),
        ("postgresql://me:p@ss:w@host/db", "postgresql://me:***@host/db"),
        ('{"url":"amqp://me:pass@host","x":1}', '{"url":"amqp://me:***@host","x":1}'),
        ("host=db password=pass dbname=x", "host=db password=*** dbname=x"),
        ("{'password': 'pass', 'user': 'me'}", "{'password': '***', 'user': 'me'}"),
        ("see https://docs.example.org:8000/a?b=c@d", "see https://docs.example.org:8000/a?b=c@d"),
        ("secret whsec_aB+/9xyz== of a webhook", "secret whsec_*** of a webhook"),
        ("tmk_short and nothing else", "tmk_short and nothing else"),
    ],
)
def test_secrets_are_replaced_and_the_rest_stays(line, safe):
    assert logs.redacted(line) == safe
