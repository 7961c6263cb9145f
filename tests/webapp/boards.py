"""Boards for tests that look at pages: small, and with twelve tiles of everything that is hard to show."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import patch

from django.contrib.auth.models import User
from django.core import signing
from django.test import override_settings
from django.utils import timezone

from tidegauge.webapp.console.boards import links
from tidegauge.webapp.console.boards.links import token_of
from tidegauge.webapp.console.boards.models import Board, BoardLink
from tidegauge.webapp.console.saved_views.models import SavedView

CARRIERS, HOURS = "flights_by_carrier", "flights_by_hour"
SMALL = [
    ("Flights by hour", HOURS, {"split": "origin"}),
    ("Flights by origin, the busiest first", CARRIERS, {"group": ["origin"], "order": "-flights"}),
    ("More than 90 flights", CARRIERS, {"where": ["flights>90"]}),
    ("All flights", "totals", {}),
    ("A column that is gone", CARRIERS, {"where": ["lost>1"]}),
    ("Busiest carriers of last year", "flights_2025", {}),
]
CROWDED = [
    ("Visits by hour of every country, each with a line of its own", "visits_by_hour", {"split": "country"}),
    ("Bytes", "visits_by_hour", {"measures": "bytes"}),
    ("Slowest", "visits_by_hour", {"measures": "slowest"}),
    ("Seitenaufrufe nach Land mit einem sehr langen Namen, der in zwei Zeilen umgebrochen wird", "visits_by_country",
     {"order": "-visits"}),
    ("Сайты", "visits_by_page", {"order": "-visits"}),
    ("Twenty measures of every page, of which a tile shows all, beside each other", "visits_by_page", {}),
    ("ページ", "visits_by_page", {"group": ["page"], "measures": "visits,seconds_of_phase_1"}),
    ("Compared with the batch before", "visits_by_page", {"group": ["country"], "than": "1", "measures": "visits"}),
    ("No keys", "visits_by_page", {"where": ["visits>100000000"]}),
    ("A column that is gone", "visits_by_page", {"where": ["seconds_of_a_phase_that_no_longer_exists>1"]}),
    *SMALL[:2],
]  # fmt: skip


def make_board(owner: User, pk: str, name: str, views: list[tuple[str, str, dict]]) -> Board:
    """Make a board with these views, of which the first is wide. They are called after their places."""
    board = Board.objects.create(pk=pk, owner=owner, name=name, is_shared=True)
    for place, (title, state, question) in enumerate(views):
        view = SavedView.objects.create(
            id=f"{pk}{place}", owner=owner, name=f"{title} ({pk})"[:80], state=state, question=question, is_shared=True
        )
        # With a number, because pictures of pages show the ids of tiles.
        board.tiles.create(view=view, place=place, is_wide=place == 0)
    return board


@contextmanager
def boards(owner: User) -> Iterator[list[str]]:
    """The pages of boards and their links, whose addresses are the same on every machine."""
    board = make_board(owner, "morning", "Morning round", SMALL)
    ends = timezone.now() + timedelta(days=7)
    shared = BoardLink.objects.create(pk="shared", board=board, kind="link", expires_at=ends)
    frame = BoardLink.objects.create(pk="framed", board=board, kind="frame", expires_at=ends)
    BoardLink.objects.create(
        pk="revoked", board=board, kind="link", expires_at=ends, revoked_at=timezone.now() - timedelta(hours=1)
    )
    empty = Board.objects.create(pk="empty", owner=owner, name="Empty")

    signer = signing.Signer(key="as long as any other key, and always the same", sep=".")

    with (
        patch.object(links, "_signer", lambda: signer),
        override_settings(TIDEGAUGE_FRAME_ORIGINS=["https://wiki.example"]),
    ):
        yield [
            "/boards",
            "/boards/new",
            "/boards/morning",
            "/boards/morning/edit",
            "/boards/morning/share",
            "/boards/morning/delete",
            f"/boards/{empty.pk}",
            f"/shared/boards/{token_of(shared)}",
            f"/frames/boards/{token_of(frame)}",
            "/admin/tidegauge_boards/boardlink/",
            "/admin/tidegauge_boards/boardlink/shared/change/",
        ]
