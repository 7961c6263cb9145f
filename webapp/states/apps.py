from django.apps import AppConfig


class StatesConfig(AppConfig):
    name = "webapp.states"
    verbose_name = "Tidemark"
