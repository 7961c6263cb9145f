from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ApiKeysConfig(AppConfig):
    name = "webapp.api_keys"
    verbose_name = "API keys"

    def ready(self) -> None:
        from webapp.api_keys import groups, sign_ins

        # After the permissions of every app before this one, and of this one, have been made.
        post_migrate.connect(groups.ensure_groups, sender=self)
        sign_ins.listen()
