"""Creates, changes and deletes boards and links to them, each with an entry in the audit log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.console.boards.models import MOST_LINKS, MOST_OF_A_PERSON, MOST_TILES, Board, BoardLink, Tile
from tidegauge.webapp.console.saved_views.models import SavedView
from tidegauge.webapp.console.saved_views.services import only_writer

# How long links are listed after their end.
KEEP_ENDED = timedelta(days=30)


class BoardError(ValueError):
    """The name is taken, or there are too many boards, tiles or links."""


@dataclass(frozen=True)
class Placed:
    """A view on a board. place: its rank, equal ones stay in the order given."""

    view: SavedView
    place: int = MOST_TILES
    is_wide: bool = False
    form: str = Tile.Form.CHART


def create_board(*, owner: User, name: str, is_shared: bool = False, tiles: Sequence[Placed] = ()) -> Board:
    """Raises BoardError."""
    with only_writer(owner):
        _check_name(owner, name)
        if owner.boards.count() >= MOST_OF_A_PERSON:
            raise BoardError(f"you already have {MOST_OF_A_PERSON} boards, the most allowed; delete one first")
        board = Board.objects.create(owner=owner, name=name, is_shared=is_shared)
        _place(board, tiles)
        _audit("create", board, is_shared=is_shared, views=_named(tiles))
    return board


def change_board(board: Board, *, name: str, is_shared: bool, tiles: Sequence[Placed]) -> None:
    """Give a board another name, access and tiles. Raises BoardError."""
    with only_writer(board.owner):
        _check_name(board.owner, name, but=board)
        # Not save(), because that would insert a board again that was deleted meanwhile.
        changed = {"name": name, "is_shared": is_shared, "changed_at": timezone.now()}
        if Board.objects.filter(pk=board.pk).update(**changed):
            _place(board, tiles)
            _audit("change", board, name=name, is_shared=is_shared, views=_named(tiles))


def delete_board(board: Board) -> None:
    with transaction.atomic():
        _audit("delete", board)
        Board.objects.filter(pk=board.pk).delete()


def create_link(board: Board, *, kind: BoardLink.Kind, days: int) -> BoardLink:
    """Raises BoardError."""
    with only_writer(board.owner):
        now = timezone.now()
        board.links.filter(expires_at__lt=now - KEEP_ENDED).delete()
        if sum(link.is_open for link in board.links.all()) >= MOST_LINKS:
            raise BoardError(f"this board already has {MOST_LINKS} links, the most allowed; revoke one first")
        link = BoardLink.objects.create(board=board, kind=kind, expires_at=now + timedelta(days=days))
        _audit("share", board, link=link.pk, kind=kind, expires_at=link.expires_at.isoformat())
    return link


def revoke_link(link: BoardLink, *, by: User) -> None:
    with transaction.atomic():
        if BoardLink.objects.filter(pk=link.pk, revoked_at=None).update(revoked_at=timezone.now()):
            record("board.revoke", f"board {link.board}", by=by.get_username(), link=link.pk, kind=link.kind)


def _check_name(owner: User, name: str, but: Board | None = None) -> None:
    if owner.boards.filter(name=name).exclude(pk=but and but.pk).exists():
        raise BoardError(f"you already have a board named {name!r}; choose another name")


def _place(board: Board, tiles: Sequence[Placed]) -> None:
    if len(tiles) > MOST_TILES:
        raise BoardError(f"{len(tiles)} tiles are more than the {MOST_TILES} that a board may have; leave some out")
    board.tiles.all().delete()
    ranked = enumerate(sorted(tiles, key=lambda each: each.place))
    Tile.objects.bulk_create(
        Tile(board=board, view=each.view, place=place, is_wide=each.is_wide, form=each.form) for place, each in ranked
    )


def _named(tiles: Sequence[Placed]) -> list[str]:
    return [each.view.name for each in tiles]


def _audit(act: str, board: Board, **detail: Any) -> None:
    record(f"board.{act}", f"board {board}", by=board.owner.get_username(), **detail)
