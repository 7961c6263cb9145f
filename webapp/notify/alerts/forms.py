"""The forms of rules and silences."""

import re
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils import timezone
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminSelectMultipleWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from tidegauge.webapp.catalog.queries import pipeline_names, state_names
from tidegauge.webapp.notify.alerts.figures import LIMITS, limits_of
from tidegauge.webapp.notify.alerts.models import AlertRule, Silence
from tidegauge.webapp.notify.alerts.rules import CHOICES, USUAL
from tidegauge.webapp.notify.webhooks.models import Kind, Webhook

MOST_ADDRESSES = 20


class AlertRuleForm(forms.ModelForm):
    pipelines = forms.MultipleChoiceField(
        required=False,
        widget=UnfoldAdminSelectMultipleWidget,
        help_text="the rule is about these; about all if neither pipelines nor states are chosen",
    )
    states = forms.MultipleChoiceField(
        required=False, widget=UnfoldAdminSelectMultipleWidget, help_text="the rule is about these and their pipelines"
    )
    verdicts = forms.MultipleChoiceField(
        choices=[(name, name) for name in CHOICES],
        initial=USUAL,
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
    )
    mail_to = forms.CharField(
        label="Mail to", required=False, widget=UnfoldAdminTextInputWidget, help_text="addresses, separated by commas"
    )
    webhooks = forms.ModelMultipleChoiceField(
        queryset=Webhook.objects.filter(kinds__contains=[Kind.ALERT]),
        required=False,
        widget=UnfoldAdminSelectMultipleWidget,
        help_text="only webhooks that are about alerts can be chosen",
    )

    class Meta:
        model = AlertRule
        fields = [
            "name", "pipelines", "states", "verdicts", *LIMITS, "after_seconds", "mail_to", "webhooks", "enabled",
        ]  # fmt: skip
        labels = {
            "lag_seconds": "Lag over, seconds",
            "pending_input": "Pending input over",
            "rejected_share": "Share of dead letters over",
            "event_age_seconds": "Newest event older than, seconds",
            "batch_gap_seconds": "No batch for, seconds",
            "batch_seconds": "Batches over, seconds",
        }
        help_texts = {
            "lag_seconds": "the oldest input has waited longer; empty, here and below: no limit",
            "pending_input": "in the source's unit, such as files or rows",
            "rejected_share": "of the rows of recent batches, from 0 to below 1: 0.2 for 20 %",
            "event_age_seconds": "of pipelines with event time, whether or not they run",
            "batch_gap_seconds": "since the newest commit, whether or not the pipeline runs or has input",
            "batch_seconds": "the median of the newest 5 batches took longer",
            "after_seconds": "how long a verdict, or a figure above its limit, has to last before a message is sent",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer("pipelines", pipeline_names(), self.instance.pipelines)
        self._offer("states", state_names(), self.instance.states)
        self.initial["mail_to"] = ", ".join(self.instance.mail_to)
        whole = {name: limit for name, limit in limits_of(self.instance).items() if limit == int(limit)}
        self.initial.update({name: int(limit) for name, limit in whole.items()})

    def clean_mail_to(self) -> list[str]:
        addresses = [each for each in re.split(r"[,;\s]+", self.cleaned_data["mail_to"]) if each]
        for address in addresses:
            try:
                validate_email(address)
            except ValidationError as error:
                raise ValidationError(f"{address!r} is not a valid mail address") from error
        if len(addresses) > MOST_ADDRESSES:
            raise ValidationError(f"{len(addresses)} addresses are more than {MOST_ADDRESSES}; use a mailing list")
        if addresses and not settings.TIDEGAUGE_MAIL:
            raise ValidationError("no mail server is configured: set EMAIL_URL in web and worker, or use a webhook")
        return addresses

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        for name in LIMITS:
            self._check_limit(name, cleaned.get(name))
        if not self.errors and not cleaned["verdicts"] and all(cleaned[name] is None for name in LIMITS):
            raise ValidationError("choose what to report: verdicts, or limits of figures")
        if not self.errors and not cleaned["mail_to"] and not cleaned["webhooks"]:
            raise ValidationError("choose where to report: mail addresses, or a webhook that is about alerts")
        return cleaned

    def _check_limit(self, name: str, limit: float | None) -> None:
        if limit is None or name == "pending_input":
            return
        if name == "rejected_share" and not 0 <= limit < 1:
            self.add_error(name, f"enter a share from 0 to below 1, such as 0.2 for 20 %, or nothing; got {limit:g}")
        elif name != "rejected_share" and limit <= 0:
            self.add_error(name, f"enter a number of seconds above 0, or nothing; got {limit:g}")

    def _offer(self, field: str, names: list[str], chosen: list[str]) -> None:
        # Includes names that no longer exist, so that a rule with one of them can still be saved.
        self.fields[field].choices = [(name, name) for name in sorted({*names, *chosen})]  # type: ignore[attr-defined]


class SilenceForm(forms.ModelForm):
    pipeline = forms.ChoiceField(required=False, widget=UnfoldAdminSelectWidget)

    class Meta:
        model = Silence
        fields = ["pipeline", "rule", "until", "reason"]
        help_texts = {"rule": "empty: all rules", "until": "in UTC"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = sorted({*pipeline_names(), *filter(None, [self.instance.pipeline])})
        offered = [("", "all pipelines"), *((name, name) for name in names)]
        self.fields["pipeline"].choices = offered  # type: ignore[attr-defined]

    def clean_until(self) -> Any:
        until = self.cleaned_data["until"]
        if until <= timezone.now():
            raise ValidationError("enter a time in the future")
        return until
