"""The Celery application. `celery -A tidegauge.webapp worker -B` runs tasks, also those that the database schedules.

A task's log lines have the id of the request that started it: the id is sent in the task's headers.
"""

import os
from typing import Any

from celery import Celery
from celery.signals import before_task_publish, setup_logging, task_postrun, task_prerun
from structlog.contextvars import bind_contextvars, clear_contextvars, get_contextvars

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tidegauge.webapp.settings")

REQUEST_ID_HEADER = "tidegauge_request_id"

app = Celery("tidegauge")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@before_task_publish.connect
def send_request_id(headers: dict[str, Any], **_: Any) -> None:
    request_id = get_contextvars().get("request_id")
    if request_id:
        headers[REQUEST_ID_HEADER] = request_id


@task_prerun.connect
def bind_task(task_id: str, task: Any, **_: Any) -> None:
    clear_contextvars()
    request_id = task.request.get(REQUEST_ID_HEADER)
    bind_contextvars(task=task.name, task_id=task_id, **({"request_id": request_id} if request_id else {}))


@task_postrun.connect
def unbind_task(**_: Any) -> None:
    clear_contextvars()


@setup_logging.connect
def keep_logging(**_: Any) -> None:
    """Celery configures no logging if this signal has a receiver, so settings.LOGGING stays in effect."""
