"""Forms of an API key and of what it has in common with the restriction of a user or group."""

from datetime import timedelta
from functools import partial
from typing import Any

from django import forms
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminSelectMultipleWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from tidegauge.webapp.accounts import restrictable
from tidegauge.webapp.accounts.key_options import GRACE, KeyOptionError, Scope, check
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.permissions import missing_to_give

# Choices of the grace period at a rotation, in seconds.
GRACES = {
    0: "not at all: another person may know it",
    3_600: "one hour",
    86_400: "one day",
    7 * 86_400: "one week",
    30 * 86_400: "thirty days",
}


class KeyScopeForm(forms.ModelForm):
    """The fields that a restriction and an API key have in common."""

    states = forms.MultipleChoiceField(
        choices=partial(restrictable.choices, "states"),
        required=False,
        widget=UnfoldAdminSelectMultipleWidget,
        help_text="restricted to these states; none selected: all states, including future ones",
    )
    key_prefix = forms.JSONField(
        required=False,
        initial=[],
        widget=UnfoldAdminTextInputWidget,
        help_text='restricted to keys with these leading parts, as a JSON list such as ["JFK"]; empty: all keys',
    )

    def clean_key_prefix(self) -> list[Any]:
        prefix = self.cleaned_data["key_prefix"] or []
        if not isinstance(prefix, list) or not all(isinstance(part, str | int | float) for part in prefix):
            raise forms.ValidationError(
                'a key prefix is a list of strings, numbers and booleans; enter a list such as ["JFK"]'
            )
        return prefix


class ApiKeyForm(KeyScopeForm):
    """giver: the user who creates the key, and cannot give it scopes beyond their own permissions."""

    giver: Any = None

    scopes = forms.MultipleChoiceField(
        choices=Scope,
        initial=[Scope.READ],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="what the key allows",
    )
    queries = forms.MultipleChoiceField(
        label="Saved queries",
        choices=partial(restrictable.choices, "saved queries"),
        required=False,
        widget=UnfoldAdminSelectMultipleWidget,
        help_text="the key may only run these; none selected: no such restriction",
    )

    class Meta:
        model = ApiKey
        fields = ["name", "scopes", "states", "key_prefix", "queries", "rate", "burst", "expires_at"]
        help_texts = {
            "name": "who will use it",
            "rate": "requests per minute; empty: the default of the settings; 0: no limit",
            "burst": "how many of them at once; empty: the requests of one minute",
            "expires_at": "in UTC; empty: never",
        }

    def clean_scopes(self) -> list[str]:
        scopes: list[str] = self.cleaned_data["scopes"]
        for scope in scopes:
            if lacking := missing_to_give(self.giver, scope):
                raise forms.ValidationError(f"you may not give the scope {scope!r}: you lack {', '.join(lacking)}")
        return scopes

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors:
            try:
                check(ApiKey(**cleaned))
            except KeyOptionError as error:
                raise forms.ValidationError(str(error)) from error
        return cleaned


class RotateForm(forms.Form):
    grace = forms.TypedChoiceField(
        label="How long does the current secret stay valid?",
        choices=GRACES,
        coerce=lambda seconds: timedelta(seconds=int(seconds)),
        initial=int(GRACE.total_seconds()),
        widget=UnfoldAdminSelectWidget,
    )


class RevokeTokenForm(forms.Form):
    token = forms.CharField(label="The token, or its id", max_length=8_000, widget=UnfoldAdminTextInputWidget)
