"""The workers' door to the maintenance service."""

from celery import shared_task

from webapp.states import services


@shared_task(name=services.TASK)
def run_maintenance(run_id: int) -> None:
    services.run_maintenance(run_id)


@shared_task(name="states.maintain_all")
def maintain_all(kind: str) -> None:
    services.maintain_all(kind)
