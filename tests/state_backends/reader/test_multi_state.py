"""Several states of a pipeline at one batch: tables in one statement, a state in Redis beside them."""

import threading
import uuid
from dataclasses import replace

import psycopg
import pytest

from tests.state_backends.feed import views
from tidegauge.state_backends import Count, Max, StateReader, StateSpec, state_reader
from tidegauge.state_backends.errors import (
    KeyShapeError,
    MovedOnError,
    NotCommittedError,
    OutOfReachError,
    SpecError,
    UnknownStateError,
)
from tidegauge.state_backends.reader.multi_state import StateLookup, at_one_batch

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
TOTALS = StateSpec("totals", measures={"n": Count(), "top": Max("n", type="bigint")})


@pytest.fixture
def feed(new_feed, fresh):
    """A feed of two states in tables."""
    return new_feed(fresh(VIEWS), fresh(TOTALS))


@pytest.fixture
def questions(feed, conn):
    one, two = (StateReader(conn, spec) for spec in feed.specs)
    return [
        StateLookup(one, [("a",), ("nope",)]),
        StateLookup(two, [()], measures=["n"]),
        StateLookup(one, [("a",), ("b",)], combine=True),
        StateLookup(one, []),
    ]


def values(answers):
    return [[each["value"] for each in answer.parsed()] for answer in answers]


def add(feed, n=1):
    return feed.run(views(("a", n), ("b", n)), [{"n": n, "top": n}])


class Statements:
    """A connection that counts what goes through it."""

    def __init__(self, conn):
        self._conn, self.count = conn, 0

    def execute(self, *arguments):
        self.count += 1
        return self._conn.execute(*arguments)


class TestTables:
    def test_each_question_is_answered_as_its_reader_would_in_the_order_asked(self, feed, questions, conn):
        add(feed)
        batch = add(feed)

        answers = at_one_batch(conn, questions)

        assert values(answers) == [[{"n": 2}, None], [{"n": 2}], [{"n": 4}], []]
        assert {(each.txid, each.attempt, each.batch_time) for each in answers} == {(2, 1, batch.batch_time)}
        for question, answer in zip(questions, answers, strict=True):
            ask = question.reader.combine if question.combine else question.reader.multi_get
            assert answer == ask(question.keys, question.measures)

    def test_they_are_one_statement_however_many_there_are(self, feed, questions, conn):
        add(feed)

        answers = at_one_batch(counted := Statements(conn), questions * 8)

        assert (len(answers), counted.count) == (32, 1)

    @pytest.mark.parametrize("changelog", [True, False])
    def test_an_earlier_batch_is_answered_for_all_of_them(self, new_feed, fresh, conn, changelog):
        feed = new_feed(*(fresh(replace(spec, changelog=changelog)) for spec in (VIEWS, TOTALS)))
        add(feed)
        add(feed)
        one, two = (StateReader(conn, spec) for spec in feed.specs)

        answers = at_one_batch(conn, [StateLookup(one, [("a",)]), StateLookup(two, [()], combine=True)], at_txid=1)

        assert values(answers) == [[{"n": 1}], [{"n": 1, "top": 1}]]
        assert {each.txid for each in answers} == {1}
        with pytest.raises(NotCommittedError):
            at_one_batch(conn, [StateLookup(one, [("a",)])], at_txid=3)
        if not changelog:
            add(feed)
            with pytest.raises(OutOfReachError):
                at_one_batch(conn, [StateLookup(two, [()]), StateLookup(one, [("a",)])], at_txid=1)

    def test_they_never_differ_while_batches_are_committed(self, feed, connect):
        """Every batch adds the same to both states, one after the other."""
        conn, done, errors = connect(), threading.Event(), []
        one, two = (StateReader(conn, spec) for spec in feed.specs)
        add(feed)

        def write():
            try:
                for _ in range(60):
                    add(feed)
            except Exception as error:
                errors.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=write)
        thread.start()
        txids = set()
        while not done.is_set():
            left, right = at_one_batch(conn, [StateLookup(one, [("a",)]), StateLookup(two, [()], ["n"])])
            assert (left.txid, left.parsed()[0]["value"]) == (right.txid, right.parsed()[0]["value"])
            txids.add(left.txid)
        thread.join()

        assert errors == []
        assert len(txids) > 5

    def test_states_of_two_pipelines_are_refused_by_name(self, feed, new_feed, fresh, conn):
        other = new_feed(fresh(VIEWS))
        asked = [StateLookup(StateReader(conn, spec), []) for spec in [feed.specs[0], *other.specs]]

        with pytest.raises(SpecError) as caught:
            at_one_batch(conn, asked)

        assert str(caught.value) == (
            f"state {feed.specs[0].name!r} is of pipeline {feed.pipeline!r} and state {other.specs[0].name!r} of "
            f"pipeline {other.pipeline!r}, and two pipelines have no batch in common; ask for states of one pipeline"
        )

    def test_a_state_that_nobody_feeds_is_refused(self, feed, questions, conn, fresh):
        unknown = fresh(VIEWS)

        with pytest.raises(UnknownStateError, match=f"state '{unknown.name}' is not registered"):
            at_one_batch(conn, [*questions, StateLookup(StateReader(conn, unknown), [])])

    @pytest.mark.parametrize(
        ("wrong", "error"),
        [
            ({"keys": [(7,)]}, KeyShapeError),
            ({"keys": [], "measures": ["x"]}, SpecError),
            ({"keys": [("a",)]}, NotCommittedError),
        ],
    )
    def test_the_connection_is_left_as_it_was_found_after_an_error_too(self, feed, questions, conn, wrong, error):
        add(feed)
        with pytest.raises(error):
            at_one_batch(conn, [*questions, StateLookup(questions[0].reader, **wrong)], at_txid=9)

        assert conn.autocommit
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with conn.transaction():
            assert len(at_one_batch(conn, questions)) == 4
            assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS

    def test_nothing_asked_is_nothing_answered(self, conn, feed):
        assert at_one_batch(conn, []) == []


