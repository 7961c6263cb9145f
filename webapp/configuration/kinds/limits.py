"""Limits of single pipelines, by the pipeline's name."""

from collections.abc import Collection
from typing import Any

from tidegauge.webapp.accounts.actors import Actor
from tidegauge.webapp.catalog.models import PipelineLimits
from tidegauge.webapp.configuration.fields import NUMBER, Field, Fields
from tidegauge.webapp.configuration.kinds.kind import check, record_added, record_changed, record_removed
from tidegauge.webapp.maintenance.admin.limits import PipelineLimitsForm


class Limits:
    noun = "limits of pipeline"
    fields = {"stale_seconds": Field(NUMBER), "rejected_share": Field(NUMBER)}
    kept: dict[str, Fields] = {}

    def stored(self, names: Collection[str] | None) -> dict[str, PipelineLimits]:
        limits = PipelineLimits.objects.all() if names is None else PipelineLimits.objects.filter(pipeline__in=names)
        return {each.pipeline: each for each in limits}

    def values(self, found: PipelineLimits) -> dict[str, Any]:
        return {name: getattr(found, name) for name in self.fields}

    def create(self, name: str, fields: Fields, by: Actor) -> str:
        record_added(check(PipelineLimitsForm({"pipeline": name, **fields})).save(), by)
        return ""

    def change(self, found: PipelineLimits, fields: Fields, by: Actor) -> None:
        form = check(PipelineLimitsForm({"pipeline": found.pipeline, **fields}, instance=found))
        form.save()
        record_changed(form, by)

    def remove(self, found: PipelineLimits, by: Actor) -> None:
        record_removed(found, by)
        found.delete()
