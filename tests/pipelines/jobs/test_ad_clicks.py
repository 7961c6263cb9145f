"""ad_clicks: every impression counts with its clicks or, once, without one, and every click counts."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidegauge.pipelines.jobs.ad_clicks import ad_clicks
from tidegauge.testing import Crash

pytestmark = pytest.mark.spark

START = datetime(2024, 3, 10, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(minute):
    return (START + timedelta(minutes=minute)).isoformat()


def shown(ad, minute, campaign="spring"):
    return {"ad": ad, "campaign": campaign, "shown_at": at(minute)}


def clicked(ad, minute):
    return {"ad": ad, "clicked_at": at(minute)}


def plainly(impressions, clicks):
    """Clicks and those alone, per campaign, by comparing every impression with every click."""
    counts, paired = Counter(), set()
    for impression in impressions:
        clicked = 0
        for other, click in enumerate(clicks):
            passed = datetime.fromisoformat(click["clicked_at"]) - datetime.fromisoformat(impression["shown_at"])
            if click["ad"] == impression["ad"] and timedelta() <= passed <= HOUR:
                clicked += 1
                paired.add(other)
        counts[impression["campaign"], "clicks" if clicked else "without"] += clicked or 1
    found = {name: figures(counts[name, "clicks"], counts[name, "without"]) for name in {name for name, _ in counts}}
    return found | {"unknown": figures(0, 0, len(clicks) - len(paired))}


def figures(clicks, without_click, without_impression=0):
    return {"clicks": clicks, "without_click": without_click, "without_impression": without_impression}


def batch(impressions=(), clicks=()):
    return {"impressions": impressions, "clicks": clicks}


def test_counts_are_those_of_a_plain_join_with_a_crash_in_between(tidegauge_run):
    chance = random.Random(3)
    ads = {f"ad{number}": chance.choice(["spring", "summer"]) for number in range(20)}
    impressions = [shown(ad, chance.randrange(200), ads[ad]) for ad in ads for _ in range(3)]
    clicks = [clicked(chance.choice([*ads]), chance.randrange(200)) for _ in range(60)]
    impressions.sort(key=lambda line: line["shown_at"])
    clicks.sort(key=lambda line: line["clicked_at"])
    parts = [slice(first, first + 20) for first in (0, 20, 40)]
    steps = [*(batch(impressions[part], clicks[part]) for part in parts), Crash()]
    last = batch([shown("last", 1000, "last")], [clicked("last", 1000)])

    result = tidegauge_run(
        ad_clicks(Path("input")),
        [*steps, last],
        expected={"click_through": plainly(impressions, clicks) | {"last": figures(1, 0)}},
    )

    assert [each.attempts for each in result.batches] == [1, 1, 2, 1]
    assert set(result["waiting_for_click"]) == {("last",)}


@pytest.mark.core
def test_the_first_of_a_pair_waits_and_without_a_partner_counts_once_even_if_its_key_has_no_new_tuples(tidegauge_run):
    batches = [
        batch([shown("x", 0), shown("y", 0)], [clicked("z", 5), clicked("y", 10)]),
        batch([shown("z", 0), shown("other", 90)], [clicked("other", 90), clicked("y", 20)]),
        batch([shown("other", 100)], [clicked("x", 30)]),
    ]

    result = tidegauge_run(ad_clicks(Path("input")), batches)

    # The click on x is within the hour of its impression, but the watermark had passed: both count as alone.
    assert result["click_through"] == {"spring": figures(4, 1), "unknown": figures(0, 0, 1)}
    assert set(result["waiting_for_click"]) == {("other",)}
    assert sum(each.late for each in result.batches) == 1
