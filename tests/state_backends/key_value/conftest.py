"""Key-value stores over each backend, with a log beside it."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import pytest

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.key_value.log import KeyValueLog, MemoryKeyValueLog, Message, PostgresKeyValueLog

SETTINGS = StateSpec("settings", key={"name": "text"}, value="jsonb", kind="non_transactional")
AT = datetime(2013, 1, 1, tzinfo=UTC)

NewLog = Callable[..., KeyValueLog]

# Where the log is: beside its rows where they are in PostgreSQL, and apart from them where they are in Redis.
LOG_OF = {"memory": "memory", "postgres": "postgres", "redis": "postgres"}


@pytest.fixture(params=LOG_OF)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend in turn; `new_backing` makes maps on it."""
    return request.param


@pytest.fixture
def new_log(backend: str, request: pytest.FixtureRequest) -> NewLog:
    """Makes the log of a spec with messages in it."""
    conn = request.getfixturevalue("conn") if LOG_OF[backend] == "postgres" else None

    def new_log(spec: StateSpec, messages: Iterable[Message] = ()) -> KeyValueLog:
        log = MemoryKeyValueLog() if conn is None else PostgresKeyValueLog(conn, spec)
        log.append(list(messages))
        return log

    return new_log
