from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ApiKeysConfig(AppConfig):
    name = "tidegauge.webapp.accounts"
    label = "api_keys"  # kept from before the app was renamed, because tables and permissions are named after it
    verbose_name = "API keys"

    def ready(self) -> None:
        from tidegauge.webapp.accounts import services, sign_in

        # After the migration, because then the permissions of this app and of those before it in INSTALLED_APPS exist.
        post_migrate.connect(services.ensure_groups, sender=self)
        sign_in.connect_sign_ins()
