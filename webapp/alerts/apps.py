from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "webapp.alerts"
    # Migrations run in the order of labels. These tables refer to those of webhooks, and so come after the schema of
    # states; `alerts` would bring it before the tables of keys and people, which a user `tidegauge` then has in it.
    label = "tidegauge_alerts"
    verbose_name = "Alerts"
