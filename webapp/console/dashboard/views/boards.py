"""Boards: lists them, shows one, and lets owners make, change and share theirs."""

from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tidegauge.webapp.accounts.concurrency import SEARCHES, BusyError, TooManyAtOnceError, client_of
from tidegauge.webapp.accounts.permissions import SHARE_BOARDS
from tidegauge.webapp.catalog.visible import Visible, of_request
from tidegauge.webapp.console.boards import services
from tidegauge.webapp.console.boards.forms import BoardForm, LinkForm, placed
from tidegauge.webapp.console.boards.links import token_of
from tidegauge.webapp.console.boards.models import MOST_TILES, Board, BoardLink, Tile
from tidegauge.webapp.console.boards.selectors import seen_views, tiles_with_views, visible_boards
from tidegauge.webapp.console.dashboard.boards.together import Shown, pipelines_by_state, read_together
from tidegauge.webapp.console.dashboard.strip import keep
from tidegauge.webapp.console.dashboard.views.live import (
    View,
    ask,
    is_current,
    no_change,
    page,
    pipelines_version,
    sentence,
    signed_in,
    static_page,
    unknown,
)
from tidegauge.webapp.console.saved_views.models import SavedView
from tidegauge.webapp.console.saved_views.selectors import visible_views
from tidegauge.webapp.core.confirmation import Confirmation

PAGE_BOARDS = 50
# A tile takes as long as so many rows of other pages.
ROWS_OF_A_TILE = 10


@require_safe
@signed_in
def all_boards(request):
    """All boards that the user sees."""
    visible = of_request(request)
    found = Paginator(visible_boards(request.user, visible), PAGE_BOARDS).get_page(request.GET.get("page"))
    context = {"boards": found, "shows_owners": visible.names is None}
    return static_page(request, "dashboard/boards.html", context)


@require_safe
@signed_in
def board(request, board_id):
    visible = of_request(request)
    found = visible_boards(request.user, visible).filter(pk=board_id).first()
    if found is None:
        return _unknown_board(request, board_id)
    asked = Asked(found, request.user, visible)
    keep(request, asked.pipelines)
    if is_current(request, asked.version):
        return no_change()
    version, busy = asked.version, None
    context: dict[str, Any] = {"board": found, "is_own": found.owner_id == request.user.pk, "links_to": True}
    context["shows_owners"] = visible.names is None
    try:
        with SEARCHES.held(client_of(request)):
            context["tiles"] = asked.read()
    except (TooManyAtOnceError, BusyError) as error:
        version, busy = "", error
    if busy or any(shown.is_unread for shown in context["tiles"]):
        version = ""  # so that the next refresh reads the values again
    rows = ROWS_OF_A_TILE * len(asked.tiles)
    return page(request, "dashboard/board.html", version, context, rows=rows, busy=busy)


class Asked:
    """A board as a person sees it. pipelines: all that the person sees. version: changes with what the board shows."""

    def __init__(self, board: Board, user: Any, visible: Visible) -> None:
        self._visible = visible
        self.tiles = tiles_with_views(board)
        self._seen = seen_views(self.tiles, user, visible)
        self.pipelines = visible.pipelines()
        self._feeding = pipelines_by_state(self.pipelines)
        names = {tile.view.state for tile in self.tiles}
        fed = {self._feeding[name].name: self._feeding[name] for name in sorted(names & self._feeding.keys())}
        views = [(tile.pk, tile.view_id, tile.view.changed_at, tile.view_id in self._seen) for tile in self.tiles]
        self.version = pipelines_version(fed.values(), others=(board.name, board.changed_at, views))

    def read(self) -> list[Shown]:
        return read_together(self.tiles, self._seen, self._visible, self._feeding)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def create(request):
    """Make a board, empty or with the view that the address names, and open its form."""
    views = visible_views(request.user, of_request(request))
    first = views.filter(pk=request.GET.get("view", "").replace("\0", "")).first()
    form = BoardForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        tiles = [services.Placed(first)] if first else []
        try:
            made = services.create_board(owner=request.user, tiles=tiles, **form.cleaned_data)
        except services.BoardError as error:
            form.add_error("name", str(error))
        else:
            return redirect("dashboard:board" if first else "dashboard:edit_board", made.pk)
    return _form(request, form, back=reverse("dashboard:boards"))


