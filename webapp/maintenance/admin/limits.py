"""The admin's pages for the limits of single pipelines."""

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminSelectWidget

from tidegauge.webapp.accounts.audit.admin import AuditedEdits
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.catalog import limits, queries
from tidegauge.webapp.catalog.limits import Limits
from tidegauge.webapp.catalog.models import PipelineLimits
from tidegauge.webapp.core.writing import percent


def limits_address(pipeline: str) -> str:
    """Return the page on which the limits of a pipeline are edited."""
    found = PipelineLimits.objects.filter(pipeline=pipeline).values_list("pk", flat=True).first()
    if found is None:
        return f"{reverse('admin:states_pipelinelimits_add')}?{urlencode({'pipeline': pipeline})}"
    return reverse("admin:states_pipelinelimits_change", args=[found])


def describe(limits: Limits) -> str:
    share = percent(limits.rejected_share or 0)
    return f"lag up to {limits.stale_seconds or 0:g} s, dead letters up to {share} of recent rows"


class PipelineLimitsForm(forms.ModelForm):
    pipeline = forms.ChoiceField(widget=UnfoldAdminSelectWidget)

    class Meta:
        model = PipelineLimits
        fields = ["pipeline", "stale_seconds", "rejected_share"]
        help_texts = {
            "stale_seconds": "it is stale if its oldest input has waited longer; empty: as in the settings",
            "rejected_share": "it is rejecting if more of its recent rows are dead letters, from 0 to 1; "
            "empty: as in the settings",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = sorted({*queries.pipeline_names(), *filter(None, [self.instance.pipeline])})
        self.fields["pipeline"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]

    def clean_stale_seconds(self) -> float | None:
        seconds: float | None = self.cleaned_data["stale_seconds"]
        if seconds is not None and not 0 < seconds < float("inf"):
            raise forms.ValidationError("enter a number of seconds above 0, or nothing")
        return seconds

    def clean_rejected_share(self) -> float | None:
        share: float | None = self.cleaned_data["rejected_share"]
        if share is not None and not 0 <= share <= 1:
            raise forms.ValidationError("enter a share from 0 to 1, such as 0.2 for 20 %, or nothing")
        return share


@admin.register(PipelineLimits)
class PipelineLimitsAdmin(AuditedEdits, ModelAdmin):
    form = PipelineLimitsForm
    list_display = ["pipeline", "stale_seconds", "rejected_share"]
    search_fields = ["pipeline"]

    def record_edit(self, by: str, act: str, instance: Any, **detail: Any) -> None:
        # Recorded for the pipeline, so that its page links to the entry.
        record(f"pipeline.limits_{act}", f"pipeline {instance}", by=by, **detail)
        limits.own_limits.clear()

    def audited(self, instance: PipelineLimits) -> dict[str, Any]:
        return {"stale_seconds": instance.stale_seconds, "rejected_share": instance.rejected_share}
