"""The kinds of objects that files may declare, each with how it is stored, created, changed and removed."""

from collections.abc import Mapping

from tidegauge.webapp.configuration.kinds.alert_rules import AlertRules
from tidegauge.webapp.configuration.kinds.api_keys import ApiKeys
from tidegauge.webapp.configuration.kinds.kind import Kind
from tidegauge.webapp.configuration.kinds.limits import Limits
from tidegauge.webapp.configuration.kinds.saved_queries import SavedQueries
from tidegauge.webapp.configuration.kinds.schedule import Schedule
from tidegauge.webapp.configuration.kinds.states import States
from tidegauge.webapp.configuration.kinds.webhooks import Webhooks

__all__ = ["KINDS", "Kind"]

# In the order in which they are applied, because alert rules name webhooks, and API keys name saved queries.
KINDS: Mapping[str, Kind] = {
    "saved_queries": SavedQueries(),
    "webhooks": Webhooks(),
    "alert_rules": AlertRules(),
    "api_keys": ApiKeys(),
    "pipeline_limits": Limits(),
    "states": States(),
    "schedule": Schedule(),
}
