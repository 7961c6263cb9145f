"""The web process without the caches that a second of the clock refreshes: the data of its tests come and go."""

from webapp.web import application  # first: it sets up Django

from webapp.alerts import history  # isort: skip
from webapp.core import system_snapshot  # isort: skip
from webapp.states import limits, readers  # isort: skip

__all__ = ["application"]

readers.CHECK_SECONDS = -1.0
for cached in (
    history.last_check,
    limits.own_limits,
    system_snapshot.pipeline_statuses,
    system_snapshot.state_summaries,
    system_snapshot.system_snapshot,
):
    cached._seconds = -1.0
