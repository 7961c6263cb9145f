from django.apps import AppConfig


class ApiKeysConfig(AppConfig):
    name = "webapp.api_keys"
    verbose_name = "API keys"
