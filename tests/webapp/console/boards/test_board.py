"""A board shows saved views together: each in its form, all of one batch, refreshed by one request."""

import re
import time

import psycopg
import pytest

from tests.webapp.console.boards.conftest import BARS, CHART, FIGURES, TABLE
from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.concurrency import SEARCHES
from tidegauge.webapp.accounts.permissions import UNRESTRICTED
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.console.boards.models import Tile
from tidegauge.webapp.console.boards.selectors import tiles_with_views
from tidegauge.webapp.console.dashboard.boards import together
from tidegauge.webapp.console.dashboard.boards.together import pipelines_by_state, read_together
from tidegauge.webapp.console.saved_views.models import SavedView
from tidegauge.webapp.core.pools import pool_of


def refresh(client, path):
    """Return the answer to the request for what has changed on a page, as its script sends it."""
    shown = client.get(path).content.decode()
    version = re.search(r'data-query="{&quot;v&quot;:&quot;([^&]*)&quot;}"', shown)[1]
    return lambda: client.get(path, {"v": version}, headers={"HX-Request": "true"})


def all_seen(board):
    """Return what the tiles of a board show to a person without a restriction."""
    tiles, visible = tiles_with_views(board), Visible(UNRESTRICTED)
    return read_together(
        tiles, frozenset(tile.view_id for tile in tiles), visible, pipelines_by_state(visible.pipelines())
    )


class TestTiles:
    def test_each_view_is_shown_in_the_form_that_fits_it(self, board, reader):
        page = reader.get(board(CHART, BARS, TABLE, FIGURES).get_absolute_url()).content.decode()

        tiles = page.split('<section class="panel tile')[1:]
        assert [
            next(form for form in ('class="drawn"', 'class="panel bars"', 'class="explored"') if form in tile)
            for tile in tiles
        ] == ['class="drawn"', 'class="panel bars"', 'class="explored"', 'class="explored"']
        assert "<script" not in "".join(tiles)

    def test_numbers_are_those_of_the_explorer(self, board, reader):
        page = text(reader.get(board(TABLE).get_absolute_url()))

        assert "flights&gt;90" not in page
        assert re.search(r"View 0 of Morning PNG of View 0 of Morning flights_by_carrier · flights>90", page)
        assert "origin · carrier flights EWR · C00 1,100 " in page

    def test_a_chart_shows_each_part_with_its_newest_number_and_marks_the_open_step(self, board, reader):
        page = reader.get(board(CHART).get_absolute_url()).content.decode()

        assert page.count('<path class="series-') >= 2
        assert 'aria-label="flights over time, between 0 and ' in page

    def test_a_tile_shows_a_table_if_that_is_chosen(self, board, reader):
        made = board(CHART)
        made.tiles.update(form=Tile.Form.TABLE)

        page = reader.get(made.get_absolute_url()).content.decode()

        assert 'class="drawn"' not in page
        assert 'class="explored"' in page

    def test_compared_keys_are_a_tile_too(self, board, reader, owner):
        made = board()
        view = SavedView.objects.create(
            owner=owner, name="Two", state="flights_by_carrier", page="compare",
            question={"key": ['["EWR", "C00"]', '["EWR", "C01"]'], "measures": "flights", "range": "1h"},
        )  # fmt: skip
        made.tiles.create(view=view, place=0)

        assert "Measure EWR · C00 EWR · C01 flights 1,100 " in text(reader.get(made.get_absolute_url()))

    def test_a_tile_that_cannot_be_answered_says_why_and_the_others_are_shown(self, board, reader):
        refused = ("flights_by_carrier", {"where": ["nothing>1"]})
        gone = ("flights_2025", {})

        page = text(reader.get(board(refused, gone, TABLE).get_absolute_url()))

        assert "nothing" in page
        assert "The state flights_2025 no longer exists." in page
        assert "EWR · C00 1,100 " in page

    def test_what_would_take_too_long_is_not_begun(self, board, reader, monkeypatch):
        monkeypatch.setattr(together, "MOST_SECONDS", 0)

        page = text(reader.get(board(TABLE).get_absolute_url()))

        assert "Not read, because the tiles before it took too long" in page

    def test_a_query_that_the_database_cancels_leaves_the_other_tiles(self, board, reader, monkeypatch):
        read_tile = together.read_tile

        def cancelled(tile, *rest):
            if tile.place == 0:
                raise psycopg.errors.QueryCanceled
            return read_tile(tile, *rest)

        monkeypatch.setattr(together, "read_tile", cancelled)
        page = text(reader.get(board(BARS, TABLE).get_absolute_url()))

        assert "Its query took too long" in page
        assert "EWR · C00 1,100 " in page


