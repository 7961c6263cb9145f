from django.urls import path, register_converter
from django.urls.converters import StringConverter

from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.console.dashboard.views import (
    acts,
    alerts,
    api_keys,
    boards,
    dead_letters,
    explorer,
    incidents,
    pipelines,
    runs,
    saved_views,
    search,
    shared_boards,
    sql,
    states,
)
from tidegauge.webapp.console.dashboard.views.lineage import lineage_page
from tidegauge.webapp.console.saved_views.models import Page


class NameConverter(StringConverter):
    regex = "[^/\0]+"  # without NUL, because PostgreSQL rejects it


class NumberConverter(StringConverter):
    regex = "[0-9]{1,18}"  # so that it always fits into a bigint

    def to_python(self, value: str) -> int:  # type: ignore[override]
        return int(value)


register_converter(NameConverter, "resource")
register_converter(NumberConverter, "number")

app_name = "dashboard"

Kind = MaintenanceRun.Kind

urlpatterns = [
    path("", pipelines.overview, name="index"),
    path("incidents/acknowledge", incidents.acknowledge_problems, name="acknowledge"),
    path("incidents/silence", incidents.silence_messages, name="silence"),
    path("alerts", alerts.alerts, name="alerts"),
    path("alerts/silences", alerts.add_silence, name="add_silence"),
    path("alerts/silences/<number:silence_id>/end", alerts.end, name="end_silence"),
    path("alerts/rules/new", alerts.add_rule, name="add_rule"),
    path("alerts/rules/<number:rule_id>/test", alerts.test, name="test_rule"),
    path("states/", pipelines.states, name="states"),
    path("pipelines/", pipelines.all_pipelines, name="pipelines"),
    path("explore", pipelines.explore_states, name="explore_states"),
    path("search", search.search_page, name="search"),
    path("pipelines/<resource:name>/", pipelines.pipeline, name="pipeline"),
    path("pipelines/<resource:name>/pause", pipelines.pause, name="pause"),
    path("pipelines/<resource:name>/resume", pipelines.resume, name="resume"),
    path("pipelines/<resource:name>/operations", acts.acts, name="acts"),
    path("pipelines/<resource:name>/states", pipelines.pipeline_states, name="pipeline_states"),
    path("pipelines/<resource:name>/api", pipelines.pipeline_api, name="pipeline_api"),
    path("pipelines/<resource:name>/batches", pipelines.batches, name="batches"),
    path("pipelines/<resource:name>/batches/<number:txid>", pipelines.batch, name="batch"),
    path("pipelines/<resource:name>/batch", pipelines.batch_of_time, name="batch_at"),
    path("pipelines/<resource:name>/dead-letters", dead_letters.dead_letters, name="dead_letters"),
    path("pipelines/<resource:name>/dead-letters/replay", dead_letters.replay, name="replay"),
    path("states/<resource:name>/", states.state, name="state"),
    path("states/<resource:name>/schema", states.schema, name="schema"),
    path("states/<resource:name>/api", states.state_api, name="state_api"),
    path("states/<resource:name>/maintenance", runs.upkeep, name="upkeep"),
    path("states/<resource:name>/explore", explorer.explore, name="explore"),
    path("states/<resource:name>/explore/series", explorer.time_series, name="time_series"),
    path("states/<resource:name>/explore/save", saved_views.save, {"page": Page.EXPLORE}, name="save_view"),
    path("states/<resource:name>/compare", explorer.compare, name="compare"),
    path("states/<resource:name>/compare/series", explorer.compare_series, name="compare_series"),
    path("states/<resource:name>/compare/save", saved_views.save, {"page": Page.COMPARE}, name="save_comparison"),
    path("states/<resource:name>/key", states.key, name="key"),
    path("states/<resource:name>/lookup", states.lookup, name="lookup"),
    path("states/<resource:name>/compact", runs.request_run, {"kind": Kind.COMPACTION}, name="compact"),
    path("states/<resource:name>/expire", runs.request_run, {"kind": Kind.EXPIRY}, name="expire"),
    path("states/<resource:name>/audit", runs.request_run, {"kind": Kind.AUDIT}, name="audit"),
    path("views", saved_views.all_views, name="views"),
    path("views/<resource:view_id>", saved_views.view, name="view"),
    path("views/<resource:view_id>/edit", saved_views.edit, name="edit_view"),
    path("views/<resource:view_id>/replace", saved_views.replace, name="replace_view"),
    path("views/<resource:view_id>/delete", saved_views.delete, name="delete_view"),
    path("boards", boards.all_boards, name="boards"),
    path("boards/new", boards.create, name="create_board"),
    path("boards/<resource:board_id>", boards.board, name="board"),
    path("boards/<resource:board_id>/edit", boards.edit, name="edit_board"),
    path("boards/<resource:board_id>/delete", boards.delete, name="delete_board"),
    path("boards/<resource:board_id>/share", boards.share, name="share_board"),
    path("boards/<resource:board_id>/links/<resource:link_id>/revoke", boards.revoke, name="revoke_link"),
    path("shared/boards/<resource:token>", shared_boards.shared, name="shared_board"),
    path("frames/boards/<resource:token>", shared_boards.framed, name="frame"),
    path("sql", sql.sql, name="sql"),
    path("lineage", lineage_page, name="lineage"),
    path("maintenance", runs.maintenance, name="maintenance"),
    path("maintenance/<number:run_id>", runs.run, name="run"),
    path("maintenance/<number:run_id>/cancel", runs.cancel, name="cancel"),
    path("keys", api_keys.api_keys, name="keys"),
    path("keys/new", api_keys.create, name="create_key"),
    path("keys/<number:key_id>/revoke", api_keys.revoke, name="revoke_key"),
    path("problems", runs.problems, name="problems"),
]
