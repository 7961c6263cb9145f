from django.apps import AppConfig


class SavedViewsConfig(AppConfig):
    name = "tidegauge.webapp.console.saved_views"
    # A label after `states`, so that this table does not bring its schema forward: see webapp/notify/alerts/apps.py.
    label = "tidegauge_saved_views"
    verbose_name = "Saved views"

    def ready(self) -> None:
        from tidegauge.webapp.console.saved_views import services
        from tidegauge.webapp.maintenance import signals

        signals.state_renamed.connect(services.rename_state)
