"""The dashboard's form for the name and access of a view."""

from django import forms

from tidegauge.webapp.console.saved_views.models import NAME_CHARACTERS


class SavedViewForm(forms.Form):
    name = forms.CharField(max_length=NAME_CHARACTERS)
    is_shared = forms.BooleanField(required=False, label="Share with everyone who may see this state")

    def clean_name(self) -> str:
        name = " ".join(self.cleaned_data["name"].split())
        if not name.isprintable():
            raise forms.ValidationError("use a name without control characters")
        return name
