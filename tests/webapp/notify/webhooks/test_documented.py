"""The receiver of docs/webhooks.md: it takes what is signed with its secret, once, and nothing else."""

import os
import subprocess
import sys

import pytest

from tests.docs.blocks import program
from tests.harness.waiting import eventually
from tidegauge.pipelines.embedded.data_dir import free_port
from tidegauge.webapp.notify.webhooks import outbox, sending, services
from tidegauge.webapp.notify.webhooks.models import Delivery
from tidegauge.webapp.notify.webhooks.outbox import Message


def is_answered(delivery):
    return sending.attempt(delivery).status is not None


@pytest.mark.usefixtures("receiving")
def test_it_takes_a_signed_message_once(webhook):
    port = free_port()
    made = webhook(url=f"http://127.0.0.1:{port}/")
    services.send_test(made, by="ann")
    outbox.add(made, [Message("webhook.test", {"second": True})])
    second, first = Delivery.objects.select_related("webhook")
    forged = Delivery(webhook=made, message_id=first.message_id, body='{"type": "forged", "data": {}}')
    forged.webhook.secret = services.new_seed()
    environ = os.environ | {"PORT": str(port), "WEBHOOK_SECRET": made.shown_once}
    command = [sys.executable, "-c", program("webhooks.md")]

    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        eventually(lambda: is_answered(forged))
        statuses = [sending.attempt(each).status for each in (forged, first, first, second)]
        # The program answers before it prints.
        printed = [process.stdout.readline() for _ in range(2)]
        process.terminate()
        printed += process.stdout.readlines()

    assert statuses == [401, 204, 204, 204]
    assert printed == ["webhook.test {'webhook': 'hook'}\n", "webhook.test {'second': True}\n"]
