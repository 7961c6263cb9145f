"""The Celery tasks of the webhooks."""

from celery import shared_task

from webapp.webhooks import following, outbox


@shared_task(name="webhooks.follow")
def follow() -> None:
    following.follow_all()
    if outbox.due().exists():
        send.delay()


@shared_task(name="webhooks.send")
def send() -> None:
    outbox.send_due()
