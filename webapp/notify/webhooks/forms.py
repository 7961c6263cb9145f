"""The form of a webhook: its URL, and what it is told about."""

from typing import Any

from django import forms
from rest_framework.exceptions import ParseError
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminTextInputWidget

from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.webapp.accounts.admin.forms import KeyScopeForm
from tidegauge.webapp.notify.webhooks.addresses import AddressError, check_url
from tidegauge.webapp.notify.webhooks.commits import subscription
from tidegauge.webapp.notify.webhooks.models import Kind, Webhook


class WebhookForm(KeyScopeForm):
    kinds = forms.MultipleChoiceField(
        label="About", choices=Kind, initial=[Kind.ALERT], widget=UnfoldAdminCheckboxSelectMultipleWidget
    )
    keys = forms.JSONField(
        required=False,
        initial=[],
        widget=UnfoldAdminTextInputWidget,
        help_text='only commits that change one of these keys, as a JSON list such as [["JFK", "AA"]]; empty: any key',
    )

    class Meta:
        model = Webhook
        fields = ["name", "url", "kinds", "states", "key_prefix", "keys", "enabled"]
        help_texts = {
            "url": "https://host/path; messages are sent there by POST",
            "enabled": "after it was disabled, it continues where it stopped",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["states"].help_text = "only their commits, pipelines and runs; none chosen: all pipelines and runs"
        self.fields[
            "key_prefix"
        ].help_text = 'only commits that change keys with these leading parts, a JSON list like ["JFK"]; empty: any'

    def clean_url(self) -> str:
        url = str(self.cleaned_data["url"])
        try:
            check_url(url)
        except AddressError as error:
            raise forms.ValidationError(str(error)) from error
        return url

    def clean_keys(self) -> list[Any]:
        keys = self.cleaned_data["keys"] or []
        if not isinstance(keys, list):
            raise forms.ValidationError('keys must be a JSON list of lists, such as [["JFK", "AA"]]')
        return keys

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors:
            self._check_commits(cleaned)
        return cleaned

    def _check_commits(self, cleaned: dict[str, Any]) -> None:
        if Kind.COMMIT not in cleaned["kinds"]:
            if cleaned["keys"] or cleaned["key_prefix"]:
                raise forms.ValidationError("keys and key prefix are about commits; choose them, or leave both empty")
            return
        if not cleaned["states"]:
            raise forms.ValidationError("choose the states whose commits are sent")
        if cleaned["keys"] and cleaned["key_prefix"]:
            raise forms.ValidationError("keys and key prefix exclude each other; leave one empty, or use two webhooks")
        chosen = Webhook(keys=cleaned["keys"], key_prefix=cleaned["key_prefix"])
        for state in cleaned["states"]:
            try:
                subscription(chosen, state)
            except (TidegaugeError, ParseError) as error:
                raise forms.ValidationError(f"{state}: {error}") from error
