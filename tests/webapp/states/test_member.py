from state_backends.synchronizer.membership import members
from tests.webapp.lasting import no_database
from webapp.states.member import ProcessMembership


def test_a_worker_without_a_database_goes_on_and_joins_when_there_is_one(lasting):
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


def test_a_worker_whose_connection_broke_joins_again(lasting):
    worker = ProcessMembership("worker")
    worker.heartbeat()
    [first] = members(lasting.conn)
    worker._conn.close()
    worker._membership._next_beat = 0.0

    worker.heartbeat()
    worker.heartbeat()

    assert [member.name for member in members(lasting.conn) if member != first] == [worker._membership.name]
    worker.leave()
