"""What both logs promise: order, positions, one writer, and keys of every type."""

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from tests.contracts.backing_map import keys_of_every_type
from tests.state_backends.key_value.conftest import AT, SETTINGS
from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import FencedError
from tidegauge.state_backends.key_value.log import PAGE_MESSAGES, Message, PostgresKeyValueLog


def message(name, text="1"):
    return Message((name,), text, AT)


A, B, C = message("a"), message("b"), message("c", None)


@pytest.fixture(params=["memory", "postgres"])
def backend(request):
    """Where the log is."""
    return request.param


@pytest.fixture
def spec(fresh):
    return fresh(SETTINGS)


def test_messages_come_back_in_order_with_their_positions(new_log, spec):
    log = new_log(spec, [A, B])
    log.append([C])
    log.append([])

    assert list(log.read()) == [A, B, C]
    assert list(log.read(after=1)) == [B, C]
    assert list(log.read(after=1, upto=2)) == [B]
    assert list(log.read(upto=0)) == []
    assert log.end() == 3


def test_an_empty_log_ends_at_position_0(new_log, spec):
    assert new_log(spec).end() == 0
    assert list(new_log(spec).read()) == []


def test_a_log_longer_than_a_page_is_read_whole(new_log, spec):
    messages = [message(str(number), str(number)) for number in range(2 * PAGE_MESSAGES + 1)]

    assert list(new_log(spec, messages).read()) == messages


def test_appending_while_reading_is_not_read(new_log, spec):
    log = new_log(spec, [A, B])

    read = []
    for found in log.read():
        log.append([found])
        read.append(found)

    assert read == [A, B]
    assert log.end() == 4


def test_keys_of_every_type_come_back_as_they_were(new_log, fresh):
    columns, given, stored = keys_of_every_type()
    spec = fresh(StateSpec("typed", key=columns, value="jsonb", kind="non_transactional"))
    messages = [Message(spec.check_key(key), "1", AT) for key in given]

    assert [found.key for found in new_log(spec, messages).read()] == stored


def test_a_nan_in_a_key_comes_back_as_the_same_object(new_log, fresh):
    spec = fresh(StateSpec("nans", key={"x": "double precision"}, value="jsonb", kind="non_transactional"))
    key = spec.check_key((float("nan"),))

    assert [found.key for found in new_log(spec, [Message(key, "1", AT)]).read()] == [key]


def test_a_value_comes_back_as_it_was_written(new_log, spec):
    text = '{"b": -0.0, "a": 1e22, "text": "π\\n"}'
    written = Message(("a",), text, AT + timedelta(microseconds=1))

    assert list(new_log(spec, [written]).read()) == [written]


def test_compaction_keeps_the_newest_message_of_each_key_as_of_a_position(new_log, spec):
    newer = replace(A, text="2")
    log = new_log(spec, [A, B, newer, C, replace(A, text="3"), B])

    assert log.compact(upto=4) == 1
    assert list(log.read()) == [B, newer, C, replace(A, text="3"), B]
    assert log.compact(upto=4) == 0
    assert log.compact(upto=6) == 2
    log.append([A])
    assert list(log.read(after=4)) == [replace(A, text="3"), B, A]
    assert log.end() == 7


class TestPostgres:
    def test_a_reopened_log_appends_after_its_end(self, conn, spec):
        PostgresKeyValueLog(conn, spec).append([A, B])

        log = PostgresKeyValueLog(conn, spec)
        log.append([C])

        assert list(log.read()) == [A, B, C]

    def test_the_logs_of_two_stores_are_independent(self, conn, fresh):
        for messages in ([A], [B, C]):
            log = PostgresKeyValueLog(conn, fresh(SETTINGS))
            log.append(messages)
            log.compact(upto=1)
            assert list(log.read()) == messages

    def test_an_outdated_writer_is_refused_and_writes_nothing(self, conn, spec):
        left = PostgresKeyValueLog(conn, spec)
        PostgresKeyValueLog(conn, spec).append([A])

        with pytest.raises(FencedError) as caught:
            left.append([B, C])

        assert str(caught.value) == (
            f"store {spec.name!r}: another writer has appended to its log after position 0; "
            "only one store may write to a log, so stop this one"
        )
        assert list(PostgresKeyValueLog(conn, spec).read()) == [A]

    def test_a_log_is_read_over_a_connection_that_returns_json_as_text(self, conn, installed_url, spec):
        PostgresKeyValueLog(conn, spec).append([A])
        with psycopg.connect(installed_url) as django:
            psycopg.types.json.set_json_loads(lambda text: text, django)

            assert list(PostgresKeyValueLog(django, spec).read()) == [A]
