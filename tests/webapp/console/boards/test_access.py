"""Who sees and changes a board."""

import pytest

from tests.webapp.console.boards.conftest import BARS, CHART, TABLE
from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.models import Restriction
from tidegauge.webapp.console.boards import models, services
from tidegauge.webapp.console.boards.models import Board
from tidegauge.webapp.console.saved_views.models import SavedView


def sees(client, board) -> bool:
    is_open = client.get(board.get_absolute_url()).status_code == 200
    assert is_open == (board.name in text(client.get("/boards")))
    return is_open


def test_a_private_board_is_its_owners_alone(board, reader, person, admin_client):
    made = board(TABLE)

    assert sees(reader, made)
    assert not sees(person("another"), made)
    assert not sees(admin_client, made)


@pytest.mark.parametrize(
    ("scope", "may"),
    [
        ({}, True),
        ({"states": ["flights_by_carrier", "flights_by_hour"]}, True),
        ({"states": ["flights_by_carrier"]}, False),
        ({"key_prefix": ["EWR"]}, False),
    ],
)
def test_a_shared_board_is_seen_by_who_may_see_all_of_its_states(board, person, scope, may):
    made = board(TABLE, CHART, is_shared=True)

    assert sees(person("another", **scope), made) == may


def test_who_is_restricted_to_a_prefix_sees_no_board_of_others_even_of_a_state_with_the_prefix(board, person):
    assert not sees(person("another", key_prefix=["EWR"]), board(TABLE, is_shared=True))


def test_who_is_restricted_does_not_learn_who_shares(board, person):
    pages = ["/boards", board(TABLE, is_shared=True).get_absolute_url()]
    another, confined = person("another"), person("confined", states=["flights_by_carrier"])

    for page in pages:
        assert "shared by reader" in text(another.get(page))
        assert "reader" not in text(confined.get(page))


def test_a_private_view_on_a_shared_board_is_not_shown_to_others(board, person):
    made = board(TABLE, is_shared=True, shared=False)

    page = person("another").get(made.get_absolute_url()).content.decode()

    assert "You may not see this view." in page
    assert "View 0" not in page
    assert "C00" not in page


def test_each_reads_within_the_own_restriction(board, reader, owner):
    made = board(BARS)
    Restriction.objects.create(user=owner, key_prefix=["EWR"])

    page = text(reader.get(made.get_absolute_url()))

    assert "EWR" in page
    assert "LGA" not in page


@pytest.mark.parametrize("act", ["edit", "delete", "share", "links/any/revoke"])
def test_another_person_does_not_change_a_shared_board(board, person, act):
    made = board(TABLE, is_shared=True)

    refused = person("another").post(f"{made.get_absolute_url()}/{act}", {"name": "Mine", "confirmed": "yes"})

    assert refused.status_code == 404
    assert Board.objects.get().name == "Morning"


@pytest.mark.parametrize("page", ["/boards", "/boards/new", "/boards/any", "/boards/any/edit"])
def test_it_takes_a_login(db, client, page):
    assert client.get(page).url.startswith("/login?next=")


class TestChanging:
    def test_a_board_is_made_with_the_view_that_is_open(self, board, reader):
        board(TABLE)
        view = SavedView.objects.get()

        answer = reader.post(f"/boards/new?view={view.pk}", {"name": "Second"})

        made = Board.objects.get(name="Second")
        assert answer.url == made.get_absolute_url()
        assert [tile.view for tile in made.tiles.all()] == [view]

    def test_tiles_are_placed_widened_removed_and_added(self, board, reader):
        made = board(TABLE, BARS, CHART)
        first, second, third = made.tiles.all()
        added = SavedView.objects.create(owner=made.owner, name="New", state="totals", question={})
        form = {f"place-{first.pk}": 9, f"place-{third.pk}": 1, f"wide-{third.pk}": "on", f"form-{first.pk}": "table"}

        reader.post(
            f"{made.get_absolute_url()}/edit", {"name": "Evening", f"remove-{second.pk}": "on", "add": added.pk} | form
        )

        assert Board.objects.get().name == "Evening"
        assert [(tile.view.name, tile.is_wide, tile.form) for tile in made.tiles.all()] == [
            ("View 2 of Morning", True, "chart"),
            ("View 0 of Morning", False, "table"),
            ("New", False, "chart"),
        ]

    def test_a_view_that_one_does_not_see_is_not_added(self, board, reader, person):
        made = board()
        person("another").post("/states/totals/explore/save", {"name": "Theirs"})

        reader.post(f"{made.get_absolute_url()}/edit", {"name": "Morning", "add": SavedView.objects.get().pk})

        assert not made.tiles.exists()

    def test_more_tiles_than_a_board_may_have_are_refused_by_name(self, board, reader, monkeypatch):
        monkeypatch.setattr(services, "MOST_TILES", 1)
        made = board(TABLE)
        view = SavedView.objects.create(owner=made.owner, name="New", state="totals", question={})

        refused = reader.post(f"{made.get_absolute_url()}/edit", {"name": "Morning", "add": view.pk})

        assert refused.status_code == 400
        assert "2 tiles are more than the 1 that a board may have; leave some out" in text(refused)
        assert made.tiles.count() == 1

    def test_a_name_is_used_once_and_boards_have_a_limit(self, board, reader, monkeypatch):
        board()
        assert "already have a board named" in text(reader.post("/boards/new", {"name": "Morning"}))
        monkeypatch.setattr(services, "MOST_OF_A_PERSON", 1)
        assert "You already have 1 boards, the most allowed" in text(reader.post("/boards/new", {"name": "Evening"}))

        assert Board.objects.count() == 1
        assert models.MOST_TILES == 12

    def test_a_board_is_deleted_after_it_was_confirmed_and_its_views_stay(self, board, reader):
        made = board(TABLE)
        address = f"{made.get_absolute_url()}/delete"
        confirmation = reader.get(address).context["confirmation"]
        assert Board.objects.exists()

        reader.post(address, dict(confirmation.posted))

        assert not Board.objects.exists()
        assert SavedView.objects.exists()

    def test_deleting_a_view_says_that_boards_lose_it(self, board, reader):
        made = board(TABLE)

        page = text(reader.get(f"/views/{SavedView.objects.get().pk}/delete"))

        assert "It leaves 1 board." in page
        assert made.tiles.count() == 1

    def test_every_change_is_audited(self, board, reader):
        made = board(TABLE)
        reader.post(f"{made.get_absolute_url()}/edit", {"name": "Evening"})
        address = f"{made.get_absolute_url()}/delete"
        reader.post(address, dict(reader.get(address).context["confirmation"].posted))

        entries = (
            AuditEntry.objects.filter(action__startswith="board.")
            .order_by("id")
            .values_list("action", "target", "actor")
        )
        assert list(entries) == [
            ("board.create", "board Morning", "reader"),
            ("board.change", "board Morning", "reader"),
            ("board.delete", "board Evening", "reader"),
        ]
