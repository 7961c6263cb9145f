from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ApiKeysConfig(AppConfig):
    name = "webapp.accounts"
    label = "api_keys"  # of its tables and permissions
    verbose_name = "API keys"

    def ready(self) -> None:
        from webapp.accounts import services, throttling

        # After the permissions of every app before this one, and of this one, have been made.
        post_migrate.connect(services.ensure_groups, sender=self)
        throttling.listen()
