"""The Celery tasks of the webhooks."""

from tidegauge.webapp.celery import app
from tidegauge.webapp.notify.webhooks import following, outbox


@app.task(name="webhooks.follow")
def follow() -> None:
    following.follow_all()
    if outbox.due().exists():
        send.delay()


@app.task(name="webhooks.send")
def send() -> None:
    outbox.send_due()
