"""A state with a history and without a time in its key shows first which keys have moved most."""

import re

import pytest

from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.console.dashboard.explorer import movers

PAGE = "/states/flights_by_carrier/"


def moved(response) -> list[str]:
    """What a reader sees of each row."""
    table = response.content.decode().partition('class="explored movers"')[2].partition("</table>")[0]
    rows = table.partition("<tbody>")[2].split("</tr>")[:-1]
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in rows]


def aged(flights, **ages: str) -> None:
    """Set how long ago batches were; ages: `batch_1="2 days"`."""
    for batch, age in ages.items():
        flights.conn.execute(
            "UPDATE tidegauge.batch SET batch_time = clock_timestamp() - %s::interval WHERE txid = %s",
            [age, int(batch.removeprefix("batch_"))],
        )


@pytest.fixture
def old(filled):
    """60 keys since a while, of which three have changed in a batch after that."""
    aged(filled, batch_1="3 days", batch_2="2 days")
    filled.commit({("EWR", "C01"): 40, ("JFK", "C00"): 500, ("LGA", "C99"): 7})
    return filled


def test_the_largest_differences_come_first_with_then_and_now(old, reader):
    page = reader.get(PAGE)

    # Those that did not move are left out.
    assert moved(page) == [
        "JFK · C00 100 600 +500 +500.0 %",
        "EWR · C01 99 139 +40 +40.4 %",
        "LGA · C99 — 7 +7",
    ]
    assert "Moved most in 24 h, since batch 2, " in text(page)
    assert page.content.decode().index('id="moved"') < page.content.decode().index('id="entries"')


def test_they_follow_measure_prefix_and_condition(old, reader):
    assert [row.partition(" ")[0] for row in moved(reader.get(f"{PAGE}?prefix=EWR"))] == ["EWR"]
    assert moved(reader.get(f"{PAGE}?where=carrier=C99")) == ["LGA · C99 — 7 +7"]
    assert moved(reader.get(f"{PAGE}?by=max_delay"))[0].startswith("JFK · C00 140 540 +400")


def test_a_shorter_history_is_compared_over_an_hour_or_five_minutes(old, reader):
    aged(old, batch_1="3 hours", batch_2="2 hours")
    assert "Moved most in 60 min, since batch 2" in text(reader.get(PAGE))

    aged(old, batch_1="9 min", batch_2="6 min")
    assert "Moved most in 5 min, since batch 2" in text(reader.get(PAGE))


def test_what_the_changelog_no_longer_has_is_not_compared_with(old, reader):
    aged(old, batch_1="3 days", batch_2="2 hours")
    old.conn.execute("UPDATE tidegauge.state SET oldest_txid = 2 WHERE name = 'flights_by_carrier'")

    assert "Moved most in 60 min, since batch 2" in text(reader.get(PAGE))


@pytest.mark.parametrize("asked", ["?as_of=2", "?prefix=EWR&where=carrier=C05"])
def test_an_earlier_batch_and_keys_that_did_not_move_have_top_keys_alone(old, reader, asked):
    page = reader.get(f"{PAGE}{asked}")

    assert moved(page) == []
    assert "Top keys" in text(page)


def test_neither_has_a_young_state_one_without_history_or_one_with_too_many_keys(filled, reader, monkeypatch):
    assert "Top keys" in text(reader.get(PAGE))

    aged(filled, batch_1="2 days")
    assert "Moved most" in text(reader.get(PAGE))
    monkeypatch.setattr(movers, "MOST_KEYS", 59)
    assert "Top keys" in text(reader.get(PAGE))
    filled.conn.execute("UPDATE tidegauge.state SET definition = definition || '{\"changelog\": false}'")
    monkeypatch.setattr(movers, "MOST_KEYS", 60)
    assert "Top keys" in text(reader.get(PAGE))


def test_a_page_that_compares_many_keys_is_refreshed_less_often(old, reader, monkeypatch):
    monkeypatch.setattr("tidegauge.webapp.console.dashboard.views.states.KEYS_PER_ROW", 1)

    assert 'data-seconds="7"' in reader.get(PAGE).content.decode()