class TestOneRefresh:
    def test_nothing_is_sent_while_nothing_has_changed(self, board, reader, filled):
        again = refresh(reader, board(*[BARS, TABLE, CHART, FIGURES] * 3).get_absolute_url())

        assert again().status_code == 204

        filled.commit({("JFK", "C00"): 5})
        answer = again()
        assert answer.status_code == 200
        assert answer.content.decode().count('<section class="panel tile') == 12

    def test_a_change_of_a_view_is_shown(self, board, reader, owner):
        made = board(TABLE)
        again = refresh(reader, made.get_absolute_url())
        view = SavedView.objects.get()
        reader.post(f"/views/{view.pk}/edit", {"name": "Renamed", "is_shared": "on"})

        assert "Renamed" in again().content.decode()

    def test_all_tiles_of_a_pipeline_show_one_batch(self, board, filled, monkeypatch):
        made = board(TABLE, BARS, ("flights_by_carrier", {"prefix": "EWR"}))
        read_tile, commits = together.read_tile, iter([True])

        def read_and_commit(*asked):
            answer = read_tile(*asked)
            if next(commits, False):
                filled.commit({("EWR", "C00"): 1})
            return answer

        monkeypatch.setattr(together, "read_tile", read_and_commit)
        found = all_seen(made)

        assert [shown.batch.txid for shown in found] == [2, 2, 2]

    def test_a_view_of_an_earlier_batch_keeps_its_own(self, board):
        found = all_seen(board(TABLE, ("flights_by_carrier", {"as_of": "1"})))

        assert [shown.batch.txid for shown in found] == [2, 1]

    def test_a_state_without_history_is_read_at_the_newest_batch_when_the_others_cannot_wait(self, board, filled):
        found = all_seen(board(FIGURES, TABLE, CHART))

        assert {shown.batch.txid for shown in found} == {2}

    def test_statements_of_twelve_tiles_are_few(self, board, reader, django_assert_max_num_queries):
        address = board(*[BARS, TABLE, FIGURES] * 4).get_absolute_url()
        reader.get(address)

        # Session, user, permissions and the strip, the board, tiles, views and pipelines. Tiles use another connection.
        with django_assert_max_num_queries(12):
            reader.get(address)


class TestCost:
    @pytest.mark.parametrize(
        ("path", "pool"), [("/boards", "pages"), ("/boards/abc", "searches"), ("/boards/abc/edit", "pages")]
    )
    def test_a_board_has_the_threads_of_searches(self, path, pool):
        assert pool_of({"PATH_INFO": path, "QUERY_STRING": "", "REQUEST_METHOD": "GET"}) == pool

    def test_it_counts_as_a_search_of_who_opens_it(self, board, reader, owner, settings):
        settings.TIDEGAUGE_SEARCHES_EACH = 1
        address = board(TABLE).get_absolute_url()

        with SEARCHES.held(f"user {owner.pk}"):
            refused = reader.get(address)

        assert refused.status_code == 429
        assert refused["Retry-After"] == "1"
        assert "Too many at once." in text(refused)

    def test_twelve_tiles_take_less_than_half_a_second(self, board, reader):
        address = board(*[BARS, TABLE, CHART, FIGURES] * 3).get_absolute_url()
        reader.get(address)
        began = time.thread_time()

        reader.get(address)

        # Of this thread, because other processes of the machine make the wall clock say anything.
        assert time.thread_time() - began < 0.5
