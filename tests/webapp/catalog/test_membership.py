from tests.webapp.committed_flights import no_database
from tidegauge.state_backends.synchronizer import membership
from tidegauge.state_backends.synchronizer.membership import members
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.membership import ProcessMembership


def test_a_worker_without_a_database_joins_when_there_is_one(lasting):
    worker = ProcessMembership("worker")
    with no_database():
        worker.heartbeat()
        worker.leave()
    before = members(lasting.conn)

    worker.heartbeat()
    joined = members(lasting.conn)
    worker.leave()

    assert before == members(lasting.conn) == []
    assert [member.role for member in joined] == ["worker"]


def names(lasting):
    return [member.name for member in members(lasting.conn)]


def test_a_worker_whose_connection_broke_joins_again(lasting, monkeypatch):
    connect, opened = readers.own_connection, []
    monkeypatch.setattr(readers, "own_connection", lambda: opened.append(connect()) or opened[-1])
    monkeypatch.setattr(membership, "PAUSE_SECONDS", 0)
    worker = ProcessMembership("worker")
    worker.heartbeat()
    before = names(lasting)
    opened[0].close()

    worker.heartbeat()
    worker.heartbeat()
    joined = names(lasting)
    worker.leave()

    assert (len(before), len(joined)) == (1, 2)
    assert names(lasting) == before
