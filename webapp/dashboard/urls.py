from django.urls import path, register_converter
from django.urls.converters import StringConverter

from webapp.dashboard.views import operations, pipelines, states
from webapp.states.models import MaintenanceRun


class ShownNameConverter(StringConverter):
    regex = "[^/\0]+"  # PostgreSQL takes no NUL


class TxidConverter(StringConverter):
    regex = "[0-9]{1,18}"  # as many digits as fit into a bigint

    def to_python(self, value: str) -> int:  # type: ignore[override]
        return int(value)


register_converter(ShownNameConverter, "shown_name")
register_converter(TxidConverter, "number")

app_name = "dashboard"

COMPACTION, EXPIRY = {"kind": MaintenanceRun.Kind.COMPACTION}, {"kind": MaintenanceRun.Kind.EXPIRY}

urlpatterns = [
    path("", pipelines.overview, name="index"),
    path("pipelines/<shown_name:name>/", pipelines.pipeline, name="pipeline"),
    path("pipelines/<shown_name:name>/pause", pipelines.pause, name="pause"),
    path("pipelines/<shown_name:name>/resume", pipelines.resume, name="resume"),
    path("pipelines/<shown_name:name>/batches", pipelines.batches, name="batches"),
    path("pipelines/<shown_name:name>/batches/<number:txid>", pipelines.batch, name="batch"),
    path("pipelines/<shown_name:name>/dead-letters", pipelines.dead_letters, name="dead_letters"),
    path("states/<shown_name:name>/", states.state, name="state"),
    path("states/<shown_name:name>/key", states.key, name="key"),
    path("states/<shown_name:name>/lookup", states.lookup, name="lookup"),
    path("states/<shown_name:name>/compact", operations.ask, COMPACTION, name="compact"),
    path("states/<shown_name:name>/expire", operations.ask, EXPIRY, name="expire"),
    path("maintenance", operations.maintenance, name="maintenance"),
    path("maintenance/<number:run_id>", operations.run, name="run"),
    path("maintenance/<number:run_id>/cancel", operations.cancel, name="cancel"),
    path("keys", operations.api_keys, name="keys"),
]
