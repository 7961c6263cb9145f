"""The boards that a person sees: their own, and those that others share, of states that they may see."""

from collections.abc import Collection
from typing import Any

from django.contrib.auth.models import User
from django.db.models import BooleanField, Count, ExpressionWrapper, Q, QuerySet

from tidegauge.webapp.accounts.models import OidcIdentity
from tidegauge.webapp.accounts.permissions import person_scope
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.console.boards.models import Board, Tile
from tidegauge.webapp.console.saved_views.selectors import visible_views


def visible_boards(user: Any, visible: Visible) -> QuerySet[Board]:
    """Return the boards with their owners, the person's own first.

    A person restricted to a key prefix sees only their own, because names may quote any key; a person restricted to
    some states, only those without a tile of another state.
    """
    own = Q(owner=user)
    found = Board.objects.filter(own if visible.scope.key_prefix else own | Q(is_shared=True))
    if visible.names is not None:
        outside = Tile.objects.exclude(view__state__in=visible.names).values("board")
        found = found.filter(own | ~Q(pk__in=outside))
    is_own = ExpressionWrapper(own, output_field=BooleanField())
    found = found.annotate(is_own=is_own, number_of_tiles=Count("tiles")).select_related("owner")
    return found.order_by("-is_own", "name", "id")


def tiles_with_views(board: Board) -> list[Tile]:
    return list(board.tiles.select_related("view", "view__owner"))


def seen_views(tiles: Collection[Tile], user: Any, visible: Visible) -> frozenset[str]:
    """Return the ids of the views of tiles that a person sees."""
    found = visible_views(user, visible).filter(pk__in=[tile.view_id for tile in tiles])
    return frozenset(found.values_list("pk", flat=True))


def visible_of(owner: User) -> Visible:
    """Return what a person may see now, also if they are not the one who asks."""
    # As after a sign-in at the provider, so that who is in no group any more sees nothing.
    owner.is_from_provider = OidcIdentity.objects.filter(user=owner).exists()  # type: ignore[attr-defined]
    return Visible(person_scope(owner), owner.get_username())
