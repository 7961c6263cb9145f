import json

import pytest

from pipelines.jobs.regional_views import regional_views
from tests.pipelines.jobs.job_input import land, opaque

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


def counts(workspace):
    return {region: value["views"] for region, value in workspace.values("regional_views").items()}


def test_views_count_in_the_region_committed_before_their_batch_also_in_a_replay(workspace):
    def run():
        return workspace.run(opaque(regional_views(workspace.input, files_per_batch=1)))

    for batch, (users, views) in enumerate(zip(USERS, VIEWS, strict=True)):
        land(workspace, f"users/{batch}.json", *users)
        land(workspace, f"views/{batch}.json", *views)

    assert run() == [(1, 1), (2, 1), (3, 1)]
    assert counts(workspace) == recount(USERS, VIEWS)
    assert counts(workspace) == {"unknown": 5, "north": 1, "east": 2, "south": 2, "west": 1}

    workspace.forget_last_commit()
    fewer = [view("cat"), view("ann")]
    (workspace.input / "views" / "2.json").write_text("".join(json.dumps(line) + "\n" for line in fewer))
    (workspace.input / "users" / "2.json").write_text(json.dumps(user("ann", "moon", 9)) + "\n")

    assert run() == [(3, 2)]
    assert counts(workspace) == recount(USERS, [*VIEWS[:2], fewer])
    assert workspace.values("regions")["ann"] == {"region": "moon"}
