"""Alert rules. They name the webhooks that they send to."""

from typing import Any

from tidegauge.webapp.accounts.actors import Actor
from tidegauge.webapp.configuration.fields import FLAG, NAMES, NUMBER, WHOLE, Field, Fields
from tidegauge.webapp.configuration.kinds.kind import FormKind, check
from tidegauge.webapp.notify.alerts.figures import LIMITS
from tidegauge.webapp.notify.alerts.forms import AlertRuleForm
from tidegauge.webapp.notify.alerts.models import AlertRule
from tidegauge.webapp.notify.alerts.rules import USUAL


class AlertRules(FormKind):
    noun, model = "alert rule", AlertRule
    fields = {
        "pipelines": Field(NAMES, []),
        "states": Field(NAMES, []),
        "verdicts": Field(NAMES, sorted(USUAL)),
        **{limit: Field(NUMBER) for limit in LIMITS},
        "after_seconds": Field(WHOLE, 60),
        "mail_to": Field(NAMES, []),
        "webhooks": Field(NAMES, []),
        "enabled": Field(FLAG, True),
    }

    def values(self, found: AlertRule) -> dict[str, Any]:
        webhooks = list(found.webhooks.values_list("name", flat=True))
        return {name: getattr(found, name) for name in self.fields} | {"webhooks": webhooks}

    def form(self, name: str, fields: Fields, found: AlertRule | None, by: Actor) -> AlertRuleForm:
        form = AlertRuleForm({"name": name, **fields, "mail_to": ", ".join(fields["mail_to"])}, instance=found)
        form.fields["webhooks"].to_field_name = "name"  # type: ignore[attr-defined]
        return check(form)
