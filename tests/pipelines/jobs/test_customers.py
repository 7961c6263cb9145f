from pathlib import Path

import pytest

from tidegauge.pipelines.jobs.customers import customers
from tidegauge.testing import Crash, Replay

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


BATCHES = [{"profiles": some, "settings": others} for some, others in zip(PROFILES, SETTINGS, strict=True)]
OF_ONE_FOLD = {"customers": ["one fold of all rows"]}


def test_either_side_comes_first_and_changes_its_own_fields_only(tidegauge_run):
    result = tidegauge_run(customers(Path("input")), BATCHES)

    assert result.checked == OF_ONE_FOLD
    assert result["customers"]["ann"] == {
        "profile": {"name": "Ann", "city": "Bern"},
        "settings": {"language": "no", "newsletter": True},
    }


def test_a_replay_without_a_change_reverts_it_and_an_equal_replay_changes_nothing(tidegauge_run):
    fewer = {"profiles": PROFILES[1][:1], "settings": SETTINGS[1]}

    result = tidegauge_run(customers(Path("input")), [*BATCHES, Crash(), Replay(), Replay(fewer)])

    assert [batch.attempts for batch in result.batches] == [1, 3]
    assert result["customers"]["ann"]["profile"] == {"name": "Ann", "city": "Oslo"}


def test_a_change_without_a_time_is_a_dead_letter(tidegauge_run):
    profiles = [profile("ann", 1, "Ann"), {"user": "ann", "name": "Ghost"}]

    result = tidegauge_run(customers(Path("input")), [{"profiles": profiles, "settings": [setting("ann", 1, "no")]}])

    assert result["customers"]["ann"]["profile"]["name"] == "Ann"
    assert [letter.line_number for letter in result.dead_letters] == [2]
