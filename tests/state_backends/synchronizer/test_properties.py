"""What holds whatever clients do and in whatever order: races, and a plain model of the log."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.state_backends.examples import examples
from tests.state_backends.synchronizer.client_process import count
from tests.state_backends.synchronizer.updates import GENERATORS, apply, increment
from tests.state_backends.synchronizer.vector_tables import assert_each_row_is_answered
from tidegauge.state_backends.synchronizer.revisioned_stream import RevisionedStream
from tidegauge.state_backends.synchronizer.synchronizer import StateSynchronizer, compact_log

SOON = 60  # seconds in which anything that is not stuck has happened


def test_of_n_clients_racing_on_one_revision_exactly_one_succeeds(connect, name):
    clients = [RevisionedStream(connect(), name) for _ in range(8)]
    at_once = threading.Barrier(len(clients))

    def race(client, revision):
        at_once.wait(SOON)
        return client.write_conditionally(revision, "mine")

    with ThreadPoolExecutor(len(clients)) as threads:
        rounds = [list(threads.map(race, clients, [revision] * 8)) for revision in range(20)]

    for revision, outcomes in enumerate(rounds):
        assert sorted(outcomes, key=str) == [revision + 1, *[None] * 7]


def test_threads_that_count_together_lose_no_update(new_client):
    clients = [new_client() for _ in range(6)]
    clients[0].initialize(0)

    def count_up(client):
        for _ in range(25):
            client.update_state(increment)

    with ThreadPoolExecutor(len(clients)) as threads:
        list(threads.map(count_up, clients))

    for client in clients:
        client.fetch_updates()
    assert [client.state for client in clients] == [150] * 6
    assert clients[0].log.head().revision == 151


def test_processes_that_count_and_compact_together_lose_no_update(installed_url, new_client, name):
    client = new_client()
    client.initialize(0)

    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as processes:
        counting = [processes.submit(count, installed_url, name, 40) for _ in range(3)]
        last = [each.result(SOON) for each in counting]

    client.fetch_updates()
    assert client.state == max(last) == 120
    assert client.log.head().revision == 1 + 120 + 12


def test_logs_are_independent(connect, new_client, name):
    one, other = new_client(), StateSynchronizer(connect(), f"{name}_other", apply)
    one.initialize(0)
    other.initialize(7)

    one.update_state(increment)
    one.compact()
    one.compact()
    other.fetch_updates()

    assert (other.state, other.revision, other.oldest) == (7, 1, 0)


PEOPLE = st.sampled_from("abcd")
CLIENTS = st.integers(0, 2)


class Model(RuleBasedStateMachine):
    """Three clients and the log against a list: history[r] is the state at revision r."""

    conns = ()

    @initialize()
    def begin(self):
        self.name = f"model_{uuid4().hex[:12]}"
        self.history = [None]
        self.mark, self.oldest = None, 0
        self.clients = [self.new_client(index) for index in range(len(self.conns))]
        self.revisions = [None] * len(self.conns)
        self.stream = RevisionedStream(self.conns[0], self.name)

    def new_client(self, index):
        return StateSynchronizer(self.conns[index], self.name, apply)

    @rule(index=CLIENTS)
    def initialize_it(self, index):
        self.clients[index].initialize([])
        if len(self.history) == 1:
            self.history.append([])

    @rule(index=CLIENTS, kind=st.sampled_from(["add_if_absent", "remove_if_present"]), value=PEOPLE)
    def update(self, index, kind, value):
        if len(self.history) == 1:
            return
        seen = []

        def generator(state):
            seen.append(state)
            return GENERATORS[kind](state, value)

        self.clients[index].update_state(generator)

        # The run that counted saw the newest state, whether it wrote or had nothing to write.
        assert seen[-1] == self.history[-1]
        for update in GENERATORS[kind](self.history[-1], value):
            self.history.append(apply(self.history[-1], update))
        assert self.clients[index].revision == len(self.history) - 1

    @rule(index=CLIENTS, values=st.lists(PEOPLE, min_size=1, max_size=3), kind=st.sampled_from(["add", "remove"]))
    def update_unconditionally(self, index, kind, values):
        if len(self.history) == 1:
            return
        self.clients[index].update_state_unconditionally([{kind: value} for value in values])

        state = self.history[-1]
        for value in values:
            state = apply(state, {kind: value})
        self.history.append(state)

    @rule(index=CLIENTS)
    def compact(self, index):
        if len(self.history) == 1:
            return
        self.clients[index].compact()

        self.mark, self.oldest = len(self.history) - 1, max(self.oldest, self.mark or 0)
        self.history.append(self.history[-1])
        assert self.clients[index].records_since_compaction == 0

    @rule()
    def truncate(self):
        compact_log(self.conns[0], self.name)
        self.oldest = max(self.oldest, self.mark or 0)

    @rule(index=CLIENTS)
    def fetch(self, index):
        self.clients[index].fetch_updates()
        assert self.clients[index].state == self.history[-1]

    @rule(index=CLIENTS)
    def restart(self, index):
        self.clients[index], self.revisions[index] = self.new_client(index), None

    @invariant()
    def clients_hold_what_the_log_held_at_their_revision(self):
        for index, client in enumerate(self.clients):
            assert client.state == self.history[client.revision or 0]
            assert (client.revision or 0) >= (self.revisions[index] or 0)
            self.revisions[index] = client.revision

    @invariant()
    def the_log_matches_the_model(self):
        head = self.stream.head()
        assert (head.revision, head.mark, head.oldest) == (len(self.history) - 1, self.mark, self.oldest)

    @invariant()
    def records_are_initial_values_or_updates_and_never_both(self):
        records = [entry.record for entry in self.stream.read_from(self.oldest)]
        assert {tuple(record) for record in records} <= {("init",), ("updates",)}
        assert len(records) == len(self.history) - 1 - self.oldest


def test_clients_and_log_match_the_model(connect):
    class Connected(Model):
        conns = (connect(), connect(), connect())

    run_state_machine_as_test(
        Connected,
        settings=examples(15, stateful_step_count=25),
    )


def test_no_row_of_the_table_is_left_out():
    assert_each_row_is_answered(
        "sync.properties",
        [
            test_clients_and_log_match_the_model,
            test_clients_and_log_match_the_model,
            test_of_n_clients_racing_on_one_revision_exactly_one_succeeds,
            test_clients_and_log_match_the_model,
            "a duty of the generator, stated in update_state's docstring: it cannot be checked",
            test_clients_and_log_match_the_model,
            test_logs_are_independent,
        ],
    )
