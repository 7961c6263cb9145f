"""What /api/schema says of each call. Nothing here runs when a request is answered.

`calls` and `reading` hold one decorator per call, `registry` and `lookups` the shapes of what is asked and answered,
`refusals` the problems, `parameters` what calls share.
"""

from webapp.lookup.documentation.calls import (
    batches,
    cancel,
    compaction,
    expiry,
    pause,
    pipeline,
    pipelines,
    resume,
    run,
    runs,
    state,
    states,
)
from webapp.lookup.documentation.reading import entries, history, queries, state_query
from webapp.lookup.documentation.registry import DRIVER_STATUSES
from webapp.lookup.documentation.security import ApiKeyScheme

__all__ = [
    "DRIVER_STATUSES",
    "ApiKeyScheme",
    "batches",
    "cancel",
    "compaction",
    "entries",
    "expiry",
    "history",
    "pause",
    "pipeline",
    "pipelines",
    "queries",
    "resume",
    "run",
    "runs",
    "state",
    "state_query",
    "states",
]
