"""The contract of every embedded server with the processes that use it."""

import os
import socket
import time

import psutil
import pytest

from tidegauge.pipelines.embedded.data_dir import LOOPBACK
from tidegauge.pipelines.embedded.shared_server import SharedServer


class SharedServerContract:
    """A server passes it by giving its environment `variable` and the fixtures `server`, `pid_file` and `answers`, a
    function that returns whether the server at a URL answers."""

    variable: str

    @pytest.fixture(autouse=True)
    def no_server_outlives_its_test(self, server):
        yield
        if process := server.process():
            kill(process)

    def test_it_starts_in_an_empty_folder(self, server, start_user, answers):
        url = start_user(self.variable).url()

        assert answers(url)
        assert server.process() is not None

    def test_a_second_process_finds_the_running_server(self, server, start_user):
        first_url = start_user(self.variable).url()
        process = server.process()

        second_url = start_user(self.variable).url()

        assert second_url == first_url
        assert server.process() == process

    def test_processes_that_start_at_once_get_one_server(self, start_user):
        users = [start_user(self.variable) for _ in range(3)]

        assert len({user.url() for user in users}) == 1

    def test_it_runs_until_the_last_user_leaves(self, server, start_user, answers):
        first, last = start_user(self.variable), start_user(self.variable)
        first.url()
        url = last.url()

        first.leave()
        answered = answers(url)
        last.leave()

        assert answered
        assert server.process() is None

    def test_it_survives_a_killed_user_and_is_found_again(self, server, start_user, answers):
        user = start_user(self.variable)
        url = user.url()
        process = server.process()
        user.kill()

        next_user = start_user(self.variable)

        assert next_user.url() == url
        assert answers(url)
        assert server.process() == process
        next_user.leave()
        assert server.process() is None

    def test_it_can_be_stopped_once_all_its_users_were_killed_and_not_before(self, server, start_user):
        user = start_user(self.variable)
        user.url()

        assert not SharedServer(server).stop_if_unused()
        assert server.process() is not None
        user.kill()
        assert SharedServer(server).stop_if_unused()
        assert server.process() is None

    def test_it_starts_again_after_it_was_killed(self, server, start_user, answers):
        user = start_user(self.variable)
        user.url()
        kill(server.process())
        user.kill()

        assert answers(start_user(self.variable).url())

    def test_it_starts_although_its_pid_file_names_another_process(self, server, pid_file, start_user, answers):
        user = start_user(self.variable)
        user.url()
        former = pid_file.read_text()
        user.leave()
        pid_file.write_text(former.replace(former.split()[0], str(os.getpid()), 1))

        url = start_user(self.variable).url()

        assert answers(url)
        assert server.process().pid != os.getpid()

    def test_it_moves_to_another_port_when_its_own_is_taken(self, home, server, start_user, answers):
        user = start_user(self.variable)
        user.url()
        user.leave()
        port = int((home / f"{server.name}.port").read_text())

        with socket.socket() as other:
            other.bind((LOOPBACK, port))
            other.listen()
            url = start_user(self.variable).url()

            assert f":{port}/" not in url
            assert answers(url)

    def test_it_keeps_its_port_from_one_start_to_the_next(self, start_user):
        first = start_user(self.variable)
        first_url = first.url()
        first.leave()

        assert start_user(self.variable).url() == first_url

    def test_ctrl_c_in_the_users_terminal_does_not_reach_it(self, server, start_user):
        user = start_user(self.variable)
        user.url()

        assert os.getsid(server.process().pid) != os.getsid(user.process.pid)

    def test_only_its_owner_can_read_its_password(self, home, server, start_user):
        start_user(self.variable).url()

        assert (home / f"{server.name}.password").stat().st_mode & 0o777 == 0o600

    def test_it_listens_on_the_loopback_address_only(self, server, start_user):
        start_user(self.variable).url()

        listening = [c.laddr.ip for c in server.process().net_connections("all") if c.status == psutil.CONN_LISTEN]
        assert listening == [LOOPBACK]


def kill(process: psutil.Process) -> None:
    children = process.children(recursive=True)
    for victim in [process, *children]:
        victim.kill()
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        time.sleep(0.01)
