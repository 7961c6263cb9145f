"""A link shows a board to people without an account, as far as its owner may see it, until it ends."""

from datetime import timedelta
from random import randrange

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.utils import timezone

from tests.webapp.console.boards.conftest import BARS, TABLE
from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.concurrency import SEARCHES
from tidegauge.webapp.accounts.models import OidcIdentity, Restriction
from tidegauge.webapp.console.boards import services
from tidegauge.webapp.console.boards.links import token_of
from tidegauge.webapp.console.boards.models import BoardLink
from tidegauge.webapp.core import csp

LINK, FRAME = BoardLink.Kind.LINK, BoardLink.Kind.FRAME
ORIGIN = "https://wiki.example"


@pytest.fixture
def stranger() -> Client:
    """Somebody without an account."""
    return Client()


@pytest.fixture
def link(board, sharer) -> BoardLink:
    return services.create_link(board(BARS, TABLE), kind=LINK, days=7)


@pytest.fixture
def frame(board, sharer, settings) -> BoardLink:
    settings.TIDEGAUGE_FRAME_ORIGINS = [ORIGIN]
    return services.create_link(board(BARS, name="Framed"), kind=FRAME, days=7)


def opened(link, client, kind="shared", **headers):
    return client.get(f"/{kind}/boards/{token_of(link)}", **headers)


class TestOpening:
    def test_a_stranger_sees_the_board_and_nothing_else(self, link, stranger):
        answer = opened(link, stranger)

        assert answer.status_code == 200
        page = answer.content.decode()
        assert "View 0 of Morning" in page
        assert ">EWR<" in page
        assert 'href="/' not in page.replace('href="/static/', "")
        assert "reader" not in page
        assert "sessionid" not in answer.cookies
        assert answer["Referrer-Policy"] == "no-referrer"

    def test_it_asks_for_one_refresh_of_all_tiles(self, link, stranger, filled):
        version = opened(link, stranger).content.decode().partition("{&quot;v&quot;:&quot;")[2].partition("&quot;")[0]
        asked = {"data": {"v": version}, "headers": {"HX-Request": "true"}}

        assert opened(link, stranger, **asked).status_code == 204
        filled.commit({("JFK", "C00"): 5})
        part = opened(link, stranger, **asked).content.decode()

        assert part.lstrip().startswith('<div id="live"')
        assert part.count('<section class="panel tile') == 2

    @pytest.mark.parametrize("token", ["", "nothing", "{id}", "{id}.forged", "{token}x", "x{token}"])
    def test_an_address_that_was_not_signed_here_opens_nothing_and_asks_no_database(
        self, link, stranger, token, django_assert_num_queries
    ):
        address = token.format(id=link.pk, token=token_of(link)) or "."

        with django_assert_num_queries(0):
            answer = stranger.get(f"/shared/boards/{address}")

        assert answer.status_code == 404
        assert "This link is not valid; ask for a new one." in text(answer)

    def test_links_and_frames_do_not_open_as_each_other(self, link, frame, stranger):
        assert opened(link, stranger, "frames").status_code == 404
        assert opened(frame, stranger, "shared").status_code == 404

    def test_a_stranger_takes_no_search_of_the_owner(self, link, stranger, owner, settings):
        settings.TIDEGAUGE_SEARCHES_EACH = 1

        with SEARCHES.held(f"user {owner.pk}"):
            assert opened(link, stranger).status_code == 200
        with SEARCHES.held(f"link {link.pk}"):
            refused = opened(link, stranger)

        assert refused.status_code == 429
        assert refused["Retry-After"] == "1"

    def test_an_address_may_ask_as_often_as_strangers_may(self, link, settings):
        settings.TIDEGAUGE_ANONYMOUS_RATE_PER_MINUTE = 1
        visitor = Client(REMOTE_ADDR=f"198.18.{randrange(256)}.{randrange(256)}")  # whose bucket is full

        answers = [opened(link, visitor) for _ in range(3)]

        assert [answer.status_code for answer in answers] == [200, 429, 429]
        assert "This address has sent too many requests" in text(answers[2])


