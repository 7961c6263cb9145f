"""Requests to replay dead letters: refused by name, recorded, one at a time, and followed to their end."""

import psycopg
import pytest

from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.dead_letters.replay import Choice, are_waiting, put_back, take
from tidegauge.state_backends.errors import UnknownPipelineError
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.maintenance.replay import (
    NotDrivenError,
    NothingToReplayError,
    Replay,
    ReplayUnderWayError,
    last_replay,
    request_replay,
)

GROUP = "n: expected int, got …"


@pytest.fixture
def letters(filled):
    """Batch 3: three letters of one group, one of another, and one without a raw record."""
    bad = [DeadLetter("a.json", "{", f'n: expected int, got "x{n}"', n, record={"n": n}) for n in range(3)]
    other = DeadLetter("a.json", "{", "not JSON", 9, record={"n": 9})
    filled.commit({("JFK", "C00"): 1}, [*bad, other, DeadLetter("a.json", "", "lost: 7")])
    return filled


def requested(choice=Choice(pattern=GROUP), name="flights"):  # noqa: B008  it cannot be changed
    return request_replay(name=name, choice=choice, requested_by="ann")


def counted(flights, failed: int) -> None:
    """Commit the batch that takes the letters; the first `failed` of them cannot be read again."""
    batch = flights.open({("JFK", "C00"): 1})
    with flights.conn.transaction():
        lock_fence(flights.conn, batch)
        taken = take(flights.conn, batch)
        put_back(flights.conn, [(raw.id, "not JSON now") for raw in taken[:failed]])
    flights.finish(batch)


def test_a_request_marks_the_letters_of_a_group_and_is_recorded(letters):
    found = requested()

    assert (found.letters, are_waiting(letters.conn, "flights")) == (3, True)
    entry = AuditEntry.objects.get(action="pipeline.replay")
    assert (entry.actor, entry.target, entry.detail["letters"]) == ("ann", "pipeline flights", 3)
    assert entry.detail["group"] == GROUP


def test_its_end_tells_what_is_counted_and_what_is_still_a_dead_letter(letters):
    before = last_replay("flights")
    requested()
    waiting = last_replay("flights")
    counted(letters, failed=1)
    ended = last_replay("flights")

    assert before == Replay()
    assert (waiting.letters, waiting.waiting, waiting.replayed, waiting.remaining) == (3, 3, 0, 0)
    assert (ended.waiting, ended.replayed, ended.txid, ended.remaining) == (0, 2, 4, 1)
    assert (ended.requested_by, ended.requested_at) == ("ann", waiting.requested_at)


def test_one_is_refused_while_letters_wait_or_are_in_an_open_batch(letters):
    requested()
    with pytest.raises(ReplayUnderWayError, match="3 dead letters wait"):
        requested(Choice())
    batch = letters.open({("JFK", "C00"): 1})
    with letters.conn.transaction():
        lock_fence(letters.conn, batch)
        take(letters.conn, batch)

    with pytest.raises(ReplayUnderWayError, match="'flights'"):
        requested(Choice())
    letters.finish(batch)

    assert requested(Choice()).letters == 1


@pytest.mark.parametrize("choice", [Choice(pattern="lost: …"), Choice(pattern="no such"), Choice(ids=[])])
def test_nothing_to_replay_is_refused_and_leaves_no_trace(letters, choice):
    with pytest.raises(NothingToReplayError, match="'flights'"):
        requested(choice)

    assert not AuditEntry.objects.filter(action="pipeline.replay").exists()


@pytest.mark.parametrize(
    ("choice", "options"),
    [(Choice(pattern=GROUP), f" --group '{GROUP}'"), (Choice(), "")],
)
def test_without_a_driver_the_command_is_named_and_nothing_is_marked(letters, choice, options):
    letters.die()

    with pytest.raises(NotDrivenError) as refused:
        requested(choice)

    assert f"`tidegauge replay_dead_letters flights{options}`" in str(refused.value)
    assert not are_waiting(letters.conn, "flights")
    assert not AuditEntry.objects.filter(action="pipeline.replay").exists()


def test_an_unknown_pipeline_is_named(letters):
    with pytest.raises(UnknownPipelineError, match="'nosuch'"):
        requested(name="nosuch")


def test_two_requests_at_once_are_made_one_after_the_other(letters):
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('request a replay of flights', 0))"
    with readers.own_connection() as other, other.transaction():
        other.execute(lock)
        letters.conn.execute("SET LOCAL lock_timeout = '50ms'")

        with pytest.raises(psycopg.errors.LockNotAvailable):
            requested()
