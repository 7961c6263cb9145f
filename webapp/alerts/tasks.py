"""The Celery tasks of the alerts."""

from celery import shared_task

from webapp.alerts import checking
from webapp.alerts.history import TASK


@shared_task(name=TASK)
def check() -> None:
    checking.check()