class TestEnd:
    def test_it_ends_by_name_when_its_time_is_over(self, link, stranger):
        ended = timezone.now() - timedelta(seconds=1)
        BoardLink.objects.update(expires_at=ended)

        answer = opened(link, stranger)

        assert answer.status_code == 410
        assert f"This link expired on {ended:%Y-%m-%d %H:%M} UTC; ask for a new one." in text(answer)
        assert "EWR" not in text(answer)

    def test_it_ends_by_name_when_it_is_revoked(self, link, stranger, sharer):
        sharer.post(f"{link.board.get_absolute_url()}/links/{link.pk}/revoke")

        answer = opened(link, stranger)

        assert answer.status_code == 410
        assert "This link was revoked on " in text(answer)

    def test_an_open_page_is_loaded_again_to_show_the_reason(self, link, stranger):
        BoardLink.objects.update(revoked_at=timezone.now())

        assert opened(link, stranger, headers={"HX-Request": "true"})["HX-Refresh"] == "true"

    def test_it_ends_when_the_owner_loses_the_permission_to_share(self, link, stranger, owner):
        owner.user_permissions.clear()

        answer = opened(link, stranger)

        assert answer.status_code == 410
        assert "The person who shared this board may no longer do so." in text(answer)

    def test_it_ends_when_the_owner_is_deactivated_or_deleted(self, link, stranger, owner):
        owner.is_active = False
        owner.save()
        assert opened(link, stranger).status_code == 410

        owner.delete()
        assert opened(link, stranger).status_code == 404

    def test_it_shows_no_more_than_the_owner_may_see_now(self, link, stranger, owner):
        Restriction.objects.create(user=owner, states=["totals"])
        page = text(opened(link, stranger))
        assert "EWR" not in page
        assert page.count("You may not see this view.") == 2

        Restriction.objects.update(states=[], key_prefix=["EWR"])
        page = text(opened(link, stranger))
        assert "EWR" in page
        assert "LGA" not in page

    def test_it_shows_nothing_of_an_owner_from_a_provider_who_is_in_no_group_any_more(self, link, stranger, owner):
        OidcIdentity.objects.create(issuer="https://sso.example", subject="1", user=owner)

        assert "EWR" not in text(opened(link, stranger))

        owner.groups.add(Group.objects.get(name="viewer"))
        assert "EWR" in text(opened(link, stranger))

    def test_a_new_secret_key_ends_all_links(self, link, stranger, settings):
        token = token_of(link)
        settings.SECRET_KEY = "another key that is long enough to be one"

        assert stranger.get(f"/shared/boards/{token}").status_code == 404


class TestMaking:
    def test_it_takes_the_permission(self, board, reader):
        address = f"{board().get_absolute_url()}/share"

        assert "tidegauge_boards.add_boardlink" in text(reader.get(address))
        assert reader.post(address, {"kind": "link", "days": 7}).status_code == 403
        assert not BoardLink.objects.exists()

    def test_the_address_is_shown_and_opens(self, board, sharer, stranger):
        address = f"{board(TABLE).get_absolute_url()}/share"
        sharer.post(address, {"kind": "link", "days": 7})

        shown = text(sharer.get(address)).partition("http://testserver")[2].partition(" ")[0]

        assert stranger.get(shown).status_code == 200
        left = BoardLink.objects.get().expires_at - timezone.now()
        assert timedelta(days=6) < left < timedelta(days=8)

    @pytest.mark.parametrize("form", [{"kind": "link", "days": 3650}, {"kind": "link"}, {"kind": "door", "days": 7}])
    def test_it_ends_after_one_of_the_times_offered(self, board, sharer, form):
        assert sharer.post(f"{board().get_absolute_url()}/share", form).status_code == 400
        assert not BoardLink.objects.exists()

    def test_a_board_has_few_links_of_which_those_that_ended_do_not_count(self, board, sharer, monkeypatch):
        monkeypatch.setattr(services, "MOST_LINKS", 1)
        address, form = f"{board().get_absolute_url()}/share", {"kind": "link", "days": 7}
        sharer.post(address, form)

        assert "This board already has 1 links, the most allowed" in text(sharer.post(address, form))
        BoardLink.objects.update(revoked_at=timezone.now())
        assert sharer.post(address, form).status_code == 302

    def test_links_that_ended_long_ago_are_deleted(self, board, sharer):
        made = board()
        old = services.create_link(made, kind=LINK, days=1)
        BoardLink.objects.update(expires_at=timezone.now() - timedelta(days=40))

        new = services.create_link(made, kind=LINK, days=1)

        assert set(BoardLink.objects.values_list("pk", flat=True)) == {new.pk} != {old.pk}

    def test_sharing_and_revoking_are_audited_without_the_address(self, link, sharer):
        sharer.post(f"{link.board.get_absolute_url()}/links/{link.pk}/revoke")

        share, revoke = AuditEntry.objects.filter(action__in=["board.share", "board.revoke"]).order_by("id")
        assert (share.actor, share.target) == (revoke.actor, revoke.target) == ("reader", "board Morning")
        assert token_of(link).partition(".")[2] not in f"{share.detail} {revoke.detail}"

    def test_a_link_of_another_board_is_not_revoked(self, link, board, sharer):
        sharer.post(f"{board(name='Other').get_absolute_url()}/links/{link.pk}/revoke")

        assert BoardLink.objects.get().revoked_at is None

    def test_an_admin_sees_all_links_and_ends_them(self, link, stranger, admin_client):
        assert "Morning" in text(admin_client.get("/admin/tidegauge_boards/boardlink/"))
        admin_client.post(f"/admin/tidegauge_boards/boardlink/{link.pk}/delete/", {"post": "yes"})

        assert opened(link, stranger).status_code == 404

    def test_operators_may_share_and_viewers_may_not(self, db):
        holders = Permission.objects.get(codename="add_boardlink").group_set.values_list("name", flat=True)

        assert set(holders) == {"operator", "admin"}


