import psycopg
import pytest
from django.db import connection, transaction

from tidegauge.webapp.catalog import readers


def backend(conn):
    return conn.execute("SELECT pg_backend_pid()").fetchone()[0]


def test_a_connection_that_died_is_replaced_within_the_same_question(transactional_db):
    first = readers.read(backend)
    with readers.own_connection() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [first])

    assert readers.read(backend) not in (None, first)


def test_a_question_that_fails_on_a_living_connection_is_not_asked_again(transactional_db):
    asked = []

    def give_up(conn):
        asked.append(conn)
        raise psycopg.OperationalError("the statement timed out")

    with pytest.raises(psycopg.OperationalError):
        readers.read(give_up)

    assert len(asked) == 1


def test_a_transaction_is_not_carried_over_to_another_connection(transactional_db):
    @transaction.atomic
    def lose_the_connection_and_ask_again():
        with readers.own_connection() as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [readers.read(backend)])
        readers.read(backend)

    with pytest.raises(psycopg.OperationalError):
        lose_the_connection_and_ask_again()


def test_statements_are_planned_once(transactional_db):
    for _ in range(6):
        readers.read(backend)

    prepared = readers.connection().execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert prepared == (1,)


def test_an_own_connection_is_in_autocommit_mode_at_the_same_database(db):
    with readers.own_connection() as conn:
        assert conn.autocommit
        assert conn.info.dbname == connection.settings_dict["NAME"]
