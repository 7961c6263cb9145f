"""Saved queries: the newest published version of each. A version does not change, so a changed one is the next one."""

import json
from collections.abc import Collection
from typing import Any

from tidegauge.webapp.accounts.actors import Actor, name_of
from tidegauge.webapp.api.saved_queries import services
from tidegauge.webapp.api.saved_queries.admin import SavedQueryForm
from tidegauge.webapp.api.saved_queries.models import SavedQuery
from tidegauge.webapp.configuration.fields import OBJECT, REQUIRED, TEXT, Field, Fields
from tidegauge.webapp.configuration.kinds.kind import check


class SavedQueries:
    noun = "saved query"
    fields = {"description": Field(TEXT, ""), "definition": Field(OBJECT, REQUIRED)}
    kept: dict[str, Fields] = {}

    def stored(self, names: Collection[str] | None) -> dict[str, SavedQuery]:
        versions = _published().order_by("name", "-version").distinct("name")
        return {query.name: query for query in (versions if names is None else versions.filter(name__in=names))}

    def values(self, found: SavedQuery) -> dict[str, Any]:
        return {"description": found.description, "definition": found.definition}

    def create(self, name: str, fields: Fields, by: Actor) -> str:
        form = check(SavedQueryForm({"name": name, **fields, "definition": json.dumps(fields["definition"])}))
        version = services.create_version(name, fields["definition"], description=form.cleaned_data["description"])
        services.publish(version, by=name_of(by))
        return ""

    def change(self, found: SavedQuery, fields: Fields, by: Actor) -> None:
        self.create(found.name, fields, by)

    def remove(self, found: SavedQuery, by: Actor) -> None:
        # All versions, because without the newest one, the one before it would answer again.
        for version in _published().filter(name=found.name):
            services.withdraw(version, by=name_of(by))


def _published() -> Any:
    return SavedQuery.objects.filter(published_at__isnull=False, withdrawn_at=None)
