"""Alerts in the admin: rules and silences can be edited; the alerts found and the messages sent are only shown."""

from typing import Any, cast

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import display

from tidegauge.webapp.accounts.audit.admin import AuditedEdits
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.core.admin import LongListAdmin
from tidegauge.webapp.core.admin_pages import link, link_to_audit, link_to_list
from tidegauge.webapp.notify.alerts.figures import LIMITS, figures, limits_of
from tidegauge.webapp.notify.alerts.forms import AlertRuleForm, SilenceForm
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule, Silence
from tidegauge.webapp.notify.alerts.rules import unknown_figures
from tidegauge.webapp.notify.webhooks.models import Delivery

STATUSES = {"open": "danger", "waiting": "warning", "over": "success"}

NAMED_PIPELINES = 10


@admin.register(AlertRule)
class AlertRuleAdmin(AuditedEdits, ModelAdmin):
    form = AlertRuleForm
    list_display = ["name", "about", "when", "tells", "open", "enabled"]
    list_filter = ["enabled"]
    search_fields = ["name", "pipelines", "states"]
    warn_unsaved_form = True

    def get_fields(self, request: HttpRequest, obj: AlertRule | None = None) -> list[str]:
        edited = list(AlertRuleForm.Meta.fields)
        return edited if obj is None else [*edited, "unknown", "open", "sent", "audit"]

    def get_readonly_fields(self, request: HttpRequest, obj: AlertRule | None = None) -> list[str]:
        return self.get_fields(request, obj)[len(AlertRuleForm.Meta.fields) :]

    def audited(self, instance: AlertRule) -> dict[str, Any]:
        kept = ("pipelines", "states", "verdicts", *LIMITS, "after_seconds", "mail_to", "enabled")
        webhooks = sorted(instance.webhooks.values_list("name", flat=True))
        return {name: getattr(instance, name) for name in kept} | {"webhooks": webhooks}

    @display(description="About")
    def about(self, rule: AlertRule) -> str:
        return ", ".join([*rule.pipelines, *rule.states]) or "all pipelines"

    @display(description="When")
    def when(self, rule: AlertRule) -> str:
        limited = [f"{LIMITS[name].figure} over {LIMITS[name].form(limit)}" for name, limit in limits_of(rule).items()]
        return f"{', '.join([*rule.verdicts, *limited])} for {rule.after_seconds} s"

    @display(description="Notifies")
    def tells(self, rule: AlertRule) -> str:
        return ", ".join([*rule.mail_to, *(webhook.name for webhook in rule.webhooks.all())])

    @display(description="Open alerts")
    def open(self, rule: AlertRule) -> SafeString:
        count = rule.alerts.filter(ended_at=None).count()
        return link_to_list(Alert, f"{count:,}", rule__id__exact=rule.pk)

    @display(description="Unknown figures")
    def unknown(self, rule: AlertRule) -> str:
        pipelines = queries.pipelines() if limits_of(rule) else []
        found = unknown_figures(rule, pipelines, figures(pipelines, timezone.now()))
        named = [f"{pipeline}: {', '.join(names)}" for pipeline, names in list(found.items())[:NAMED_PIPELINES]]
        more = [f"{len(found) - NAMED_PIPELINES} more pipelines"] if len(found) > NAMED_PIPELINES else []
        return "; ".join([*named, *more])

    @display(description="Messages")
    def sent(self, rule: AlertRule) -> SafeString:
        return link_to_list(Delivery, f"{_messages_of(rule).count():,}", source__startswith=rule.source)

    @display(description="Audit")
    def audit(self, rule: AlertRule) -> SafeString | None:
        return link_to_audit("alert rule", rule.name)


@admin.register(Silence)
class SilenceAdmin(AuditedEdits, ModelAdmin):
    form = SilenceForm
    list_display = ["of", "rule", "until", "reason", "created_by"]
    actions = None
    list_select_related = ["rule", "created_by"]

    def save_model(self, request: HttpRequest, obj: Silence, form: forms.ModelForm, change: bool) -> None:
        if not change:
            obj.created_by = cast(User, request.user)
        super().save_model(request, obj, form, change)

    def audited(self, instance: Silence) -> dict[str, Any]:
        rule = instance.rule.name if instance.rule else None
        named = {"pipeline": instance.pipeline, "rule": rule, "reason": instance.reason}
        return named | {"until": instance.until.isoformat()}

    @display(description="Pipeline", ordering="pipeline")
    def of(self, silence: Silence) -> str:
        return silence.pipeline or "all pipelines"


@admin.register(Alert)
class AlertAdmin(LongListAdmin):
    list_display = ["about", "verdict", "status", "rule", "began_at", "ended_at", "reason"]
    list_filter = ["verdict", "rule"]
    list_select_related = ["rule"]
    search_fields = ["pipeline", "state"]
    fields = ["about", "page", "verdict", "status", "reason", "rule", "began_at", "ended_at", "told"]

    @display(description="About", ordering="pipeline")
    def about(self, alert: Alert) -> str:
        return f"state {alert.state}" if alert.state else alert.pipeline

    @display(description="Page")
    def page(self, alert: Alert) -> SafeString:
        name, of = ("dashboard:state", alert.state) if alert.state else ("dashboard:pipeline", alert.pipeline)
        return link(reverse(name, args=[of]), "on the dashboard")

    @display(description="Status", label=STATUSES)
    def status(self, alert: Alert) -> str:
        return "over" if alert.ended_at else "open" if alert.told else "waiting"


def _messages_of(rule: AlertRule) -> QuerySet[Delivery]:
    return Delivery.objects.filter(source__startswith=rule.source)
