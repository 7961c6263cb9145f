from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.webapp.console.saved_views.conftest import person
from tests.webapp.fixtures import connection, filled, flights, reader
from tidegauge.webapp.console.boards.models import Board
from tidegauge.webapp.console.boards.services import Placed, create_board
from tidegauge.webapp.console.saved_views.models import SavedView

__all__ = ["connection", "filled", "flights", "person", "reader"]

# A state and a question for each form of a tile.
CHART = ("flights_by_hour", {"split": "origin"})
BARS = ("flights_by_carrier", {"group": ["origin"], "order": "-flights"})
TABLE = ("flights_by_carrier", {"where": ["flights>90"], "measures": "flights"})
FIGURES = ("totals", {})


@pytest.fixture
def owner(reader, django_user_model):
    """The user of `reader`."""
    return django_user_model.objects.get(username="reader")


@pytest.fixture
def board(filled, owner) -> Callable[..., Board]:
    """Makes a board of the reader. views: a state and a question for each tile. shared: whether the views are."""

    def made(*views: tuple[str, dict[str, Any]], name: str = "Morning", shared: bool = True, **options: Any) -> Board:
        placed = [
            Placed(
                SavedView.objects.create(
                    owner=owner, name=f"View {place} of {name}", state=state, question=question, is_shared=shared
                ),
                place,
            )
            for place, (state, question) in enumerate(views)
        ]
        return create_board(owner=owner, name=name, tiles=placed, **options)

    return made


@pytest.fixture
def sharer(reader, owner) -> Client:
    """The reader, who may also show boards to people without an account."""
    owner.user_permissions.add(Permission.objects.get(codename="add_boardlink"))
    return reader
