from django.apps import AppConfig


class SavedViewsConfig(AppConfig):
    name = "webapp.saved_views"
    # Its table comes after the schema of states, for the reason that webapp/alerts/apps.py gives.
    label = "tidegauge_saved_views"
    verbose_name = "Saved views"
