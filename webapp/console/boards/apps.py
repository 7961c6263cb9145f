from django.apps import AppConfig


class BoardsConfig(AppConfig):
    name = "tidegauge.webapp.console.boards"
    # A label after `states`, so that these tables do not bring its schema forward: see webapp/notify/alerts/apps.py.
    label = "tidegauge_boards"
    verbose_name = "Boards"
