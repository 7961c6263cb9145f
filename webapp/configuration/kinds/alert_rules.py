"""Alert rules. They name the webhooks that they send to."""

from collections.abc import Collection
from typing import Any

from tidegauge.webapp.accounts.actors import Actor
from tidegauge.webapp.configuration.fields import FLAG, NAMES, NUMBER, WHOLE, Field, Fields
from tidegauge.webapp.configuration.kinds.kind import check, record_added, record_changed, record_removed
from tidegauge.webapp.notify.alerts.figures import LIMITS
from tidegauge.webapp.notify.alerts.forms import AlertRuleForm
from tidegauge.webapp.notify.alerts.models import AlertRule
from tidegauge.webapp.notify.alerts.rules import USUAL


class AlertRules:
    noun = "alert rule"
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
    kept: dict[str, Fields] = {}

    def stored(self, names: Collection[str] | None) -> dict[str, AlertRule]:
        rules = AlertRule.objects.prefetch_related("webhooks")
        return {rule.name: rule for rule in (rules if names is None else rules.filter(name__in=names))}

    def values(self, found: AlertRule) -> dict[str, Any]:
        webhooks = [webhook.name for webhook in found.webhooks.all()]
        return {name: getattr(found, name) for name in self.fields} | {"webhooks": webhooks}

    def create(self, name: str, fields: Fields, by: Actor) -> str:
        record_added(_form(name, fields, None).save(), by)
        return ""

    def change(self, found: AlertRule, fields: Fields, by: Actor) -> None:
        form = _form(found.name, fields, found)
        form.save()
        record_changed(form, by)

    def remove(self, found: AlertRule, by: Actor) -> None:
        record_removed(found, by)
        found.delete()


def _form(name: str, fields: Fields, found: AlertRule | None) -> AlertRuleForm:
    form = AlertRuleForm({"name": name, **fields, "mail_to": ", ".join(fields["mail_to"])}, instance=found)
    form.fields["webhooks"].to_field_name = "name"  # type: ignore[attr-defined]
    check(form)
    return form
