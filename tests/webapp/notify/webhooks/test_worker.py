"""A real worker: commits go from the ledger to a receiver, and a worker that is killed loses none."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.webapp.maintenance.test_tasks import wait_until
from tests.webapp.web_server import database_url
from tidegauge.webapp.notify.webhooks import tasks
from tidegauge.webapp.serving import process_commands

pytestmark = pytest.mark.processes

STATE = "flights_by_carrier"


@pytest.fixture
def work(lasting, loopback) -> Iterator[Callable[[], subprocess.Popen]]:
    """Starts a worker."""
    environ = {
        **os.environ,
        "DATABASE_URL": database_url(),
        "TIDEGAUGE_WEBHOOK_NETWORKS": "127.0.0.0/8",
        "TIDEGAUGE_WEBHOOK_SECONDS": "600",
    }
    command = [*process_commands.worker(), "--without-mingle"]
    with ExitStack() as stack:

        def start() -> subprocess.Popen:
            process = subprocess.Popen(command, env=environ, start_new_session=True, stderr=subprocess.DEVNULL)
            stack.callback(_kill, process)
            return process

        yield start


def test_a_worker_that_is_killed_while_it_sends_loses_no_commit(lasting, work, webhook, receiving, settings):
    made = webhook("commit", states=[STATE])
    receiving.hold.clear()
    txids = [lasting.commit({("JFK", "AA"): 1}).txid for _ in range(3)]
    first = work()
    tasks.follow.delay()
    wait_until(lambda: receiving.received)

    _kill(first)
    receiving.hold.set()
    work()
    tasks.follow.delay()
    wait_until(lambda: not made.deliveries.exclude(status="delivered").exists())

    # The first one twice, with one id: nobody had recorded its answer.
    assert [each.data["txid"] for each in receiving.received] == [txids[0], *txids]
    assert len({each.id for each in receiving.received}) == 3
    for each in receiving.received:
        assert each.verified(made.shown_once)


def _kill(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
