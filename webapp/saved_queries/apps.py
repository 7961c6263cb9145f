from django.apps import AppConfig


class SavedQueriesConfig(AppConfig):
    name = "webapp.saved_queries"
    verbose_name = "Saved queries"
