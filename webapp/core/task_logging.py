"""A task's lines carry the request that asked for it: the id travels in the task's headers.

Celery's own lines go the way of all others; it sets nothing up where somebody answers `setup_logging`.
"""

from typing import Any

from celery.signals import before_task_publish, setup_logging, task_postrun, task_prerun
from structlog.contextvars import bind_contextvars, clear_contextvars, get_contextvars

HEADER = "tidemark_request_id"


@before_task_publish.connect
def send_request_id(headers: dict[str, Any], **_: Any) -> None:
    request_id = get_contextvars().get("request_id")
    if request_id:
        headers[HEADER] = request_id


@task_prerun.connect
def bind_task(task_id: str, task: Any, **_: Any) -> None:
    clear_contextvars()
    request_id = task.request.get(HEADER)
    bind_contextvars(task=task.name, task_id=task_id, **({"request_id": request_id} if request_id else {}))


@task_postrun.connect
def forget_task(**_: Any) -> None:
    clear_contextvars()


@setup_logging.connect
def leave_logging_alone(**_: Any) -> None:
    """Django has set it up, as settings.LOGGING says."""
