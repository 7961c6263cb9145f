"""The form for what may be edited of a state, and what an edit will do, in plain words."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

from django import forms
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminRadioSelectWidget, UnfoldAdminSelectWidget

from state_backends import BACKENDS, Catalog
from state_backends.errors import SpecError
from state_backends.schema.catalog import from_definition
from state_backends.schema.overrides import DECLARED, Terms, Ttl, changed
from webapp.states import maintenance, readers
from webapp.states.admin.base import UNITS, time_to_live
from webapp.states.models import State
from webapp.states.queries import StateSummary

LOG_WORDS = {True: "on", False: "off"}
EXPIRED_ROWS_RETURN = (
    "Rows past the ttl until now come back where expiry has not freed them yet; what it has freed is gone."
)
PIPELINE_FOLLOWS = (
    "The pipeline goes by it from its next batch on; a batch that is open is ended by the ttl it was begun with."
)
UPDATERS = (
    "Its values are JSON: an updater that waits for something in them, as a join does, loses what goes before it came."
)


class StateForm(forms.ModelForm):
    """ttl and changelog, each as declared or as people say."""

    keep = forms.ChoiceField(label="Rows are kept", widget=UnfoldAdminRadioSelectWidget)
    amount = forms.IntegerField(label="For", min_value=1, required=False, widget=UnfoldAdminIntegerFieldWidget)
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
        self._prepare_ttl()
        if refusal := no_changelog(self.instance):
            self.fields["changelog"].disabled = True
            self.fields["changelog"].help_text = refusal
        else:
            self.fields["changelog"].help_text = "Every version of every row, for history and reads in the past."
        declared = f"as declared: {LOG_WORDS[terms.declared_changelog]}"
        self._offer("changelog", [("declared", declared), ("on", "on"), ("off", "off")])
        self.initial["changelog"] = LOG_WORDS[terms.next_changelog] if "changelog" in terms.edited else "declared"

    def _prepare_ttl(self) -> None:
        terms, (amount, unit) = self.terms, _largest_unit(self.terms.ttl)
        declared = f"as declared: {time_to_live(terms.declared_ttl)}"
        so_long = "for so long after their last update:"
        self._offer("keep", [("declared", declared), ("never", "for ever"), ("so_long", so_long)])
        self.initial.update(keep=_choice(terms), amount=amount, unit=unit)

    def _offer(self, name: str, choices: list[tuple[str, str]]) -> None:
        cast(forms.ChoiceField, self.fields[name]).choices = choices

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        if cleaned["keep"] == "so_long" and cleaned.get("amount") is None:
            self.add_error("amount", "say for how long rows are kept, or choose another answer above")
            return cleaned
        try:
            changed(_spec(self.instance), self.terms, **self.wish())
        except (SpecError, OverflowError) as error:
            raise forms.ValidationError(str(error)) from error
        return cleaned

    def wish(self) -> dict[str, Any]:
        """Return what is wished, as services.change_state takes it."""
        answers = self.cleaned_data
        ttl: Ttl = DECLARED if answers["keep"] == "declared" else None
        if answers["keep"] == "so_long":
            ttl = timedelta(seconds=answers["amount"] * UNITS[answers["unit"]])
        return {"ttl": ttl, "changelog": {"on": True, "off": False}.get(answers["changelog"], DECLARED)}

    def after(self) -> Terms:
        return changed(_spec(self.instance), self.terms, **self.wish())


def no_changelog(state: State) -> str:
    """Return why a changelog can neither be begun nor dropped, empty where it can."""
    backend = BACKENDS[state.backend]
    if not backend.capabilities.copies:
        return (
            f"Its rows live in {backend.title} and are not copied, so it keeps the changelog it was made with, or none."
        )
    if state.definition["kind"] == "non_transactional":
        return "Its rows carry no txid, so there is nothing to keep versions by."
    return ""


def consequences(state: StateSummary, before: Terms, after: Terms) -> list[str]:
    """Return what an edit will do, a sentence each."""
    return [*_of_ttl(state, before, after), *_of_changelog(state, before, after)]


def loses_something(before: Terms, after: Terms) -> bool:
    """Tell whether an edit lets go of what cannot be had again."""
    return _is_shorter(before.ttl, after.ttl) or (before.changelog and not after.next_changelog)


def _of_ttl(state: StateSummary, before: Terms, after: Terms) -> Iterator[str]:
    if "ttl" in before.edited and "ttl" not in after.edited:
        yield f"The ttl is as declared again, {time_to_live(after.ttl)}, and follows the declaration from now on."
    elif "ttl" in after.edited and "ttl" not in before.edited and before.ttl == after.ttl:
        yield f"The ttl stays {time_to_live(after.ttl)}, also where the declaration changes."
    if before.ttl == after.ttl:
        return
    yield f"Rows are kept {_so(after.ttl)}, instead of {_so(before.ttl)}. For readers that counts at once."
    yield PIPELINE_FOLLOWS
    if not _is_shorter(before.ttl, after.ttl):
        yield EXPIRED_ROWS_RETURN
        return
    assert after.ttl is not None
    yield _gone(maintenance.older_than(state, after.ttl))
    if before.ttl is None and "value" in state.measures:
        yield UPDATERS


def _gone(rows: int | None) -> str:
    if rows == 0:
        return "No row is that old yet."
    if rows is None:
        return "Rows that are older are gone for readers at once, and freed for good by expiry."
    many = "1 row is" if rows == 1 else f"{rows:,} rows are"
    return f"{many} that old already: gone for readers at once, and freed for good by expiry."


def _of_changelog(state: StateSummary, before: Terms, after: Terms) -> Iterator[str]:
    if before.next_changelog == after.next_changelog:
        if before.edited ^ after.edited >= {"changelog"}:
            yield "The changelog stays as it is."
        return
    if after.next_changelog == after.changelog:
        yield "The changelog stays as it is; what was to change at the driver's next start does not."
        return
    when = f"when the driver of pipeline {state.pipeline} starts next"
    if after.next_changelog:
        rows = f"{state.keys_estimate:,} row{'' if state.keys_estimate == 1 else 's'}"
        yield f"The changelog begins {when}, which first copies {rows}. Restart it for that."
        yield "History and reads in the past begin at the batch that is committed then; nothing older can be told."
    else:
        yield f"The changelog is dropped {when}. History and reads in the past end with it, and cannot be had again."
        yield "Turned on again it begins anew."
    if state.kind == "transactional":
        yield "A driver that finds a batch open ends that first, and makes the change at the start after."


def _is_shorter(before: timedelta | None, after: timedelta | None) -> bool:
    return after is not None and (before is None or after < before)


def _so(ttl: timedelta | None) -> str:
    return "for ever" if ttl is None else f"for {time_to_live(ttl)} after their last update"


def _choice(terms: Terms) -> str:
    if "ttl" not in terms.edited:
        return "declared"
    return "never" if terms.ttl is None else "so_long"


def _largest_unit(ttl: timedelta | None) -> tuple[int | None, str]:
    """Return a ttl as a number of the largest unit that it is a whole number of."""
    if ttl is None:
        return None, "day"
    seconds = max(1, round(ttl.total_seconds()))
    return next((seconds // size, unit) for unit, size in UNITS.items() if seconds % size == 0)


def _spec(state: State) -> Any:
    return from_definition(state.name, state.definition, state.ttl)