class TestFrames:
    def test_only_the_frame_may_be_framed_and_only_by_the_origins_set(self, frame, stranger, reader):
        answer = opened(frame, stranger, "frames")

        assert answer.status_code == 200
        policy = answer["Content-Security-Policy"]
        assert f"frame-ancestors {ORIGIN};" in f"{policy};"
        assert "form-action 'none'" in policy
        assert "unsafe" not in policy
        assert "X-Frame-Options" not in answer
        for page in ("/boards", frame.board.get_absolute_url(), f"/shared/boards/{token_of(frame)}", "/login"):
            other = reader.get(page)
            assert "frame-ancestors 'none'" in other["Content-Security-Policy"]
            assert other["X-Frame-Options"] == "DENY"

    def test_it_has_no_form_and_no_link_that_a_page_around_it_could_misuse(self, frame, stranger):
        page = opened(frame, stranger, "frames").content.decode()

        assert "<form" not in page
        assert "<a " not in page

    def test_it_does_not_read_the_session_of_who_looks_at_it(self, frame, admin_client):
        answer = opened(frame, admin_client, "frames")

        assert answer.wsgi_request.session.accessed is False

    def test_the_reason_of_an_end_is_shown_in_the_frame(self, frame, stranger):
        BoardLink.objects.update(expires_at=timezone.now())

        answer = opened(frame, stranger, "frames")

        assert "This link expired on " in text(answer)
        assert ORIGIN in answer["Content-Security-Policy"]

    def test_without_origins_there_are_none(self, frame, stranger, sharer, settings):
        settings.TIDEGAUGE_FRAME_ORIGINS = []

        answer = opened(frame, stranger, "frames")

        assert answer.status_code == 404
        assert "TIDEGAUGE_FRAME_ORIGINS names none" in text(answer)
        assert "frame-ancestors 'none'" in answer["Content-Security-Policy"]
        assert answer["X-Frame-Options"] == "DENY"
        address = f"{frame.board.get_absolute_url()}/share"
        assert "an operator names their origins in TIDEGAUGE_FRAME_ORIGINS" in text(sharer.get(address))
        assert sharer.post(address, {"kind": "frame", "days": 7}).status_code == 400

    def test_the_tag_to_copy_names_the_frame(self, frame, sharer):
        page = text(sharer.get(f"{frame.board.get_absolute_url()}/share"))

        assert f'<iframe src="http://testserver/frames/boards/{token_of(frame)}"' in page
        assert csp.FRAME_VIEW == "dashboard:frame"
