from django.apps import AppConfig


class SavedQueriesConfig(AppConfig):
    name = "tidegauge.webapp.api.saved_queries"
    verbose_name = "Saved queries"

    def ready(self) -> None:
        from tidegauge.webapp.accounts import restrictable
        from tidegauge.webapp.api.saved_queries.models import published_names

        restrictable.register("saved queries", published_names)
