from django.urls import path, register_converter
from django.urls.converters import StringConverter

from tidegauge.webapp.api.saved_queries import views as saved_queries
from tidegauge.webapp.api.views import access, catalog, dead_letters, lookups, maintenance, ranges, replay


class NameConverter(StringConverter):
    regex = "[^/\0]+"  # PostgreSQL's text has no NUL


register_converter(NameConverter, "name")

urlpatterns = [
    # First: by far the most frequent request.
    path("states/<name:name>/lookup", lookups.StateLookupView.as_view(), name="lookup"),
    path("pipelines", catalog.PipelinesView.as_view(), name="pipelines"),
    path("pipelines/<name:name>", catalog.PipelineView.as_view(), name="pipeline"),
    path("pipelines/<name:name>/batches", catalog.BatchesView.as_view(), name="batches"),
    path("pipelines/<name:name>/series", catalog.PipelineSeriesView.as_view(), name="pipeline_series"),
    path("pipelines/<name:name>/pause", catalog.PauseView.as_view(), name="pause"),
    path("pipelines/<name:name>/resume", catalog.ResumeView.as_view(), name="resume"),
    path(
        "pipelines/<name:name>/dead-letters/groups", dead_letters.LetterGroupsView.as_view(), name="dead_letter_groups"
    ),
    path("pipelines/<name:name>/dead-letters/export", dead_letters.LettersView.as_view(), name="dead_letter_export"),
    path("pipelines/<name:name>/dead-letters/replay", replay.ReplayView.as_view(), name="dead_letter_replay"),
    path("states", catalog.StatesView.as_view(), name="states"),
    path("states/<name:name>", catalog.StateView.as_view(), name="state"),
    path("states/<name:name>/openapi", catalog.StateSchemaView.as_view(), name="state_schema"),
    path("states/<name:name>/keys", lookups.KeyView.as_view(), name="key"),
    path("states/<name:name>/entries", ranges.EntriesView.as_view(), name="entries"),
    path("states/<name:name>/groups", ranges.GroupsView.as_view(), name="groups"),
    path("states/<name:name>/windows", ranges.WindowsView.as_view(), name="windows"),
    path("states/<name:name>/export", ranges.ExportView.as_view(), name="export"),
    path("states/<name:name>/history", ranges.HistoryView.as_view(), name="history"),
    path("states/<name:name>/series", ranges.KeySeriesView.as_view(), name="key_series"),
    path("states/<name:name>/compaction", maintenance.CompactionView.as_view(), name="compaction"),
    path("states/<name:name>/expiry", maintenance.ExpiryView.as_view(), name="expiry"),
    path("lookup", lookups.LookupsView.as_view(), name="lookups"),
    path("usage", access.UsageView.as_view(), name="usage"),
    path("tokens", access.TokensView.as_view(), name="tokens"),
    path("tokens/<name:token_id>", access.TokenView.as_view(), name="token"),
    path("saved-queries", saved_queries.SavedQueriesView.as_view(), name="saved_queries"),
    path("saved-queries/<name:name>", saved_queries.SavedQueryView.as_view(), name="saved_query"),
    path("saved-queries/<name:name>/openapi", saved_queries.SavedQuerySchemaView.as_view(), name="saved_query_schema"),
    path(
        "saved-queries/<name:name>/versions/<int:version>",
        saved_queries.SavedQueryVersionView.as_view(),
        name="saved_query_version",
    ),
    path(
        "saved-queries/<name:name>/versions/<int:version>/openapi",
        saved_queries.SavedQueryVersionSchemaView.as_view(),
        name="saved_query_version_schema",
    ),
    path("maintenance", maintenance.RunsView.as_view(), name="runs"),
    path("maintenance/<int:run_id>", maintenance.RunView.as_view(), name="run"),
]
