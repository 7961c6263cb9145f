from django.urls import path, register_converter
from django.urls.converters import StringConverter

from webapp.api import value_views, views


class NameConverter(StringConverter):
    regex = "[^/\0]+"  # PostgreSQL takes no NUL


register_converter(NameConverter, "name")

app_name = "lookup"

urlpatterns = [
    # First, for it is asked a thousand times as often as the rest.
    path("states/<name:name>/query", value_views.StateQueryView.as_view(), name="query"),
    path("pipelines", views.PipelinesView.as_view(), name="pipelines"),
    path("pipelines/<name:name>", views.PipelineView.as_view(), name="pipeline"),
    path("pipelines/<name:name>/batches", views.BatchesView.as_view(), name="batches"),
    path("pipelines/<name:name>/pause", views.PauseView.as_view(), name="pause"),
    path("pipelines/<name:name>/resume", views.ResumeView.as_view(), name="resume"),
    path("states", views.StatesView.as_view(), name="states"),
    path("states/<name:name>", views.StateView.as_view(), name="state"),
    path("states/<name:name>/entries", value_views.EntriesView.as_view(), name="entries"),
    path("states/<name:name>/history", value_views.HistoryView.as_view(), name="history"),
    path("states/<name:name>/compaction", views.CompactionView.as_view(), name="compaction"),
    path("states/<name:name>/expiry", views.ExpiryView.as_view(), name="expiry"),
    path("query", value_views.QueriesView.as_view(), name="queries"),
    path("maintenance", views.RunsView.as_view(), name="runs"),
    path("maintenance/<int:run_id>", views.RunView.as_view(), name="run"),
]
