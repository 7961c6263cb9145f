from django.apps import AppConfig


class MaintenanceConfig(AppConfig):
    name = "tidegauge.webapp.maintenance"
