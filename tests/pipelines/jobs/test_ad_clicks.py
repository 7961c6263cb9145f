"""ad_clicks: every impression counts with its clicks or, once, without one, and every click counts."""

import json
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from pipelines.jobs.ad_clicks import ad_clicks
from tests.pipelines.conftest import FIRST_LANDING

pytestmark = pytest.mark.spark

START = datetime(2024, 3, 10, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(minute):
    return (START + timedelta(minutes=minute)).isoformat()


def shown(ad, minute, campaign="spring"):
    return {"ad": ad, "campaign": campaign, "shown_at": at(minute)}


def clicked(ad, minute):
    return {"ad": ad, "clicked_at": at(minute)}


def land(workspace, batch, impressions=(), clicks=()):
    """Put one file of a batch into each folder."""
    for side, lines in {"impressions": impressions, "clicks": clicks}.items():
        path = workspace.input / side / f"{batch}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(path, (FIRST_LANDING + batch, FIRST_LANDING + batch))


def opaque(workspace):
    pipeline = ad_clicks(workspace.input, 1)
    for source in pipeline.sources:
        source.spout = "opaque"
    return pipeline


def click_through(workspace):
    """Clicks, impressions without a click and clicks without an impression, per campaign."""
    return {campaign: tuple(value.values()) for campaign, value in workspace.values("click_through").items()}


def plainly(impressions, clicks):
    """The same by comparing every impression with every click."""
    counts, paired = Counter(), set()
    for impression in impressions:
        clicked = 0
        for other, click in enumerate(clicks):
            passed = datetime.fromisoformat(click["clicked_at"]) - datetime.fromisoformat(impression["shown_at"])
            if click["ad"] == impression["ad"] and timedelta() <= passed <= HOUR:
                clicked += 1
                paired.add(other)
        counts[impression["campaign"], "clicks" if clicked else "without"] += clicked or 1
    found = {name: (counts[name, "clicks"], counts[name, "without"], 0) for name in {name for name, _ in counts}}
    return found | {"unknown": (0, 0, len(clicks) - len(paired))}


def test_counts_are_those_of_a_plain_join_with_a_crash_in_between(workspace):
    chance = random.Random(3)
    ads = {f"ad{number}": chance.choice(["spring", "summer"]) for number in range(20)}
    impressions = [shown(ad, chance.randrange(200), ads[ad]) for ad in ads for _ in range(3)]
    clicks = [clicked(chance.choice([*ads]), chance.randrange(200)) for _ in range(60)]
    impressions.sort(key=lambda line: line["shown_at"])
    clicks.sort(key=lambda line: line["clicked_at"])
    for batch in range(3):
        part = slice(batch * 20, batch * 20 + 20)
        land(workspace, batch, impressions[part], clicks[part])
    workspace.run(opaque(workspace))
    workspace.forget_last_commit()
    land(workspace, 3, [shown("last", 1000, "last")], [clicked("last", 1000)])

    batches = workspace.run(opaque(workspace))

    assert batches == [(3, 2), (4, 1)]
    assert click_through(workspace) == plainly(impressions, clicks) | {"last": (1, 0, 0)}
    assert set(workspace.values("waiting_for_click")) == {"last"}


def test_the_first_of_a_pair_waits_and_without_a_partner_counts_once_even_if_its_key_has_no_new_tuples(workspace):
    land(workspace, 1, [shown("x", 0), shown("y", 0)], [clicked("z", 5), clicked("y", 10)])
    land(workspace, 2, [shown("z", 0), shown("other", 90)], [clicked("other", 90), clicked("y", 20)])
    land(workspace, 3, [shown("other", 100)], [clicked("x", 30)])

    workspace.run(ad_clicks(workspace.input, 1))

    # The click on x is within the hour of its impression, but the watermark had passed: both count as alone.
    assert click_through(workspace) == {"spring": (4, 1, 0), "unknown": (0, 0, 1)}
    assert set(workspace.values("waiting_for_click")) == {"other"}
    assert workspace.rows("SELECT sum(late) FROM tidemark.batch") == [(1,)]
