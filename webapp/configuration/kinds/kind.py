"""What each kind of object in a configuration has, and how forms of the admin check and record for it."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, TypeVar, cast

from django import forms
from django.contrib import admin
from django.core.exceptions import NON_FIELD_ERRORS
from django.db.models import Model
from django.utils.text import get_text_list

from tidegauge.webapp.accounts.actors import Actor, name_of
from tidegauge.webapp.accounts.audit.admin import AuditedEdits
from tidegauge.webapp.configuration.errors import ConfigurationError
from tidegauge.webapp.configuration.fields import Field, Fields


class Kind(Protocol):
    """noun: of one object. fields: by name, with their types and defaults.

    kept: objects that are restored to these fields where others are removed.
    """

    noun: str

    # Properties, because a protocol's plain attribute could be assigned any mapping.
    @property
    def fields(self) -> Mapping[str, Field]: ...

    @property
    def kept(self) -> Mapping[str, Fields]: ...

    def stored(self, names: Collection[str] | None) -> dict[str, Any]:
        """Return the objects by name. names: None means all. Raises ConfigurationError."""

    def values(self, found: Any) -> dict[str, Any]:
        """Return the stored values by field; their types make them comparable."""

    def create(self, name: str, fields: Fields, by: Actor) -> str:
        """Returns the secret of what was created, if it has one. Raises ConfigurationError and ValueError."""

    def change(self, found: Any, fields: Fields, by: Actor) -> None:
        """Raises ConfigurationError and ValueError."""

    def remove(self, found: Any, by: Actor) -> None:
        """Raises ConfigurationError and ValueError."""


Form = TypeVar("Form", bound=forms.ModelForm)


def check(form: Form) -> Form:
    """Raises ConfigurationError with all that a form of the admin refuses."""
    if form.is_valid():
        return form
    found = [
        f"{'' if field == NON_FIELD_ERRORS else f'{field}: '}{' '.join(map(str, errors))}"
        for field, errors in form.errors.items()
    ]
    raise ConfigurationError("; ".join(found))


class FormKind:
    """The base of kinds that a form of the admin stores alone. name_field: the field of the model that has the name."""

    model: type[Model]
    name_field = "name"
    fields: Mapping[str, Field]
    kept: Mapping[str, Fields] = {}

    def stored(self, names: Collection[str] | None) -> dict[str, Any]:
        every = self.model._default_manager.all()
        found = every if names is None else every.filter(**{f"{self.name_field}__in": names})
        return {getattr(each, self.name_field): each for each in found}

    def values(self, found: Any) -> dict[str, Any]:
        return {name: getattr(found, name) for name in self.fields}

    def form(self, name: str, fields: Fields, found: Any, by: Actor) -> forms.ModelForm:
        """Return the valid form of an object, which is new if `found` is None. Raises ConfigurationError."""
        raise NotImplementedError

    def create(self, name: str, fields: Fields, by: Actor) -> str:
        record_added(self.form(name, fields, None, by).save(), by)
        return ""

    def change(self, found: Any, fields: Fields, by: Actor) -> None:
        form = self.form(getattr(found, self.name_field), fields, found, by)
        form.save()
        record_changed(form, by)

    def remove(self, found: Any, by: Actor) -> None:
        record_removed(found, by)
        found.delete()


def record_added(added: Model, by: Actor) -> None:
    """Write the audit entry that the admin writes."""
    edited = _admin_of(added)
    edited.record_edit(name_of(by), "add", added, **edited.audited(added))


def record_changed(form: forms.ModelForm, by: Actor) -> None:
    edited = _admin_of(form.instance)
    says = f"Changed {get_text_list(form.changed_data, 'and')}."
    edited.record_edit(name_of(by), "change", form.instance, changes=says, **edited.audited(form.instance))


def record_removed(removed: Model, by: Actor) -> None:
    _admin_of(removed).record_edit(name_of(by), "delete", removed)


def _admin_of(instance: Model) -> AuditedEdits:
    return cast(AuditedEdits, admin.site.get_model_admin(type(instance)))
