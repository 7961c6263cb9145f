"""The Celery tasks of the alerts."""

from tidegauge.webapp.celery import app
from tidegauge.webapp.notify.alerts import checking, mail
from tidegauge.webapp.notify.alerts.history import TASK


@app.task(name=TASK)
def check() -> None:
    checking.check()
    if mail.due().exists():
        send_mail.delay()


@app.task(name="alerts.send_mail", soft_time_limit=mail.TASK_SECONDS)
def send_mail() -> None:
    mail.send_due()
