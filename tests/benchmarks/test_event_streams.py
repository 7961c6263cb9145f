"""The benchmark of event streams waits for events as the events process sends them."""

from benchmarks import event_streams


def test_each_round_has_the_figures_of_a_process_and_its_clients():
    cases = {case.name: case for case in event_streams.run(listeners=3, rounds=1)}

    assert {
        "events_process_empty",
        "events_process_3_idle_listeners",
        "commit_to_the_last_of_3_listeners",
    } <= cases.keys()
    assert all(case.value > 0 and case.rounds == 1 for case in cases.values())
