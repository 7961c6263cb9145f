from importlib import import_module

from django.apps import AppConfig


class ObservabilityConfig(AppConfig):
    name = "webapp.core"

    def ready(self) -> None:
        import_module("webapp.core.task_logging")  # connects Celery's signals, in all that send or run tasks
