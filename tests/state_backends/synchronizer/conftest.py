"""Logs under fresh names, and clients of them, each on a connection of its own."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.state_backends.synchronizer.updates import apply
from tidegauge.state_backends.synchronizer.revisioned_stream import RevisionedStream
from tidegauge.state_backends.synchronizer.synchronizer import StateSynchronizer


@pytest.fixture
def name() -> str:
    """The name of a log that no other test has used."""
    return f"log_{uuid4().hex[:12]}"


@pytest.fixture
def new_client(connect, name) -> Callable[..., StateSynchronizer]:
    def new_client(**options: Any) -> StateSynchronizer:
        return StateSynchronizer(connect(), name, options.pop("apply", apply), **options)

    return new_client


@pytest.fixture
def stream(conn, name) -> RevisionedStream:
    return RevisionedStream(conn, name)
