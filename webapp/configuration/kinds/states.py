"""Retention and changelog of states where people have overridden the declared ones; null is as declared."""

from collections.abc import Collection
from typing import Any

from tidegauge.webapp.accounts.actors import Actor, name_of
from tidegauge.webapp.catalog.models import State
from tidegauge.webapp.catalog.queries import state_names
from tidegauge.webapp.configuration.errors import ConfigurationError
from tidegauge.webapp.configuration.fields import FLAG, Field, Fields
from tidegauge.webapp.configuration.kinds.kind import check
from tidegauge.webapp.configuration.spans import RETENTION, UNLIMITED, parts_of
from tidegauge.webapp.maintenance import operations
from tidegauge.webapp.maintenance.admin.editing import StateForm

# How the form of the admin names them.
CHANGELOG = {True: "on", False: "off", None: "declared"}


class States:
    noun = "state"
    fields = {"retention": Field(RETENTION), "changelog": Field(FLAG)}
    kept: dict[str, Fields] = {}

    def stored(self, names: Collection[str] | None) -> dict[str, State]:
        states = State.objects.exclude(edits={}) if names is None else State.objects.filter(name__in=names)
        return {state.name: state for state in states}

    def values(self, found: State) -> dict[str, Any]:
        ttl = None if "ttl" not in found.edits else UNLIMITED if found.ttl is None else found.ttl
        return {"retention": ttl, "changelog": found.edits.get("changelog")}

    def create(self, name: str, fields: Fields, by: Actor) -> str:
        raise ConfigurationError(f"it does not exist; there are {', '.join(state_names()) or 'none'}")

    def change(self, found: State, fields: Fields, by: Actor) -> None:
        retention, answers = fields["retention"], {"keep": "declared", "changelog": CHANGELOG[fields["changelog"]]}
        if retention == UNLIMITED:
            answers["keep"] = "never"
        elif retention:
            amount, unit = parts_of(retention)
            answers |= {"keep": "so_long", "amount": str(amount), "unit": unit}
        form = check(StateForm(answers, instance=found))
        operations.change_state(name=found.name, **form.changes(), requested_by=name_of(by))

    def remove(self, found: State, by: Actor) -> None:
        self.change(found, {"retention": None, "changelog": None}, by)
