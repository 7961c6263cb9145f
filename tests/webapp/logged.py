"""Fixtures of what the loggers of a web process have written."""

import logging
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import orjson
import pytest

from tidegauge.webapp.core import logs


@pytest.fixture
def written(monkeypatch) -> Iterator[Callable[[], str]]:
    """What all loggers have written during the test, from DEBUG up, in JSON lines."""
    monkeypatch.setenv("LOG_FORMAT", "json")
    text = StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logs.formatter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text.getvalue
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
def lines(written) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [orjson.loads(line) for line in written().splitlines()]


@pytest.fixture
def request_lines(lines) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [line for line in lines() if line["logger"] == logs.REQUESTS]
