"""The forms for alert rules and silences: those of the admin with plain controls."""

from typing import Any, cast

from django import forms

from tidegauge.webapp.notify.alerts.figures import LIMITS
from tidegauge.webapp.notify.alerts.forms import AlertRuleForm, SilenceForm


class RuleForm(AlertRuleForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("pipelines", "states", "verdicts", "webhooks"):
            field = cast(Any, self.fields[name])
            field.widget = forms.CheckboxSelectMultiple(choices=field.choices)
        self.fields["mail_to"].widget = forms.TextInput()
        for name in (*LIMITS, "after_seconds"):
            self.fields[name].widget = forms.NumberInput(attrs={"step": "any", "min": 0})
        del self.fields["enabled"]
        for name, described in self.fields.items():
            if described.help_text:
                described.widget.attrs["aria-describedby"] = f"help-{name}"


class OwnSilenceForm(SilenceForm):
    """until: a time with an offset, which the browser makes of the reader's own time; in UTC without one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("pipeline", "rule"):
            field = cast(Any, self.fields[name])
            field.widget = forms.Select(choices=field.choices)
        cast(forms.ModelChoiceField, self.fields["rule"]).empty_label = "all rules"
        self.fields["until"] = forms.DateTimeField(widget=forms.DateTimeInput(attrs={"type": "datetime-local"}))
        self.fields["reason"].widget = forms.TextInput(attrs={"autocomplete": "off", "maxlength": 200})
