"""The form for the settings of a state, and the sentences that say what an edit will do."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

from django import forms
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminRadioSelectWidget, UnfoldAdminSelectWidget

from tidegauge.state_backends import BACKENDS, Catalog
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.schema.definition import from_definition
from tidegauge.state_backends.schema.overrides import DECLARED, Terms, Ttl, changed
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.models import State
from tidegauge.webapp.catalog.retention import UNITS, time_to_live
from tidegauge.webapp.catalog.state_summary import StateSummary
from tidegauge.webapp.maintenance import runner

ON_OFF = {True: "on", False: "off"}
EXPIRED_ROWS_RETURN = "Rows that were past the old retention are visible again unless expiry has removed them."
PIPELINE_FOLLOWS = "The pipeline uses it from its next batch on; an open batch keeps the old retention."
UPDATERS = (
    "The values are JSON. An updater that keeps data for a later event, such as a join, loses data that expires first."
)


class StateForm(forms.ModelForm):
    """Edits retention and changelog, each as declared or overridden."""

    keep = forms.ChoiceField(label="Retention", widget=UnfoldAdminRadioSelectWidget)
    amount = forms.IntegerField(label="Amount", min_value=1, required=False, widget=UnfoldAdminIntegerFieldWidget)
    unit = forms.ChoiceField(
        label="Unit", choices=[(unit, f"{unit}s") for unit in UNITS], required=False, widget=UnfoldAdminSelectWidget
    )
    changelog = forms.ChoiceField(label="Changelog", required=False, widget=UnfoldAdminRadioSelectWidget)

    class Meta:
        model = State
        fields: list[str] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.terms = terms = Catalog(readers.connection()).terms(self.instance.name)
        self._set_up_ttl()
        if refusal := no_changelog(self.instance):
            self.fields["changelog"].disabled = True
            self.fields["changelog"].help_text = refusal
        else:
            self.fields[
                "changelog"
            ].help_text = "Keeps every version of every row, for history and reads of earlier batches."
        declared = f"as declared: {ON_OFF[terms.declared_changelog]}"
        self._offer("changelog", [("declared", declared), ("on", "on"), ("off", "off")])
        self.initial["changelog"] = ON_OFF[terms.next_changelog] if "changelog" in terms.edited else "declared"

    def _set_up_ttl(self) -> None:
        terms, (amount, unit) = self.terms, _largest_unit(self.terms.ttl)
        declared = f"as declared: {time_to_live(terms.declared_ttl)}"
        limited = "limited, counted from the last update"
        self._offer("keep", [("declared", declared), ("never", "unlimited"), ("so_long", limited)])
        self.initial.update(keep=_choice(terms), amount=amount, unit=unit)

    def _offer(self, name: str, choices: list[tuple[str, str]]) -> None:
        cast(forms.ChoiceField, self.fields[name]).choices = choices

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        if cleaned["keep"] == "so_long" and cleaned.get("amount") is None:
            self.add_error("amount", "enter an amount, or choose another retention")
            return cleaned
        try:
            changed(_spec(self.instance), self.terms, **self.changes())
        except (SpecError, OverflowError) as error:
            raise forms.ValidationError(str(error)) from error
        return cleaned

    def changes(self) -> dict[str, Any]:
        """Return the settings as arguments of services.change_state."""
        answers = self.cleaned_data
        ttl: Ttl = DECLARED if answers["keep"] == "declared" else None
        if answers["keep"] == "so_long":
            ttl = timedelta(seconds=answers["amount"] * UNITS[answers["unit"]])
        return {"ttl": ttl, "changelog": {"on": True, "off": False}.get(answers["changelog"], DECLARED)}

    def after(self) -> Terms:
        return changed(_spec(self.instance), self.terms, **self.changes())


def no_changelog(state: State) -> str:
    """Return why the changelog cannot be turned on or off; empty if it can."""
    backend = BACKENDS[state.backend]
    if backend.tables is None:
        return f"Its rows live in {backend.title} and are not copied, so it keeps the changelog it has, or none."
    if state.definition["kind"] == "non_transactional":
        return "Its rows have no txid, so their versions cannot be kept."
    return ""


def consequences(state: StateSummary, before: Terms, after: Terms) -> list[str]:
    """Return what an edit will do, as sentences."""
    return [*_of_ttl(state, before, after), *_of_changelog(state, before, after)]


def loses_something(before: Terms, after: Terms) -> bool:
    """Return whether an edit removes data that cannot be restored."""
    return _is_shorter(before.ttl, after.ttl) or (before.changelog and not after.next_changelog)


def _of_ttl(state: StateSummary, before: Terms, after: Terms) -> Iterator[str]:
    if "ttl" in before.edited and "ttl" not in after.edited:
        yield f"The retention is reset to the declared one, {time_to_live(after.ttl)}, and follows the declaration."
    elif "ttl" in after.edited and "ttl" not in before.edited and before.ttl == after.ttl:
        yield f"The retention stays {time_to_live(after.ttl)} even if the declaration changes."
    if before.ttl == after.ttl:
        return
    yield f"The retention changes from {time_to_live(before.ttl)} to {time_to_live(after.ttl)}."
    yield "It applies to readers immediately."
    yield PIPELINE_FOLLOWS
    if not _is_shorter(before.ttl, after.ttl):
        yield EXPIRED_ROWS_RETURN
        return
    assert after.ttl is not None
    yield _expired(runner.older_than(state, after.ttl))
    if before.ttl is None and "value" in state.measures:
        yield UPDATERS


def _expired(rows: int | None) -> str:
    if rows == 0:
        return "No row is that old yet."
    if rows is None:
        return "Older rows disappear for readers immediately, and expiry removes them permanently."
    older = "1 row is" if rows == 1 else f"{rows:,} rows are"
    return f"{older} older. They disappear for readers immediately, and expiry removes them permanently."


def _of_changelog(state: StateSummary, before: Terms, after: Terms) -> Iterator[str]:
    if before.next_changelog == after.next_changelog:
        if before.edited ^ after.edited >= {"changelog"}:
            yield "The changelog stays as it is."
        return
    if after.next_changelog == after.changelog:
        yield "The changelog stays as it is; the change planned for the next start of the driver is cancelled."
        return
    when = f"at the next start of the driver of pipeline {state.pipeline}"
    if after.next_changelog:
        rows = f"{state.keys_estimate:,} row{'' if state.keys_estimate == 1 else 's'}"
        yield f"The changelog starts {when}. The driver copies {rows} first. Restart it to apply the change."
        yield "History and reads of earlier batches start at the batch that is committed then."
    else:
        yield f"The changelog is deleted {when}, and history and reads of earlier batches with it."
        yield "This cannot be undone. If it is turned on again, it starts empty."
    if state.kind == "transactional":
        yield "If a batch is open then, the driver completes it and applies the change at the start after that."


def _is_shorter(before: timedelta | None, after: timedelta | None) -> bool:
    return after is not None and (before is None or after < before)


def _choice(terms: Terms) -> str:
    if "ttl" not in terms.edited:
        return "declared"
    return "never" if terms.ttl is None else "so_long"


def _largest_unit(ttl: timedelta | None) -> tuple[int | None, str]:
    """Return a ttl as a whole number of the largest possible unit."""
    if ttl is None:
        return None, "day"
    seconds = max(1, round(ttl.total_seconds()))
    return next((seconds // size, unit) for unit, size in UNITS.items() if seconds % size == 0)


def _spec(state: State) -> Any:
    return from_definition(state.name, state.definition, state.ttl)
