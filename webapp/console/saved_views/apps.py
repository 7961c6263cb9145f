from django.apps import AppConfig


class SavedViewsConfig(AppConfig):
    name = "tidegauge.webapp.console.saved_views"
    # Its table comes after the schema of states, for the reason that webapp/notify/alerts/apps.py gives.
    label = "tidegauge_saved_views"
    verbose_name = "Saved views"

    def ready(self) -> None:
        from tidegauge.webapp.console.saved_views import services
        from tidegauge.webapp.maintenance import signals

        signals.state_renamed.connect(services.rename_state)
