from pathlib import Path

import pytest

from tidegauge.pipelines.jobs.regional_views import regional_views
from tidegauge.testing import Replay

pytestmark = pytest.mark.spark


def user(name, region, minute):
    return {"user": name, "region": region, "moved_at": f"2024-01-01T00:{minute:02}:00Z"}


def view(name):
    return {"user": name, "page": "/"}


# The users and the views of each batch.
USERS = [
    [user("ann", "north", 1), user("bob", "east", 1)],
    [user("ann", "south", 5), user("cat", "west", 5)],
    [user("bob", "gone", 0)],
]
VIEWS = [
    [view("ann"), view("bob")],
    [view("ann"), view("bob"), view("cat"), view(None)],
    [view("ann"), view("ann"), view("bob"), view("cat"), view("dan")],
]


def recount(users, views):
    """A view counts under the region that is the newest of the batches before its own."""
    regions, counts = {}, {}
    for table, stream in zip(users, views, strict=True):
        for line in stream:
            region = regions.get(line["user"], (None, "unknown"))[1]
            counts[region] = counts.get(region, 0) + 1
        for line in table:
            regions[line["user"]] = max(regions.get(line["user"], ("",)), (line["moved_at"], line["region"]))
    return counts


def test_views_count_in_the_region_committed_before_their_batch_also_in_a_replay(tidegauge_run):
    batches = [{"users": users, "views": views} for users, views in zip(USERS, VIEWS, strict=True)]
    fewer = {"users": [user("ann", "moon", 9)], "views": [view("cat"), view("ann")]}

    first = tidegauge_run(regional_views(Path("input")), batches)
    replayed = tidegauge_run(regional_views(Path("input")), [*batches, Replay(fewer)])

    assert counts(first) == {"unknown": 5, "north": 1, "east": 2, "south": 2, "west": 1} == recount(USERS, VIEWS)
    assert counts(replayed) == recount(USERS, [*VIEWS[:2], fewer["views"]])
    assert replayed["regions"]["ann"] == {"region": "moon"}


def counts(result):
    return {region: value["views"] for (region,), value in result["regional_views"].items()}