@pytest.fixture
def beside(twins):
    """A feed of a state in a table and its twin in Redis, both with a question."""

    def beside(**declared):
        feed = twins(VIEWS, **declared)
        return feed, [StateLookup(reader, [("a",)]) for reader in feed.readers()]

    return beside


class TestBesideRedis:
    def row(self, n=1):
        return {"page": "a", "n": n}

    def test_both_are_answered_at_the_committed_batch_in_the_order_asked(self, beside, conn):
        feed, questions = beside()
        feed.commit(self.row())
        feed.commit(self.row(2))

        answers = at_one_batch(conn, [*questions, *questions[::-1]])

        assert values(answers) == [[{"n": 3}]] * 4
        assert {each.txid for each in answers} == {2}

    @pytest.mark.parametrize("changelog", [True, False])
    def test_while_the_newest_batch_is_not_published_both_are_of_the_one_before(self, beside, conn, changelog):
        feed, questions = beside(changelog=changelog)
        feed.commit(self.row())
        batch = feed.begin(1)
        feed.write(batch, [self.row()])
        feed.ledger.commit(batch)

        answers = at_one_batch(conn, questions)

        assert values(answers) == [[{"n": 1}]] * 2
        assert {(each.txid, each.attempt) for each in answers} == {(1, 1)}

    def test_batches_published_between_two_looks_are_no_obstacle(self, beside, conn, monkeypatch):
        feed, questions = beside()
        feed.commit(self.row())
        get, left = type(feed.rows_in_redis).multi_get_committed, [3]

        def moving(rows, keys):
            answer = get(rows, keys)
            if left[0] and keys:
                left[0] -= 1
                feed.commit(self.row())
            return answer

        monkeypatch.setattr(type(feed.rows_in_redis), "multi_get_committed", moving)
        answers = at_one_batch(conn, questions)

        assert len({answer.txid for answer in answers}) == 1
        assert len({str(answer.parsed()) for answer in answers}) == 1

    def test_states_that_never_meet_end_in_an_error(self, beside, conn, monkeypatch):
        feed, questions = beside()
        feed.commit(self.row())
        get = type(feed.rows_in_redis).multi_get_committed

        def moving(rows, keys):
            answer = get(rows, keys)
            if keys:
                feed.commit(self.row())
                feed.commit(self.row())
            return answer

        monkeypatch.setattr(type(feed.rows_in_redis), "multi_get_committed", moving)

        with pytest.raises(MovedOnError, match="no batch was common to all of them in 5 attempts; ask again"):
            at_one_batch(conn, questions)

    def test_an_earlier_batch_comes_from_the_changelogs_or_is_out_of_reach(self, beside, conn):
        for changelog in (True, False):
            feed, questions = beside(changelog=changelog)
            for _ in range(3):
                feed.commit(self.row())
            if changelog:
                assert values(at_one_batch(conn, questions, at_txid=1)) == [[{"n": 1}]] * 2
            else:
                with pytest.raises(OutOfReachError):
                    at_one_batch(conn, questions, at_txid=1)

    def test_one_of_another_pipeline_is_refused(self, beside, conn):
        (_, one), (_, other) = beside(), beside()

        with pytest.raises(SpecError, match="of pipeline"):
            at_one_batch(conn, [one[1], other[1]])

    def test_one_that_nobody_feeds_is_unknown(self, beside, conn, client, fresh):
        _, (_, question) = beside()
        spec = replace(question.reader.spec, name=f"nobody_{uuid.uuid4().hex[:6]}")
        reader = state_reader(conn, spec)

        with pytest.raises(UnknownStateError):
            at_one_batch(conn, [StateLookup(reader, [])])
