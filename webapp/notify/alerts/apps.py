from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "tidegauge.webapp.notify.alerts"
    # Migrations run in the order of labels. These tables refer to those of webhooks, and so come after the schema of
    # states; `alerts` would bring it before the tables of keys and people, which a user `tidegauge` then has in it.
    label = "tidegauge_alerts"
    verbose_name = "Alerts"

    def ready(self) -> None:
        from tidegauge.webapp.maintenance import signals
        from tidegauge.webapp.notify.alerts import upkeep

        signals.state_renamed.connect(upkeep.rename_state)
        signals.pipeline_renamed.connect(upkeep.rename_pipeline)
        signals.forgetting_old.connect(upkeep.forget_old)
