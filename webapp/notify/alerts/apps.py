from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "tidegauge.webapp.notify.alerts"
    # Migrations run in the order of labels, and these depend on the schema of states. The label `alerts` would create
    # that schema before the tables of keys and people, so that a database user `tidegauge` would get those in it, too.
    label = "tidegauge_alerts"
    verbose_name = "Alerts"

    def ready(self) -> None:
        from tidegauge.webapp.maintenance import signals
        from tidegauge.webapp.notify.alerts import upkeep

        signals.state_renamed.connect(upkeep.rename_state)
        signals.pipeline_renamed.connect(upkeep.rename_pipeline)
        signals.forgetting_old.connect(upkeep.forget_old)
