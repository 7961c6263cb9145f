from django.apps import AppConfig


class CommandsConfig(AppConfig):
    name = "tidegauge.webapp.commands"
