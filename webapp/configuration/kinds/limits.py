"""Limits of single pipelines, by the pipeline's name."""

from tidegauge.webapp.accounts.actors import Actor
from tidegauge.webapp.catalog.models import PipelineLimits
from tidegauge.webapp.configuration.fields import NUMBER, Field, Fields
from tidegauge.webapp.configuration.kinds.kind import FormKind, check
from tidegauge.webapp.maintenance.admin.limits import PipelineLimitsForm


class Limits(FormKind):
    noun = "limits of pipeline"
    model, name_field = PipelineLimits, "pipeline"
    fields = {"stale_seconds": Field(NUMBER), "rejected_share": Field(NUMBER)}

    def form(self, name: str, fields: Fields, found: PipelineLimits | None, by: Actor) -> PipelineLimitsForm:
        return check(PipelineLimitsForm({"pipeline": name, **fields}, instance=found))
