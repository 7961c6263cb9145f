"""The web process without the caches that a second of the clock refreshes: the data of its tests come and go."""

from tidegauge.webapp.web import application  # first: it sets up Django

from tidegauge.webapp.notify.alerts import history  # isort: skip
from tidegauge.webapp.console import system_snapshot  # isort: skip
from tidegauge.webapp.catalog import limits, readers  # isort: skip

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
