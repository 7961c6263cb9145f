"""Key-value stores over every backend, with logs of both sorts."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import psycopg
import pytest

from state_backends import StateSpec
from state_backends.key_value.log import KeyValueLog, MemoryKeyValueLog, Message, PostgresKeyValueLog
from tests.contracts.backends import BACKENDS, NewBacking

SETTINGS = StateSpec("settings", key={"name": "text"}, value="jsonb", kind="non_transactional")
AT = datetime(2013, 1, 1, tzinfo=UTC)

NewLog = Callable[..., KeyValueLog]

# A changelog needs txids, and the rows of a key-value store have none.
KEEPERS = [name for name in BACKENDS if not name.startswith("logged_")]


@pytest.fixture(params=KEEPERS)
def new_backing(request: pytest.FixtureRequest, conn: psycopg.Connection, fresh) -> NewBacking:
    """Makes an empty backing map for a spec, on every backend that can hold a store in turn."""
    make = BACKENDS[request.param](conn)
    return lambda spec: make(fresh(spec))


@pytest.fixture(params=["memory", "postgres"])
def new_log(request: pytest.FixtureRequest, conn: psycopg.Connection) -> NewLog:
    """Makes the log of a spec with messages in it, of both sorts in turn."""

    def new_log(spec: StateSpec, messages: Iterable[Message] = ()) -> KeyValueLog:
        log = MemoryKeyValueLog() if request.param == "memory" else PostgresKeyValueLog(conn, spec)
        log.append(list(messages))
        return log

    return new_log
