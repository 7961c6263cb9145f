from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    name = "tidegauge.webapp.notify.webhooks"
    verbose_name = "Webhooks"

    def ready(self) -> None:
        from tidegauge.webapp.maintenance import signals
        from tidegauge.webapp.notify.webhooks import upkeep

        signals.state_renamed.connect(upkeep.rename_in_webhooks)
        signals.forgetting_old.connect(upkeep.forget_old)