def own_board(view: View) -> View:
    """Call `view(request, board, ..)` with a board that the signed-in user owns."""

    @wraps(view)
    def of_owner(request: HttpRequest, board_id: str, **rest: Any) -> HttpResponse:
        found = Board.objects.select_related("owner").filter(pk=board_id, owner_id=request.user.pk).first()
        return _unknown_board(request, board_id) if found is None else view(request, found, **rest)

    return never_cache(login_required(of_owner))


@require_http_methods(["GET", "HEAD", "POST"])
@own_board
def edit(request, board):
    """Rename a board, share it or make it private, and choose its tiles."""
    form = BoardForm(request.POST if request.method == "POST" else None, initial=vars(board))
    tiles = tiles_with_views(board)
    addable = _addable(request, tiles)
    if request.method == "POST" and form.is_valid():
        try:
            services.change_board(board, **form.cleaned_data, tiles=placed(request.POST, tiles, addable))
        except services.BoardError as error:
            form.add_error("name", str(error))
        else:
            messages.success(request, f"The board {form.cleaned_data['name']} is saved.")
            return redirect("dashboard:board", board.pk)
    return _form(request, form, back=board.get_absolute_url(), board=board, tiles=tiles, addable=addable)


def _addable(request: HttpRequest, tiles: list[Tile]) -> list[SavedView]:
    return list(visible_views(request.user, of_request(request)).exclude(pk__in=[tile.view_id for tile in tiles]))


def _form(request: HttpRequest, form: BoardForm, **context: Any) -> HttpResponse:
    context |= {"form": form, "most": MOST_TILES, "forms": Tile.Form.choices}
    return static_page(request, "dashboard/board_form.html", context, 400 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@own_board
def delete(request, board):
    if (asked := ask(request, _deletion(board))) is not None:
        return asked
    services.delete_board(board)
    messages.success(request, f"The board {board} is deleted.")
    return redirect("dashboard:boards")


def _deletion(board: Board) -> Confirmation:
    links = sum(link.is_open for link in board.links.all())
    ends = f" {links} link{'' if links == 1 else 's'} to it will no longer work." if links else ""
    return Confirmation(
        title=f"Delete the board {board}?",
        button="Delete",
        cancel_url=reverse("dashboard:boards"),
        notes=[f"Its saved views stay.{ends} This cannot be undone."],
        danger=True,
        seen={f"board {board}": {"links": links}},
    )


@require_http_methods(["GET", "HEAD", "POST"])
@own_board
def share(request, board):
    """Show the links to a board, and make one."""
    form = LinkForm(request.POST if request.method == "POST" else None)
    if request.method == "POST":
        if not request.user.has_perm(SHARE_BOARDS):
            raise PermissionDenied(f"you lack the permission {SHARE_BOARDS!r}; the groups operator and admin have it")
        if form.is_valid():
            try:
                services.create_link(board, **form.cleaned_data)
            except services.BoardError as error:
                form.add_error(None, str(error))
            else:
                return redirect("dashboard:share_board", board.pk)
    links = [(link, _address(request, link), link.is_open) for link in board.links.all()]
    context = {
        "board": board,
        "form": form,
        "links": links,
        "may_share": request.user.has_perm(SHARE_BOARDS),
        "origins": settings.TIDEGAUGE_FRAME_ORIGINS,
        "permission": SHARE_BOARDS,
    }
    return static_page(request, "dashboard/board_links.html", context, 400 if form.errors else 200)


def _address(request: HttpRequest, link: BoardLink) -> str:
    name = "dashboard:frame" if link.kind == BoardLink.Kind.FRAME else "dashboard:shared_board"
    return request.build_absolute_uri(reverse(name, args=[token_of(link)]))


@require_POST
@own_board
def revoke(request, board, link_id):
    link = board.links.filter(pk=link_id).first()
    if link is not None:
        services.revoke_link(link, by=request.user)
        messages.success(request, sentence(f"the {link} is revoked"))
    return redirect("dashboard:share_board", board.pk)


def _unknown_board(request: HttpRequest, board_id: str) -> HttpResponse:
    return unknown(request, "board", board_id, reverse("dashboard:boards"))
