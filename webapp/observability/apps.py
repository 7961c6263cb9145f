from importlib import import_module

from django.apps import AppConfig


class ObservabilityConfig(AppConfig):
    name = "webapp.observability"

    def ready(self) -> None:
        import_module("webapp.observability.tasks")  # connects Celery's signals, in all that send or run tasks
