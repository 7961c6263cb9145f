"""A real worker: a pipeline fails, and a mail arrives at the server that EMAIL_URL names."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.webapp.maintenance.test_tasks import wait_until
from tests.webapp.web_server import database_url
from tidegauge.webapp.notify.alerts import tasks
from tidegauge.webapp.notify.webhooks.models import Delivery
from tidegauge.webapp.serving import process_commands

pytestmark = pytest.mark.processes


@pytest.fixture
def worker(lasting, mailbox) -> Iterator[None]:
    command = [*process_commands.worker(), "--without-mingle"]
    mail = {"EMAIL_URL": f"smtp://127.0.0.1:{mailbox.port}", "EMAIL_FROM": "tidegauge@example.com"}
    environ = {**os.environ, **mail, "DATABASE_URL": database_url()}
    process = subprocess.Popen(command, env=environ, start_new_session=True, stderr=subprocess.DEVNULL)
    yield
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_mail_arrives(worker, lasting, mailbox, rule):
    rule()
    lasting.report("failed", "no disk")

    tasks.check.delay()
    wait_until(lambda: Delivery.objects.filter(status="delivered").exists())

    [mail] = mailbox.received
    assert (mail["Subject"], mail["From"]) == ("Tidegauge: flights failed", "tidegauge@example.com")
