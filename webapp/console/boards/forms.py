"""The dashboard's forms for boards: name and access, the tiles, and a link."""

from collections.abc import Sequence

from django import forms
from django.conf import settings
from django.http import QueryDict

from tidegauge.webapp.console.boards.models import MOST_TILES, BoardLink, Tile
from tidegauge.webapp.console.boards.services import Placed
from tidegauge.webapp.console.saved_views.forms import SavedViewForm
from tidegauge.webapp.console.saved_views.models import SavedView

DAYS = ((1, "1 day"), (7, "7 days"), (30, "30 days"), (90, "90 days"))


class BoardForm(SavedViewForm):
    is_shared = forms.BooleanField(required=False, label="Share with everyone who may see the states on it")


class LinkForm(forms.Form):
    kind = forms.ChoiceField(choices=BoardLink.Kind.choices)
    days = forms.TypedChoiceField(choices=DAYS, coerce=int, initial=7)

    def clean_kind(self) -> BoardLink.Kind:
        kind = BoardLink.Kind(self.cleaned_data["kind"])
        if kind == BoardLink.Kind.FRAME and not settings.TIDEGAUGE_FRAME_ORIGINS:
            raise forms.ValidationError("no page may show frames here: TIDEGAUGE_FRAME_ORIGINS names none")
        return kind


def placed(posted: QueryDict, tiles: Sequence[Tile], addable: Sequence[SavedView]) -> list[Placed]:
    """Return the tiles that a form leaves, with the views that it adds. Invalid numbers leave a tile at the end."""
    kept = [
        Placed(
            tile.view,
            _place(posted.get(f"place-{tile.pk}", "")),
            f"wide-{tile.pk}" in posted,
            posted.get(f"form-{tile.pk}", "") if posted.get(f"form-{tile.pk}") in Tile.Form.values else tile.form,
        )
        for tile in tiles
        if f"remove-{tile.pk}" not in posted
    ]
    added = set(posted.getlist("add"))
    return kept + [Placed(view) for view in addable if view.pk in added]


def _place(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 3 else MOST_TILES
