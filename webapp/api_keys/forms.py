"""What is asked of people who make or rotate an API key in the admin."""

from datetime import timedelta
from typing import Any

from django import forms
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminSelectMultipleWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from webapp.api_keys import services
from webapp.api_keys.models import ApiKey, Scope
from webapp.states import selectors

GRACES = {
    0: "not at all: it may be in wrong hands",
    3_600: "one hour",
    86_400: "one day",
    7 * 86_400: "one week",
    30 * 86_400: "thirty days",
}


class ApiKeyForm(forms.ModelForm):
    scopes = forms.MultipleChoiceField(
        choices=Scope,
        initial=[Scope.READ],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="what the key is good for",
    )
    states = forms.MultipleChoiceField(
        choices=lambda: [(name, name) for name in selectors.state_names()],
        required=False,
        widget=UnfoldAdminSelectMultipleWidget,
        help_text="the states it is confined to; none chosen: all, those to come as well",
    )
    key_prefix = forms.JSONField(
        required=False,
        initial=[],
        widget=UnfoldAdminTextInputWidget,
        help_text='the leading key parts it is confined to, as a JSON list such as ["JFK"]; empty: all keys',
    )

    class Meta:
        model = ApiKey
        fields = ["name", "scopes", "states", "key_prefix", "rate", "burst", "expires_at"]
        help_texts = {
            "name": "who will use it",
            "rate": "requests a minute; empty: what the settings say; 0: no limit",
            "burst": "how many of them at once; empty: a minute's worth",
            "expires_at": "in UTC; empty: never",
        }

    def clean_key_prefix(self) -> list[Any]:
        prefix = self.cleaned_data["key_prefix"]
        if not isinstance(prefix or [], list):
            raise forms.ValidationError('a list is needed, such as ["JFK"]')
        return prefix or []

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors:
            try:
                services.check(ApiKey(**cleaned))
            except services.KeyOptionError as error:
                raise forms.ValidationError(str(error)) from error
        return cleaned


class RotateForm(forms.Form):
    grace = forms.TypedChoiceField(
        label="How long is the present secret still good?",
        choices=GRACES,
        coerce=lambda seconds: timedelta(seconds=int(seconds)),
        initial=int(services.GRACE.total_seconds()),
        widget=UnfoldAdminSelectWidget,
    )
