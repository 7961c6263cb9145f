from django.apps import AppConfig


class DashboardConfig(AppConfig):
    name = "tidegauge.webapp.console.dashboard"
    verbose_name = "Dashboard"
