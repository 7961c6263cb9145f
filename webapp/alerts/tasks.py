"""The Celery tasks of the alerts."""

from webapp.alerts import checking, mail
from webapp.alerts.history import TASK
from webapp.celery import app


@app.task(name=TASK)
def check() -> None:
    checking.check()
    if mail.due().exists():
        send_mail.delay()


@app.task(name="alerts.send_mail", soft_time_limit=mail.TASK_SECONDS)
def send_mail() -> None:
    mail.send_due()
