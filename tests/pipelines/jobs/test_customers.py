import json
from itertools import chain

import pytest

from pipelines.jobs.customers import customers
from tests.pipelines.jobs.job_input import land, opaque

pytestmark = pytest.mark.spark


def at(minute):
    return f"2024-01-01T00:{minute:02}:00+00:00"


def profile(user, minute, name=None, city=None):
    return {"user": user, "name": name, "city": city, "changed_at": at(minute)}


def setting(user, minute, language=None, newsletter=None):
    return {"user": user, "language": language, "newsletter": newsletter, "set_at": at(minute)}


PROFILES = [
    [profile("ann", 5, "Ann", "Oslo"), profile("cat", 1, "Cat")],
    [profile("ann", 3, "Anna", "Rome"), profile("ann", 9, city="Bern"), profile("bob", 1, city="Kyiv")],
]
SETTINGS = [
    [setting("bob", 7, "de", True), setting("ann", 8, newsletter=True)],
    [setting("ann", 2, "no", False), setting("bob", 9, newsletter=False)],
]


def recount(profiles, settings):
    """The newest value of every field that has one, both sides in one row."""
    rows = {}
    for lines, side, time in [(profiles, "profile", "changed_at"), (settings, "settings", "set_at")]:
        for line in sorted(lines, key=lambda line: line[time]):
            row = rows.setdefault(
                line["user"],
                {"profile": {"name": None, "city": None}, "settings": {"language": None, "newsletter": None}},
            )
            row[side] |= {field: line[field] for field in row[side] if line[field] is not None}
    return rows


@pytest.fixture
def filled(workspace):
    """Two batches, each with a file of either side."""
    for batch, (profiles, settings) in enumerate(zip(PROFILES, SETTINGS, strict=True)):
        land(workspace, f"profiles/{batch}.json", *profiles)
        land(workspace, f"settings/{batch}.json", *settings)
    return workspace


def test_either_side_comes_first_and_changes_its_own_fields_only(filled):
    batches = filled.run(customers(filled.input, files_per_batch=1))

    assert batches == [(1, 1), (2, 1)]
    assert filled.values("customers") == recount(chain(*PROFILES), chain(*SETTINGS))
    assert filled.values("customers")["ann"] == {
        "profile": {"name": "Ann", "city": "Bern"},
        "settings": {"language": "no", "newsletter": True},
    }


def test_a_replay_without_a_change_reverts_it_and_an_equal_replay_changes_nothing(filled):
    def run():
        return filled.run(opaque(customers(filled.input, files_per_batch=1)))

    run()
    before = filled.values("customers")
    filled.forget_last_commit()
    assert run() == [(2, 2)]
    assert filled.values("customers") == before

    filled.forget_last_commit()
    (filled.input / "profiles" / "1.json").write_text(json.dumps(PROFILES[1][0]) + "\n")
    assert run() == [(2, 3)]
    assert filled.values("customers") == recount([*PROFILES[0], PROFILES[1][0]], chain(*SETTINGS))


def test_a_change_without_a_time_is_a_dead_letter(workspace):
    land(workspace, "profiles/1.json", profile("ann", 1, "Ann"), {"user": "ann", "name": "Ghost"})
    land(workspace, "settings/1.json", setting("ann", 1, "no"))

    workspace.run(customers(workspace.input))

    assert workspace.values("customers")["ann"]["profile"]["name"] == "Ann"
    assert workspace.rows("SELECT source FROM tidemark.dead_letter") == [("1.json",)]
