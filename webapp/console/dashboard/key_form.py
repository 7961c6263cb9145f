"""The dashboard's form for a new API key: the form of the admin with plain controls."""

from typing import Any, cast

from django import forms

from tidegauge.webapp.accounts.admin.forms import ApiKeyForm
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.permissions import missing_to_give


class KeyForm(ApiKeyForm):
    """giver: the user who creates the key. Only scopes that this user may give are offered."""

    def __init__(self, giver: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.giver = giver
        offered = [(scope.value, scope.label) for scope in Scope if not missing_to_give(giver, scope)]
        cast(forms.ChoiceField, self.fields["scopes"]).choices = offered
        for name in ("scopes", "states", "queries"):
            field = self.fields[name]
            field.widget = forms.CheckboxSelectMultiple(choices=field.choices)  # type: ignore[attr-defined]
        self.fields["key_prefix"].widget = forms.TextInput()
        self.fields["expires_at"].widget = forms.DateTimeInput(
            attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"
        )
        self.fields["name"].widget.attrs["autocomplete"] = "off"
        for name, field in self.fields.items():
            if field.help_text:
                field.widget.attrs["aria-describedby"] = f"help-{name}"
