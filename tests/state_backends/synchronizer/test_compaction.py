from state_backends.synchronizer import membership
from state_backends.synchronizer.compaction import compact_log, compact_logs
from state_backends.synchronizer.glance import glance
from state_backends.synchronizer.membership import Membership, members
from tests.state_backends.synchronizer.updates import apply, increment


def test_a_log_is_replaced_by_its_current_value(new_client, conn, name):
    client = new_client()
    client.initialize(0)
    for _ in range(5):
        client.update_state(increment)

    dropped = compact_log(conn, name, apply)

    assert dropped == 6
    assert [entry.record for entry in client.log.read_from(client.oldest)] == [{"init": 5}]
    assert compact_log(conn, name, apply) == 0
    assert client.update_state(increment) is None
    assert client.state == 6


def test_without_a_meaning_for_the_updates_what_precedes_the_compacted_value_goes(new_client, conn, name):
    client = new_client()
    client.initialize(0)
    client.update_state(increment)
    before = compact_log(conn, name)
    client.compact()
    client.update_state(increment)

    assert (before, compact_log(conn, name)) == (0, 2)
    assert [entry.record for entry in client.log.read_from(2)] == [{"init": 1}, {"updates": [{"incr": 1}]}]


def test_a_client_that_was_left_behind_goes_on(new_client, conn, name):
    client, late = new_client(), new_client()
    client.initialize(0)
    late.fetch_updates()
    client.update_state(increment)
    compact_log(conn, name, apply)

    late.update_state(increment)

    assert late.state == 2


def test_all_logs_are_compacted_and_what_is_known_of_them_is_used(new_client, conn, name, connect):
    client = new_client()
    client.initialize(0)
    client.update_state(increment)
    member = Membership(connect(), "worker")
    member.join()
    before = members(conn)

    dropped = compact_logs(conn)

    assert dropped[name] == 0
    assert dropped[membership.NAME] >= 2
    assert members(conn) == before


def test_a_log_that_nobody_has_begun_is_left_alone(stream, conn, name):
    assert compact_log(conn, name, apply) == 0
    assert stream.head().revision == 0


def test_a_glance_sees_the_newest_state_and_writes_nothing(new_client, conn, name):
    nothing = glance(conn, name, apply)
    logs = conn.execute("SELECT count(*) FROM tidemark.synchronizer WHERE name = %s", [name]).fetchone()
    client = new_client()
    empty = glance(conn, name, apply)
    client.initialize(0)
    client.update_state(increment)
    one = glance(conn, name, apply)
    client.compact()
    client.update_state(increment)
    two = glance(conn, name, apply)

    assert (nothing, empty) == (None, None)
    assert [(seen.state, seen.revision) for seen in (one, two)] == [(1, 2), (2, 4)]
    assert 0 <= two.idle_seconds < 10
    assert logs == (0,)
