"""The explorer of a state with tiles shows whole tiles, says which, and draws none beside finer ones."""

import html
from datetime import UTC, datetime, timedelta

import pytest

from tests.webapp.api.states import add_state
from tests.webapp.console.dashboard.test_then_and_now import rows
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.backends.postgres.tiles import compact_tiles
from tidegauge.webapp.console.dashboard.explorer import then_and_now

NOW = datetime(2026, 3, 2, 7, 9, tzinfo=UTC)
EXPLORE = "/states/views_by_minute/explore?group=page&order=-views"
SPEC = StateSpec(
    "views_by_minute",
    key={"page": "text", "start": "timestamptz"},
    measures={"views": Count()},
    tiles={"minute": timedelta(hours=2), "hour": timedelta(days=3)},
)


@pytest.fixture
def tiled(filled):
    """Views of each of the last minutes and hours, before a compaction; its newest minute is that of 07:08."""
    ages = [*range(1, 150), *range(150, 60 * 60, 50)]
    keys = [(page, NOW - timedelta(minutes=age)) for page in ("/home", "/cart") for age in ages]
    add_state(filled.conn, SPEC, {key: {"views": 1 if key[0] == "/cart" else 10} for key in keys})
    list(compact_tiles(filled.conn, SPEC))
    return filled


def shown(response) -> str:
    return html.unescape(" ".join(response.content.decode().split()))


def test_the_last_day_is_of_whole_tiles_and_says_which(tiled, reader):
    page = reader.get(f"{EXPLORE}&last=1+day")

    assert "back to a full hour" in shown(page)
    assert 'datetime="2026-03-01T07:00:00+00:00"' in shown(page)
    assert 'datetime="2026-03-02T07:09:00+00:00"' in shown(page)
    # 149 minutes, and one each 50 minutes before, from 07:00 of the day before on.
    views = 149 + len([age for age in range(150, 60 * 60, 50) if age <= 24 * 60 + 9])
    assert [row.split()[-1] for row in rows(page)] == [f"{views * 10:,}", str(views)]


def test_the_last_hour_is_of_minutes(tiled, reader):
    page = reader.get(f"{EXPLORE}&last=1+hour")

    assert "back to a full minute" in shown(page)
    assert [row.split()[-1] for row in rows(page)] == ["600", "60"]


def test_tiles_that_are_gone_and_stretches_of_other_lengths_are_refused(tiled, reader):
    assert "tiles are kept from" in shown(reader.get(f"{EXPLORE}&last=7+days"))
    assert "may cover different lengths" in shown(reader.get(f"{EXPLORE}&last=1+hour&than=1+hour+ago"))


def test_charts_by_time_are_not_offered(tiled, reader):
    assert "data-series" not in shown(reader.get("/states/views_by_minute/explore"))
    assert reader.get("/states/views_by_minute/explore/series?group=start").status_code in (400, 404)


def test_an_answer_is_read_again_if_tiles_became_coarser_meanwhile(tiled, reader, monkeypatch):
    in_use, asked = then_and_now.tiles_in_use("views_by_minute"), []

    def coarser(state):
        asked.append(state)
        return {} if len(asked) == 1 else in_use

    monkeypatch.setattr(then_and_now, "tiles_in_use", coarser)

    assert "back to a full hour" in shown(reader.get(f"{EXPLORE}&last=1+day"))
    assert len(asked) == 6  # before, for the range, and after; twice


def test_the_pages_and_the_api_say_how_long_tiles_are_kept(tiled, reader):
    assert "minutes 2 hours, hours 3 days" in shown(reader.get("/states/views_by_minute/schema"))
    assert "minutes 2 hours, hours 3 days" in shown(reader.get("/maintenance"))
    assert reader.get("/api/v1/states/views_by_minute").json()["tiles"] == {"minute": 7_200.0, "hour": 259_200.0}
